"""Read topics back with ordinary consumers, and say how two of them differ. Runs on the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from heliograph.clock import monotonic_s
from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka.cluster import LocalCluster

_SILENCE_S_MAX: Final = 60.0
_CONSUME_WAIT_S: Final = 0.05
_RECORDS_AT_ONCE: Final = 10_000
_LOG_LEVEL_CRITICAL: Final = 2

Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
"""Key, value, headers, timestamp: all that a mirror must keep besides partition and order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    topic: str
    records: int
    lost: int
    repeated: int
    strange: int
    """On the target and never at the source."""
    disordered_partitions: int

    @property
    def is_equal(self) -> bool:
        return not (self.lost or self.repeated or self.strange or self.disordered_partitions)


def compare(
    source: LocalCluster, topic: str, target: LocalCluster, target_topic: str
) -> Comparison:
    """Every record of both sides, as a consumer with read_committed gets them."""
    wanted, found = read_all(source, topic), read_all(target, target_topic)
    lost = repeated = strange = disordered = 0
    for partition in wanted.keys() | found.keys():
        here, there = wanted.get(partition, []), found.get(partition, [])
        if here == there:
            continue
        expected, got = Counter(here), Counter(there)
        lost += (expected - got).total()
        extra = got - expected
        repeated += sum(count for content, count in extra.items() if content in expected)
        strange += sum(count for content, count in extra.items() if content not in expected)
        disordered += expected == got
    return Comparison(
        topic=topic,
        records=sum(map(len, wanted.values())),
        lost=lost,
        repeated=repeated,
        strange=strange,
        disordered_partitions=disordered,
    )


def read_all(cluster: LocalCluster, topic: str) -> dict[int, list[Content]]:
    """What every partition holds now, in order."""
    consumer = Consumer(consumer_settings(cluster, "heliograph-demo-check"))
    try:
        partitions = partitions_of(consumer, topic)
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        read = read_to_end(consumer, partitions)
        return {
            number: [content_of(message) for message in messages]
            for number, messages in read.items()
        }
    finally:
        consumer.close()


def overwritten_records(cluster: LocalCluster, topic: str) -> int:
    """Records with a newer one of the same key behind them: what compaction would remove."""
    return sum(
        sum(Counter(content[0] for content in records).values()) - len({c[0] for c in records})
        for records in read_all(cluster, topic).values()
    )


def read_to_end(consumer: Consumer, partitions: Sequence[int]) -> Mapping[int, list[Message]]:
    """From where the consumer stands to the end of every partition that it was assigned."""
    read: dict[int, list[Message]] = {number: [] for number in partitions}
    unfinished = set(partitions)
    deadline_s = monotonic_s() + _SILENCE_S_MAX
    while unfinished:
        messages = consumer.consume(_RECORDS_AT_ONCE, timeout=_CONSUME_WAIT_S)
        if messages:
            deadline_s = monotonic_s() + _SILENCE_S_MAX
        elif monotonic_s() > deadline_s:
            raise LocalClusterError(f"a consumer heard nothing for {_SILENCE_S_MAX:.0f} s")
        for message in messages:
            error = message.error()
            if error is None:
                read[message.partition()].append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unfinished.discard(message.partition())
            else:
                raise KafkaException(error)
    return read


def partitions_of(consumer: Consumer, topic: str) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=_SILENCE_S_MAX)
    return sorted(metadata.topics[topic].partitions)


def content_of(message: Message) -> Content:
    headers = message.headers()
    return (
        message.key(),
        message.value(),
        tuple(headers) if headers else (),
        message.timestamp()[1],
    )


def consumer_settings(cluster: LocalCluster, group: str) -> dict[str, object]:
    return {
        **client_settings(cluster),
        "group.id": group,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "check.crcs": True,
        # An empty fetch tells the end of a partition, so it should not wait for records.
        "fetch.wait.max.ms": 10,
    }


def client_settings(cluster: LocalCluster) -> dict[str, object]:
    """Of every client here; what goes wrong is raised, so librdkafka need not write it too."""
    return {**cluster.librdkafka_config, "log_level": _LOG_LEVEL_CRITICAL}
