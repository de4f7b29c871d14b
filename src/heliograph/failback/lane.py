"""Where the two histories of one partition part, by the ledger and by content. Driver only.

The ledger knows the last record that was mirrored; the records before it are compared on both
sides. Source and target are those of the flow that was failed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from heliograph.audit.compare import compare_unit
from heliograph.audit.findings import Finding, FindingKind
from heliograph.audit.units import AuditUnit
from heliograph.broker.cluster import Cluster
from heliograph.broker.log import read_batches
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.errors import BrokerError
from heliograph.failback.divergence import PartitionParting
from heliograph.failback.export import count_records
from heliograph.ledger.access import OpenLedger
from heliograph.ledger.correction import Correction
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.positions import position_from_sequence
from heliograph.ledger.runs import Run, Runs
from heliograph.model import FlowId, OffsetRange, TopicPartition

VERIFIED_RECORDS: Final = 1_000
"""So many records before the parting are compared; more where these differ."""
_PARTS: Final = frozenset({FindingKind.MISSING, FindingKind.CHANGED, FindingKind.SWAPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPair:
    """Both clusters of a flow, and its ledger on the target."""

    config: MirrorConfig
    flow: FlowConfig
    source: Cluster
    ledger: OpenLedger

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
) -> tuple[PartitionParting, bool]:
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
        )
    return PartitionParting(
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
    if runs and runs.source_restart_position < settled.position:
        first_position = runs.source_restart_position
        offsets = settled.target_next_offset - runs.target_offset_at(first_position)
        foreign = offsets - (settled.position - first_position)
        if foreign:
            yield (
                f"{foreign} offsets on {pair.target.alias} before the parting are others' and are "
                "not copied back"
            )


def _recreated(pair: ClusterPair, location: LaneLocation) -> str:
    """A sentence where a topic is not the one the lane knows."""
    start = location.record.starts[-1]
    for cluster, name, wanted in (
        (pair.source, location.lane.source.topic, start.source_topic_id),
        (pair.target, location.target.topic, start.target_topic_id),
    ):
        topic = cluster.topic(name)
        if topic is not None and wanted not in (None, topic.id):
            return f"deleted and created again on {cluster.alias} since it was mirrored"
    return ""


async def settled_lane(
    pair: ClusterPair, location: LaneLocation, target: tuple[int, int]
) -> Settled:
    """Read our batches since the last head: they say how far the lane came, and where they lie.

    The broker forgets a producer that is idle for a day, and a mirror that died may have left runs
    that others' records have moved.
    """
    record, runs = location.record, location.record.runs
    start, head = record.starts[-1], record.head
    anchor, anchor_target = start.position, start.target_offset
    if head is not None and head.position > start.position:
        anchor, anchor_target = head.position, head.target_next_offset
    before = runs.run_before_overlap
    if before is not None and before.position < anchor:
        # The log says which of the two runs is right; the last head is too late to begin there.
        anchor, anchor_target = before.position, before.target_offset
    position, target_next = anchor, anchor_target
    flow = pair.ledger.store.view.flow
    is_settled = location.exact and location.position == anchor and before is None
    if flow is not None and not is_settled:
        correction = Correction(runs, anchor)
        async for header, _ in read_batches(
            pair.target, location.target, max(anchor_target, target[0]), target[1]
        ):
            if header.producer_id != flow.producer_id:
                continue
            first = position_from_sequence(header.base_sequence, anchor) - 1
            count = header.last_offset_delta + 1
            correction.see(first, count, header.base_offset)
            target_next = header.base_offset + count
            if location.exact and first + count >= location.position:
                break
        position = correction.position or (location.position if location.exact else anchor)
        if correction.position is None:
            target_next = max(runs.target_offset_at(position), anchor_target)
        corrected = correction.runs(position, target_next)
        if corrected:
            runs = Runs(tuple(runs))
            runs.replace_from(corrected)
    source_next = runs.source_offset_at(position)
    if head is not None and head.position == position:
        # What was dropped since the last record is not in the runs.
        source_next = max(source_next, head.source_next_offset)
    return Settled(
        runs=runs,
        position=position,
        source_next_offset=source_next,
        target_next_offset=target_next,
    )


async def _verified(
    pair: ClusterPair,
    location: LaneLocation,
    settled: Settled,
    source_end: int,
    *,
    is_compacted: bool,
) -> tuple[Settled, str]:
    """The parting, earlier where the source lost records or has others there; and why."""
    note = ""
    if source_end < settled.source_next_offset:
        lost = settled.source_next_offset - source_end
        settled = _at(settled, settled.runs.position_of_source(source_end), source_end)
        note = f"{pair.source.alias} has lost {lost} offsets that were mirrored"
    first, window = settled.runs.source_restart_position, VERIFIED_RECORDS
    while settled.position > first:
        start = max(first, settled.position - window)
        unit = _unit(pair, location, settled, start)
        result = await compare_unit(
            pair.source, pair.target, replace(unit, is_compacted=is_compacted)
        )
        differing = [each for each in result.findings if each.kind in _PARTS]
        parted_at = _parted_at(settled, differing)
        if parted_at is None:
            if differing:
                count = sum(each.records for each in differing)
                note = f"{count} of the {window} records before the parting differ; see audit"
            return settled, note
        if parted_at > start or start == first:
            note = (
                f"other records on the two sides from source offset "
                f"{settled.runs.source_offset_at(parted_at)} on, though they were mirrored"
            )
            return _at(settled, parted_at, settled.runs.source_offset_at(parted_at)), note
        window *= 10
    return settled, note


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
        producer_id=-1 if flow is None else flow.producer_id,
    )


def _parted_at(settled: Settled, differing: Iterable[Finding]) -> int | None:
    """Where the stretch of different records begins that reaches to the end; None without one.

    A record that differs among equal ones is a fault for an audit, not another history.
    """
    runs = settled.runs
    end = runs.source_offset_at(settled.position - 1) + 1
    parted: int | None = None
    ranges = [each.source for each in differing if each.source is not None]
    for found in sorted(ranges, key=lambda each: each.start, reverse=True):
        if found.end < end:
            break
        end = min(end, found.start)
        parted = runs.position_of_source(found.start)
    return parted


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
        # Behind the parting: what was written ahead there is not to be relied on.
        return 0
    held = max(runs.position_of_source(source[0]), runs.source_restart_position)
    kept = min(runs.position_of_target(target[0]), settled.position)
    return max(0, kept - held)
