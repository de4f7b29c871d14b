"""A partition in memory that answers fetches as a broker does: for faults by the thousand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from heliograph.errors import OffsetGone
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.wire.fetch import FetchedPartition
from tests.kit.batches import Record, batch_of


class MemoryCluster:
    """One partition; stands where an audit asks a cluster for metadata and offsets."""

    def __init__(self, alias: str, batches: Sequence[memoryview], *, log_start: int = 0) -> None:
        self.alias = ClusterAlias(alias)
        self.batches = [bytes(batch) for batch in batches]
        self.log_start = log_start

    @property
    def end(self) -> int:
        return _next_offset(self.batches[-1]) if self.batches else self.log_start

    async def refresh(self, names: Iterable[TopicName]) -> None:
        """There is nothing to learn."""

    async def list_offsets(
        self, partitions: Iterable[TopicPartition], at: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.log_start if at == -2 else -1)


async def fetch_from_memory(
    cluster: Any, partition: TopicPartition, offset: int, *, bytes_max: int, **_: object
) -> FetchedPartition:
    if not cluster.log_start <= offset <= cluster.end:
        raise OffsetGone(str(partition), offset, -1)
    wanted = [batch for batch in cluster.batches if _next_offset(batch) > offset]
    found = bytearray()
    for batch in wanted:
        if found and len(found) + len(batch) > bytes_max:
            break
        found += batch
    return FetchedPartition(
        (b"\0" * 16, partition.partition),
        0,
        cluster.end,
        cluster.end,
        cluster.log_start,
        (),
        -1,
        memoryview(found),
    )


def in_batches(records: Sequence[Record], sizes: Sequence[int], codec: int = 0) -> list[memoryview]:
    """Records, whose offsets may have holes, in batches of these many, over and over."""
    batches: list[memoryview] = []
    at = turn = 0
    while at < len(records):
        size = sizes[turn % len(sizes)]
        part = records[at : at + size]
        batches.append(batch_of(*part, base_offset=part[0].offset, attributes=codec))
        at, turn = at + size, turn + 1
    return batches


def _next_offset(batch: bytes) -> int:
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
