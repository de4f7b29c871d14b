"""A log as a test says it is, whether or not a broker would have taken it: for faults by the
thousand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from heliograph.model import TopicName, TopicPartition
from tests.kit.batches import Record, batch_of
from tests.kit.fake_cluster import FakeCluster

PARTITION = TopicPartition(topic=TopicName("orders"), partition=0)


class MemoryCluster(FakeCluster):
    """One partition, `orders-0`, with these batches; its leader is known."""

    def __init__(self, alias: str, batches: Sequence[memoryview], *, log_start: int = 0) -> None:
        super().__init__(alias)
        self.create(PARTITION.topic).hold(batches, log_start)
        asyncio.run(self.refresh([PARTITION.topic]))

    @property
    def end(self) -> int:
        return self.log(PARTITION).end


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
