"""Where the two histories of one partition part, by the ledger and by content. Driver only.

The ledger knows the last record that was mirrored; the records before it are compared on both
sides. Source and target are those of the flow that was failed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, assert_never

from heliograph.audit.compare import compare_unit
from heliograph.audit.findings import Finding, FindingKind
from heliograph.audit.plan import lane_writers
from heliograph.audit.units import AuditUnit
from heliograph.broker.cluster import Cluster
from heliograph.broker.log import read_batches
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.copy.flow import producers_of_mirrors
from heliograph.errors import BrokerError, LeaderMoved
from heliograph.failback.divergence import PartitionDivergence
from heliograph.failback.export import count_records
from heliograph.ledger.access import OpenLedger
from heliograph.ledger.kept import NOTHING_KEPT, kept_of, left_out_until
from heliograph.ledger.locate import (
    AheadOfEnd,
    At,
    LogState,
    NeedsScan,
    RecordsMissing,
    Scan,
    TargetRecreated,
    Truncated,
    Unexplained,
    anchor_of,
    is_other_topic,
    locate,
    source_next_offset,
)
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.view import LaneRecord
from heliograph.model import FlowId, OffsetRange, TopicPartition

VERIFIED_RECORDS: Final = 1_000
"""So many records before the divergence are compared; more where these differ."""
_PARTS: Final = frozenset({FindingKind.MISSING, FindingKind.CHANGED, FindingKind.SWAPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPair:
    """Both clusters of a flow, and its ledger on the target."""

    config: MirrorConfig
    flow: FlowConfig
    source: Cluster
    ledger: OpenLedger
    mirrors: frozenset[int] | None = None
    """Producers whose batches on the source the flow leaves out, as `with_mirrors` found them; None
    where it takes everything."""

    @property
    def target(self) -> Cluster:
        return self.ledger.target

    @property
    def back(self) -> FlowId:
        """The way back."""
        return FlowId(source=self.flow.id.target, target=self.flow.id.source)

    @property
    def source_config(self) -> ClusterConfig:
        return self.config.source_of(self.flow.id)

    @property
    def target_config(self) -> ClusterConfig:
        return self.config.target_of(self.flow.id)


async def with_mirrors(pair: ClusterPair) -> ClusterPair:
    """Asked once for all partitions. Raises `MirrorError` where a ledger cannot be read."""
    mirrors = await producers_of_mirrors(pair.config, pair.flow.id, pair.source)
    return replace(pair, mirrors=mirrors)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A lane's end as the target's log says it, and the map up to there."""

    runs: Runs
    position: int
    source_next_offset: int
    target_next_offset: int


def known(offset: int | BrokerError) -> int:
    if isinstance(offset, BrokerError):
        raise offset
    return offset


async def part(
    pair: ClusterPair,
    at: TopicPartition,
    location: LaneLocation | None,
    source: tuple[int, int] | None,
    target: tuple[int, int] | None,
    *,
    is_compacted: bool,
) -> tuple[PartitionDivergence, bool]:
    """Where the two part, and whether one side's topic is another one than was mirrored."""
    recreated = _recreated(pair, location) if location is not None else ""
    note, settled = recreated, None
    if location is not None and not recreated and target is not None:
        settled = await settled_lane(pair, location, target)
        if source is not None:
            settled, note = await _verified(
                pair, location, settled, source[1], is_compacted=is_compacted
            )
    source_offset = settled.source_next_offset if settled else (source[0] if source else 0)
    unmirrored = 0
    if source is not None and source_offset < source[1]:
        offsets = OffsetRange(start=max(source_offset, source[0]), end=source[1])
        unmirrored = await asyncio.to_thread(
            count_records,
            pair.source_config,
            at,
            offsets,
            read_committed=pair.flow.read_committed,
            brought=await brought_to(pair, at, offsets),
        )
    return PartitionDivergence(
        partition=at.partition,
        source_start=None if source is None else source[0],
        source_end=None if source is None else source[1],
        target_start=None if target is None else target[0],
        target_end=None if target is None else target[1],
        position=None if settled is None else settled.position,
        source_offset=source_offset,
        target_offset=settled.target_next_offset if settled else (target[0] if target else 0),
        unmirrored_records=unmirrored,
        expired_records=_expired(settled, source, target),
        is_identical=settled is not None and _is_identical(settled),
        note="; ".join(_remarks(pair, note, settled, source)),
    ), bool(recreated)


async def brought_to(
    pair: ClusterPair, at: TopicPartition, offsets: OffsetRange
) -> tuple[OffsetRange, ...]:
    """Of these offsets of the source, those of batches that mirrors had brought there: what the
    flow would have left out is nothing that only the source has. The source's metadata must know
    the topic. Raises `BrokerError`."""
    mirrors, topic = pair.mirrors, pair.source.topic(at.topic)
    if mirrors is None:
        return ()
    kept = NOTHING_KEPT if topic is None else kept_of(pair.ledger.store.view, at, topic.id)
    return tuple(
        [
            OffsetRange(start=header.base_offset, end=until)
            async for header, _ in read_batches(pair.source, at, offsets.start, offsets.end)
            if (until := left_out_until(header, mirrors, kept)) > header.base_offset
        ]
    )


def _remarks(
    pair: ClusterPair, first: str, settled: Settled | None, source: tuple[int, int] | None
) -> Iterator[str]:
    if first:
        yield first
    if settled is None:
        return
    if source is not None and source[0] > settled.source_next_offset:
        lost = source[0] - settled.source_next_offset
        yield f"{lost} offsets that were never mirrored are deleted on {pair.source.alias} by now"
    runs = settled.runs
    if runs and runs.exact_from < settled.position:
        first_position = runs.exact_from
        offsets = settled.target_next_offset - runs.target_offset_at(first_position)
        foreign = offsets - (settled.position - first_position)
        if foreign:
            yield (
                f"{foreign} offsets on {pair.target.alias} before the divergence were written by "
                "other producers and are not copied back"
            )


def _recreated(pair: ClusterPair, location: LaneLocation) -> str:
    """A sentence where a topic is not the one the lane knows."""
    start = location.record.starts[-1]
    for cluster, name, wanted in (
        (pair.source, location.lane.source.topic, start.source_topic_id),
        (pair.target, location.target.topic, start.target_topic_id),
    ):
        topic = cluster.topic(name)
        if topic is not None and is_other_topic(wanted, topic.id):
            return f"deleted and created again on {cluster.alias} since it was mirrored"
    return ""


async def settled_lane(
    pair: ClusterPair, location: LaneLocation, target: tuple[int, int]
) -> Settled:
    """Read our batches since the last head: they say how far the lane came, and where they lie.

    The broker forgets a producer that is idle for a day, and a mirror that died may have left runs
    that others' records have moved. `target` is where the target's log starts and ends.
    """
    record, anchor = location.record, anchor_of(location.record)
    log = LogState(start=target[0], end=target[1], last_sequence=location.last_sequence)
    found = locate(record, log)
    match found:
        case NeedsScan():
            return await _scanned(pair, location, log, found)
        case At(position=position) if position > anchor.position:
            # Nobody resumes this lane and would notice if one of its runs were wrong.
            needs = NeedsScan(anchor=anchor, position=position)
            return await _scanned(pair, location, log, needs)
        case At(position=position) if position < anchor.position:
            return _settled(record, record.runs, position, record.runs.target_offset_at(position))
        case AheadOfEnd():
            raise _ahead(location)
        case At() | Truncated() | TargetRecreated() | Unexplained():
            return _settled(record, record.runs, anchor.position, anchor.target_offset)
        case _:
            assert_never(found)


async def _scanned(
    pair: ClusterPair, location: LaneLocation, log: LogState, needs: NeedsScan
) -> Settled:
    scan, runs = Scan(location.record, needs, log), location.record.runs
    await _read_own(pair, location.target, scan, log.end)
    # Where nothing is left it goes by the anchor: clients write there since the failover, so what
    # was deleted may be theirs.
    found = scan.found()
    if isinstance(found, AheadOfEnd):
        raise _ahead(location)
    if isinstance(found, RecordsMissing):
        raise BrokerError(
            f"{location.target}: records of {location.lane} are missing in its middle"
        )
    target_next = scan.own_end(found.position)
    corrected = scan.corrected(found.position, target_next)
    if corrected:
        runs = runs.copy()
        runs.replace_from(corrected)
    return _settled(location.record, runs, found.position, target_next)


def _settled(record: LaneRecord, runs: Runs, position: int, target_next: int) -> Settled:
    return Settled(
        runs=runs,
        position=position,
        source_next_offset=source_next_offset(replace(record, runs=runs), position),
        target_next_offset=target_next,
    )


def _ahead(location: LaneLocation) -> LeaderMoved:
    return LeaderMoved(f"{location.target}: the log is ahead of its high watermark")


async def _read_own(pair: ClusterPair, at: TopicPartition, scan: Scan, end: int) -> None:
    flow = pair.ledger.store.view.flow
    if flow is None or scan.is_complete():
        return
    async for header, _ in read_batches(pair.target, at, scan.read_from, end):
        if header.producer_id == flow.producer_id:
            scan.see(header)
            # Behind the last of ours there may be days of clients' records.
            if scan.is_complete():
                return


async def _verified(
    pair: ClusterPair,
    location: LaneLocation,
    settled: Settled,
    source_end: int,
    *,
    is_compacted: bool,
) -> tuple[Settled, str]:
    """The divergence, earlier where the source lost records or has others there; and why."""
    note = ""
    if source_end < settled.source_next_offset:
        lost = settled.source_next_offset - source_end
        if source_end < settled.runs.source_offset_at(settled.runs.exact_from):
            _require_known(pair, location, settled)
        settled = _at(settled, settled.runs.position_of_source(source_end), source_end)
        note = f"{pair.source.alias} has lost {lost} offsets that were mirrored"
    writers = lane_writers(pair.ledger.store.view, location, pair.source, pair.mirrors)
    first, window = settled.runs.exact_from, VERIFIED_RECORDS
    while settled.position > first:
        start = max(first, settled.position - window)
        unit = replace(
            _unit(pair, location, settled, start), is_compacted=is_compacted, writers=writers
        )
        result = await compare_unit(pair.source, pair.target, unit)
        differing = [each for each in result.findings if each.kind in _PARTS]
        diverged_at = _diverged_at(settled, differing)
        if diverged_at is None:
            if differing:
                count = sum(each.records for each in differing)
                note = f"{count} of the {window} records before the divergence differ; see audit"
            return settled, note
        if diverged_at > start or start == first:
            if diverged_at == first:
                _require_known(pair, location, settled)
            note = (
                f"other records on the two sides from source offset "
                f"{settled.runs.source_offset_at(diverged_at)} on, though they were mirrored"
            )
            return _at(settled, diverged_at, settled.runs.source_offset_at(diverged_at)), note
        window *= 10
    return settled, note


def _require_known(pair: ClusterPair, location: LaneLocation, settled: Settled) -> None:
    """The histories part no later than the first exact offset: earlier, for all that is known."""
    if settled.runs.anchors is not None:
        raise BrokerError(
            f"{location.lane}: the logs of {pair.source.alias} and {pair.target.alias} part before "
            f"position {settled.runs.exact_from}, and the ledger has forgotten the exact offsets "
            "there: what to copy back is not known"
        )


def _unit(
    pair: ClusterPair, location: LaneLocation, settled: Settled, start_position: int
) -> AuditUnit:
    runs = settled.runs
    first = Run(
        position=start_position,
        source_offset=runs.source_offset_at(start_position),
        target_offset=runs.target_offset_at(start_position),
    )
    later = [run for run in runs.since(start_position + 1) if run.position < settled.position]
    flow = pair.ledger.store.view.flow
    return AuditUnit(
        lane=location.lane,
        target=location.target,
        start_position=start_position,
        end_position=settled.position,
        runs=(first, *later),
        read_committed=pair.flow.read_committed,
        transforms=location.transforms,
        producer_id=-1 if flow is None else flow.producer_id,
    )


def _diverged_at(settled: Settled, differing: Iterable[Finding]) -> int | None:
    """Where the stretch of different records begins that reaches to the end; None without one.

    A record that differs among equal ones is a fault for an audit, not another history.
    """
    runs = settled.runs
    end = runs.source_offset_at(settled.position - 1) + 1
    diverged: int | None = None
    ranges = [each.source for each in differing if each.source is not None]
    for found in sorted(ranges, key=lambda each: each.start, reverse=True):
        if found.end < end:
            break
        end = min(end, found.start)
        diverged = runs.position_of_source(found.start)
    return diverged


def _at(settled: Settled, position: int, source_offset: int) -> Settled:
    return Settled(
        runs=settled.runs,
        position=position,
        source_next_offset=source_offset,
        target_next_offset=settled.runs.target_offset_at(position),
    )


def _is_identical(settled: Settled) -> bool:
    same_end = settled.source_next_offset == settled.target_next_offset
    return same_end and settled.runs.identical(settled.position)


def _expired(
    settled: Settled | None, source: tuple[int, int] | None, target: tuple[int, int] | None
) -> int:
    if settled is None or source is None or target is None:
        return 0
    runs = settled.runs
    if runs.overlap_at is not None:
        # Behind the divergence: what was written ahead there is not to be relied on.
        return 0
    held = max(runs.position_of_source(source[0]), runs.exact_from)
    kept = min(runs.position_of_target(target[0]), settled.position)
    return max(0, kept - held)
