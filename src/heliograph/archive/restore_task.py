"""One archived partition into its target partition. Runs on executors."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from heliograph.archive.reading import ArchivedPartition, rows_of
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, open_cluster
from heliograph.broker.seed import seed
from heliograph.clock import now_ms
from heliograph.errors import ArchiveRefused, BrokerError, MirrorError
from heliograph.model import OffsetRange, TopicPartition
from heliograph.pipeline.direct import DirectAppender, DirectPacker
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.packing import TargetTopics
from heliograph.pipeline.staging import Folder
from heliograph.wire.batch import Stamp

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOrder:
    """All that tasks need besides their partitions; holds credentials."""

    cluster: ClusterConfig = field(repr=False)
    topics: TargetTopics
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePart:
    part: ArchivedPartition
    stamp: Stamp
    start: PartEnd
    first_offset: int | None
    """Where offsets are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    end: PartEnd
    records: int


def restore_part(order: RestoreOrder, unit: RestorePart) -> Restored | MirrorError:
    """The Spark task; what goes wrong is an answer, raised, it would be tried again."""
    try:
        return _restored(order, unit)
    except MirrorError as exc:
        return exc


def _restored(order: RestoreOrder, unit: RestorePart) -> Restored:
    start, first = unit.start, unit.first_offset
    if first is not None:
        asyncio.run(_seeded(order, unit, first))
        start = replace(start, offset=max(start.offset, first))
    appender = DirectAppender(order.cluster, unit.stamp, {start.target: start})
    try:
        packer = DirectPacker(order.topics, 0, appender, at_ms=now_ms())
        for rows in rows_of(Folder(order.folder), unit.part):
            packer.add(rows)
        packer.seal_all()
        ends = appender.finish()
    finally:
        appender.close()
    end = ends[0] if ends else start
    records = end.position - unit.start.position
    if first is not None and end.offset - records != first:
        raise ArchiveRefused(
            f"{start.target}: the records begin at offset {end.offset - records:,}, not at "
            f"{first:,}: something else has written there meanwhile"
        )
    return Restored(end=end, records=records)


async def _seeded(order: RestoreOrder, unit: RestorePart, first: int) -> None:
    """Have the partition end at the first archived offset, unless records are there already."""
    target = open_cluster(order.cluster, "producer")
    at = unit.start.target
    try:
        await target.refresh([at.topic])
        log = OffsetRange(start=await _at(target, at, EARLIEST), end=await _at(target, at, LATEST))
        last = (await target.last_sequences([at], unit.stamp.producer_id))[at]
        if isinstance(last, BrokerError):
            raise last
        if first == 0 or log.end > first:
            return
        end = await seed(target, at, unit.stamp, log=log, last_sequence=last, wanted=first)
        if end != first:
            raise ArchiveRefused(
                f"{at} ends at offset {end:,} and not at {first:,}: a topic that is only compacted "
                "cannot be filled and emptied; create it with cleanup.policy=delete, and change it "
                "afterwards"
            )
    finally:
        target.close()


async def _at(target: Cluster, at: TopicPartition, time: int) -> int:
    answer = (await target.list_offsets([at], time))[at]
    if isinstance(answer, BrokerError):
        raise answer
    return answer
