"""What a flow's transforms make of a topic's newest records; nothing is written. Runs on the
driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from heliograph.audit.reading import Damaged, LogReader
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, open_cluster
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, MirrorError
from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.topics.naming import naming_policy
from heliograph.transform.lane import LaneTransform, transforms_for
from heliograph.transform.record import Where
from heliograph.wire.opened import Content


class Fate(StrEnum):
    SAME = "same"
    CHANGED = "changed"
    DROPPED = "dropped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRecord:
    partition: int
    offset: int
    fate: Fate
    why: str
    """Why it failed."""
    before: Content
    after: Content | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    flow: FlowId
    topic: TopicName
    target_topic: TopicName
    transforms: tuple[str, ...]
    """Those that are for the topic, in order."""
    records: tuple[TriedRecord, ...]

    def count(self, fate: Fate) -> int:
        return sum(record.fate is fate for record in self.records)


async def try_transforms(
    config: MirrorConfig, flow: FlowConfig, topic: TopicName, sample: int
) -> Trial:
    """The last `sample` records of the topic, spread over its partitions. Raises `MirrorError`."""
    source = open_cluster(config.source_of(flow.id), "consumer")
    try:
        await source.refresh([topic])
        found = source.topic(topic)
        if found is None:
            raise MirrorError(f"cluster {flow.id.source} has no topic {topic}")
        registries = (source.registry, config.target_of(flow.id).registry)
        target_topic = naming_policy(flow).target_topic(topic)
        partitions = [
            TopicPartition(topic=topic, partition=n) for n in range(found.partition_count)
        ]
        records: list[TriedRecord] = []
        for at, (start, end) in (await _newest(source, partitions, sample)).items():
            where = Where(topic, target_topic, at.partition)
            offsets, contents = await _read(source, at, start, end, flow)
            records += _tried(
                LaneTransform.of(flow.transforms, where, registries), at, offsets, contents
            )
        steps = transforms_for(flow.transforms, Where(topic, target_topic, 0))
        return Trial(
            flow=flow.id,
            topic=topic,
            target_topic=target_topic,
            transforms=tuple(str(step) for step, _ in steps),
            records=tuple(records),
        )
    finally:
        source.close()


async def _newest(
    source: Cluster, partitions: Sequence[TopicPartition], sample: int
) -> dict[TopicPartition, tuple[int, int]]:
    starts = await source.list_offsets(partitions, EARLIEST)
    ends = await source.list_offsets(partitions, LATEST)
    each = -(-sample // max(1, len(partitions)))
    found: dict[TopicPartition, tuple[int, int]] = {}
    for at in partitions:
        start, end = starts[at], ends[at]
        if isinstance(start, BrokerError):
            raise start
        if isinstance(end, BrokerError):
            raise end
        found[at] = (max(start, end - each), end)
    return found


async def _read(
    source: Cluster, at: TopicPartition, start: int, end: int, flow: FlowConfig
) -> tuple[list[int], list[Content]]:
    reader = LogReader(source, at, start, read_committed=flow.read_committed, likely_end=end)
    try:
        offsets, contents = await reader.window(end - start)
    finally:
        await reader.close()
    good = [
        (offset, content)
        for offset, content in zip(offsets, contents, strict=True)
        if not isinstance(content, Damaged)
    ]
    return [offset for offset, _ in good], [content for _, content in good]


def _tried(
    transform: LaneTransform | None,
    at: TopicPartition,
    offsets: list[int],
    contents: list[Content],
) -> list[TriedRecord]:
    if not contents:
        return []
    done = None if transform is None else transform.apply_patiently(offsets, contents)
    found: list[TriedRecord] = []
    for row, (offset, before) in enumerate(zip(offsets, contents, strict=True)):
        after = before if done is None else done.contents[row]
        failure = None if done is None else done.failed.get(row)
        found.append(
            TriedRecord(
                partition=at.partition,
                offset=offset,
                fate=_fate(before, after, failure is not None),
                why="" if failure is None else str(failure),
                before=before,
                after=after,
            )
        )
    return found


def _fate(before: Content, after: Content | None, failed: bool) -> Fate:
    if failed:
        return Fate.FAILED
    if after is None:
        return Fate.DROPPED
    return Fate.SAME if after == before else Fate.CHANGED
