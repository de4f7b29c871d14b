"""The demo's topics and the records in them. Pure; runs on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoTopic:
    name: str
    partitions: int
    codec: str
    batch_records_max: int
    share: float
    """Of all records."""
    value_bytes: int = 100
    keys: int = 0
    """How many different keys there are; 0 is a key of its own for every record."""
    configs: tuple[tuple[str, str], ...] = ()
    transactional: bool = False
    compacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRecord:
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


PAYMENTS: Final = DemoTopic(
    name="payments",
    partitions=2,
    codec="zstd",
    batch_records_max=200,
    share=0.15,
    transactional=True,
)
TOPICS: Final = (
    DemoTopic(name="orders", partitions=4, codec="lz4", batch_records_max=500, share=0.4),
    DemoTopic(name="clicks", partitions=3, codec="none", batch_records_max=1_000, share=0.3),
    PAYMENTS,
    DemoTopic(
        name="audit", partitions=1, codec="gzip", batch_records_max=50, share=0.07, value_bytes=400
    ),
    DemoTopic(name="pings", partitions=1, codec="snappy", batch_records_max=1, share=0.03),
    DemoTopic(
        name="profiles",
        partitions=2,
        codec="lz4",
        batch_records_max=100,
        share=0.05,
        keys=200,
        configs=(("cleanup.policy", "compact"),),
        compacted=True,
    ),
)


def record_counts(records: int) -> dict[str, int]:
    """How many each topic gets; never none."""
    return {topic.name: max(40, int(records * topic.share)) for topic in TOPICS}


def records_of(topic: DemoTopic, start: int, end: int, first_ms: int) -> Iterator[NewRecord]:
    """Records numbered `[start, end)`, each different; some without key, value or headers.

    Timestamps follow from the number alone, so a copy that stamps its own time is found out.
    """
    filler = bytes(topic.name, "ascii") * (topic.value_bytes // len(topic.name) + 1)
    for number in range(start, end):
        key: bytes | None = b"%s-%d" % (
            topic.name.encode(),
            number % topic.keys if topic.keys else number,
        )
        # A tombstone needs its key; in the others some records go without.
        value: bytes | None = b"%d " % number + filler[: topic.value_bytes]
        if number % 97 == 0:
            key, value = (key, None) if topic.keys else (None, value)
        yield NewRecord(
            partition=(number % topic.keys if topic.keys else number) % topic.partitions,
            key=key,
            value=value,
            headers=(("number", b"%d" % number),) if number % 3 == 0 else (),
            timestamp_ms=first_ms + number,
        )
