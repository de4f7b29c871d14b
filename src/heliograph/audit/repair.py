"""Append again what an audit found missing, at the end of its partition. Runs on the driver.

A record cannot be put back where it belongs, so it goes to the end, with a header that says where
it came from (see `audit.origin`). A mirror that runs meanwhile takes it for somebody else's record:
it resyncs the lane and goes on, and neither loses nor repeats one of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.audit.findings import FindingKind, ranges_of
from heliograph.audit.origin import ORIGIN_HEADER, origin_of
from heliograph.audit.plan import repairs_memo, repairs_of
from heliograph.audit.reading import Damaged, LogReader
from heliograph.audit.run import LaneFinding
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.ledger.access import open_ledger
from heliograph.ledger.listed import ListedWriter, list_producer
from heliograph.model import FlowId, LaneId, OffsetRange, Offsets, TopicName, TopicPartition
from heliograph.wire.batch import Stamp
from heliograph.wire.opened import Content

_RECORDS_AT_ONCE: Final = 1_000
_CLEANUP: Final = "cleanup.policy"
_WHY_NOT: Final = {
    FindingKind.REPEATED: "a record cannot be taken out of a log",
    FindingKind.CHANGED: "a record cannot be overwritten in a log",
    FindingKind.SWAPPED: "records cannot change places in a log",
    FindingKind.FOREIGN: "a record cannot be taken out of a log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """What stays as it is, and why."""

    lane: LaneId
    kind: FindingKind
    source: OffsetRange | None
    target: OffsetRange | None
    records: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    appended: Mapping[LaneId, tuple[OffsetRange, ...]]
    """Source offsets of the records that were appended."""
    refused: tuple[Refused, ...]

    @property
    def records(self) -> int:
        return sum(part.count for parts in self.appended.values() for part in parts)


def repair(config: MirrorConfig, flow: FlowId, findings: Iterable[LaneFinding]) -> RepairReport:
    """Append what is missing where that does no harm; say why not for the rest."""
    missing: dict[LaneId, tuple[TopicPartition, list[OffsetRange]]] = {}
    refused: list[Refused] = []
    for one in findings:
        kind, source = one.finding.kind, one.finding.source
        if kind is FindingKind.MISSING and source is not None:
            missing.setdefault(one.lane, (one.target, []))[1].append(source)
        elif kind is not FindingKind.MISSING:
            refused.append(_refused(one, _WHY_NOT[kind]))
    settings = config.flow(flow)
    compacted = _compacted(config, flow, {target.topic for target, _ in missing.values()})
    appended: dict[LaneId, tuple[OffsetRange, ...]] = {}
    stamp: Stamp | None = None
    for lane, (target, ranges) in missing.items():
        why = _why_not(settings, compacted.get(target.topic, ""))
        done: tuple[OffsetRange, ...] = ()
        if not why:
            stamp = stamp or asyncio.run(_listed(config, flow))
            done, why = asyncio.run(_append_lane(config, stamp, lane, target, ranges))
        if done:
            appended[lane] = done
        refused += _left_over(lane, target, ranges, done, why)
    return RepairReport(appended=appended, refused=tuple(refused))


def _why_not(settings: FlowConfig, compacted: str) -> str:
    if any(not each.names_topics for each in settings.transforms):
        return "records of the flow go through transforms, and this would append them as they were"
    if settings.offsets is Offsets.PRESERVE:
        return "offsets are preserved: one record more would move all that follow"
    return compacted


def _compacted(
    config: MirrorConfig, flow: FlowId, topics: Iterable[TopicName]
) -> Mapping[TopicName, str]:
    """Why nothing may be appended to a topic again, where its old records replace newer ones."""
    names = sorted(topics)
    if not names:
        return {}
    found: dict[TopicName, str] = {}
    for name, settings in ClusterAdmin(config.target_of(flow)).topic_configs(names).items():
        if isinstance(settings, NotAuthorised):
            found[name] = f"it is not known whether the topic is compacted: {settings}"
        elif "compact" in str(settings[_CLEANUP].value):
            found[name] = "the topic is compacted: an old record would replace newer ones"
    return found


async def _listed(config: MirrorConfig, flow: FlowId) -> Stamp:
    """Whom the records are appended as: a flow the other way must not send them back."""
    async with open_ledger(config, flow) as ledger:
        return await list_producer(ledger.target, ledger.store, flow)


async def _append_lane(
    config: MirrorConfig,
    stamp: Stamp,
    lane: LaneId,
    target: TopicPartition,
    ranges: list[OffsetRange],
) -> tuple[tuple[OffsetRange, ...], str]:
    """What was appended, and why not the rest."""
    source = open_cluster(config.source_of(lane.flow), "consumer")
    to = open_cluster(config.target_of(lane.flow), "producer")
    writer = ListedWriter(to, stamp)
    done: list[int] = []
    why = "the source has them no more"
    read_committed = config.flow(lane.flow).read_committed
    try:
        await source.refresh([lane.source.topic])
        for part in ranges:
            records = await _records(source, lane, part, read_committed=read_committed)
            for start in range(0, len(records), _RECORDS_AT_ONCE):
                some = records[start : start + _RECORDS_AT_ONCE]
                await writer.append(target, [_with_origin(lane, *each) for each in some])
                done += [offset for offset, _ in some]
    except BrokerError as exc:
        why = str(exc)
    finally:
        source.close()
        to.close()
        if done:
            await _note(config, lane, done)
    return ranges_of(done), why


async def _records(
    source: Cluster, lane: LaneId, part: OffsetRange, *, read_committed: bool
) -> list[tuple[int, Content]]:
    """Those of the range that the source still has and that can be written."""
    side = LogReader(
        source, lane.source, part.start, read_committed=read_committed, likely_end=part.end
    )
    try:
        offsets, contents = await side.window(part.count)
    finally:
        await side.close()
    return [
        (offset, content)
        for offset, content in zip(offsets, contents, strict=True)
        if offset < part.end and not isinstance(content, Damaged)
    ]


def _with_origin(lane: LaneId, offset: int, content: Content) -> Content:
    timestamp_ms, key, value, headers = content
    return timestamp_ms, key, value, (*headers, (ORIGIN_HEADER, origin_of(lane, offset)))


async def _note(config: MirrorConfig, lane: LaneId, offsets: Iterable[int]) -> None:
    """So that audits of other stretches know of it too."""
    async with open_ledger(config, lane.flow) as ledger:
        await ledger.store.catch_up()
        known = [
            offset
            for part in repairs_of(ledger.store.view, lane.source)
            for offset in range(part.start, part.end)
        ]
        ranges = ranges_of([*known, *offsets])
        await ledger.store.write_or_refuse([repairs_memo(lane.source, ranges)])


def _left_over(
    lane: LaneId,
    target: TopicPartition,
    wanted: Iterable[OffsetRange],
    done: Iterable[OffsetRange],
    why: str,
) -> list[Refused]:
    appended = {offset for part in done for offset in range(part.start, part.end)}
    left = ranges_of(
        offset
        for part in wanted
        for offset in range(part.start, part.end)
        if offset not in appended
    )
    return [
        Refused(
            lane=lane,
            kind=FindingKind.MISSING,
            source=part,
            target=None,
            records=part.count,
            why=why,
        )
        for part in left
    ]


def _refused(one: LaneFinding, why: str) -> Refused:
    return Refused(
        lane=one.lane,
        kind=one.finding.kind,
        source=one.finding.source,
        target=one.finding.target,
        records=one.finding.records,
        why=why,
    )
