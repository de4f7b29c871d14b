"""A consumer group that changes sides: half of a topic on A, the rest on B. Runs on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, Message, TopicPartition

from heliograph.clock import monotonic_s
from heliograph.config.schema import MirrorConfig
from heliograph.errors import LocalClusterError
from heliograph.inspect.status import StatusReader
from heliograph.ledger.locations import all_topics
from heliograph.ledger.translate import Exact
from heliograph.model import FlowId
from heliograph_tools.demo.reading import (
    Content,
    consumer_settings,
    content_of,
    partitions_of,
    read_all,
    read_to_end,
)
from heliograph_tools.localkafka.cluster import LocalCluster

GROUP: Final = "billing"
_MIRRORED_S_MAX: Final = 60.0
_POLL_S: Final = 0.2
_CONSUME_WAIT_S: Final = 0.1
_ANSWER_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """What the group has read of a topic on the source."""

    topic: str
    read: Mapping[int, list[Content]]
    committed: Mapping[int, int]

    @property
    def records(self) -> int:
        return sum(map(len, self.read.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    target_topic: str
    offsets: Mapping[int, tuple[int, int]]
    """Where the group stood on the source, and where it went on at the target."""
    records_before: int
    records_after: int
    lost: int
    repeated: int


def read_half(source: LocalCluster, topic: str) -> Half:
    """Read and commit half of what each partition holds, as a member of the group."""
    consumer = Consumer({**consumer_settings(source, GROUP), "auto.offset.reset": "earliest"})
    try:
        numbers = partitions_of(consumer, topic)
        stop_at: dict[int, int] = {}
        for number in numbers:
            partition = TopicPartition(topic, number)
            low, high = consumer.get_watermark_offsets(partition, timeout=_ANSWER_S_MAX)
            # Not the same everywhere, so that no partition is right by chance.
            stop_at[number] = low + (high - low) // 2 + number
        read = _read_up_to(consumer, topic, stop_at)
        committed = {
            number: messages[-1].offset() + 1 for number, messages in read.items() if messages
        }
        consumer.commit(
            offsets=[TopicPartition(topic, number, at) for number, at in committed.items()],
            asynchronous=False,
        )
        contents = {n: [content_of(message) for message in some] for n, some in read.items()}
        return Half(topic=topic, read=contents, committed=committed)
    finally:
        consumer.close()


def move(
    config: MirrorConfig, flow: FlowId, half: Half, target: LocalCluster
) -> tuple[str, dict[int, int]]:
    """Translate the group's positions by the ledger and commit them on the target."""
    topic, offsets = asyncio.run(_translated(config, flow, half))
    consumer = Consumer(consumer_settings(target, GROUP))
    try:
        consumer.commit(
            offsets=[TopicPartition(topic, number, at) for number, at in offsets.items()],
            asynchronous=False,
        )
    finally:
        consumer.close()
    return topic, offsets


def finish(
    source: LocalCluster,
    target: LocalCluster,
    half: Half,
    topic: str,
    offsets: Mapping[int, int],
) -> Moved:
    """Go on at the target from the committed positions; compare with all that the source has."""
    consumer = Consumer(consumer_settings(target, GROUP))
    try:
        wanted = [TopicPartition(topic, number) for number in offsets]
        consumer.assign(consumer.committed(wanted, timeout=_ANSWER_S_MAX))
        rest = read_to_end(consumer, list(offsets))
    finally:
        consumer.close()
    lost = repeated = 0
    for number, everything in read_all(source, half.topic).items():
        before = half.read.get(number, [])
        after = [content_of(message) for message in rest.get(number, ())]
        if before + after != everything:
            lost += max(0, len(everything) - len(before) - len(after))
            repeated += len(set(before) & set(after))
            # The same count in another order is no copy either.
            lost += not lost and not repeated
    return Moved(
        target_topic=topic,
        offsets={number: (half.committed[number], at) for number, at in offsets.items()},
        records_before=half.records,
        records_after=sum(map(len, rest.values())),
        lost=lost,
        repeated=repeated,
    )


def _read_up_to(
    consumer: Consumer, topic: str, stop_at: Mapping[int, int]
) -> dict[int, list[Message]]:
    read: dict[int, list[Message]] = {number: [] for number in stop_at}
    consumer.assign([TopicPartition(topic, number, 0) for number in stop_at])
    unfinished = set(stop_at)
    deadline_s = monotonic_s() + _ANSWER_S_MAX
    while unfinished and monotonic_s() < deadline_s:
        for message in consumer.consume(5_000, timeout=_CONSUME_WAIT_S):
            number = message.partition()
            if message.error() is not None:
                unfinished.discard(number)
            elif message.offset() < stop_at[number]:
                read[number].append(message)
            else:
                unfinished.discard(number)
    if unfinished:
        raise LocalClusterError(f"{topic}: the group did not get to its half")
    return read


async def _translated(config: MirrorConfig, flow: FlowId, half: Half) -> tuple[str, dict[int, int]]:
    """Exact positions on the target; waits until the mirror has passed the group."""
    reader = StatusReader(config, all_topics([half.topic]))
    deadline_s = monotonic_s() + _MIRRORED_S_MAX
    try:
        while True:
            locations = {
                place.lane.source.partition: place
                for place in await reader.locations(config.flow(flow))
            }
            found = {
                number: answer.offset
                for number, at in half.committed.items()
                if number in locations
                and isinstance(answer := locations[number].offset_map.to_target(at), Exact)
            }
            if len(found) == len(half.committed):
                return next(iter(locations.values())).target.topic, found
            if monotonic_s() > deadline_s:
                raise LocalClusterError(f"{half.topic}: the mirror did not get past the group")
            await asyncio.sleep(_POLL_S)
    finally:
        await reader.close()
