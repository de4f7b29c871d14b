"""Lanes of the way back that had begun by themselves: both sides were written. Driver only.

Where only one side is written at a time, the map of the flow that was failed over says all, and the
way back begins where the histories part. Where the present primary had records of its own, these
lie among the others, and the way back had brought some of them: it goes on where it stood, by its
own map, or it would skip what it had not brought yet and repeat what it had.

Which of the two it is, the maps say. A failback writes one lane's map from the other's, so both
have the same records at the same positions from then on. Two lanes that each brought records of
their own never have: a record was written by one of the two, or by the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from heliograph.broker.cluster import open_cluster
from heliograph.failback.context import FailbackContext
from heliograph.failback.divergence import PartitionDivergence
from heliograph.failback.export import records_of
from heliograph.failback.lane import ClusterPair, Settled, brought_to, settled_lane, with_mirrors
from heliograph.ledger.access import OpenLedger
from heliograph.ledger.both_ways import others_between
from heliograph.ledger.kept import kept_of
from heliograph.ledger.locate import anchor_of, is_other_topic
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.reverse import exchanged
from heliograph.ledger.runs import Run, Runs
from heliograph.model import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPlace:
    """Where a lane of the way back goes on by its own map."""

    position: int
    source_offset: int
    runs: tuple[Run, ...]
    """Since the lane's last head, up to here."""
    kept: OffsetRange | None
    """Of the present primary: what the old one has lost is there, and goes back whoever wrote
    it."""


async def own_place(
    context: FailbackContext,
    ledger: OpenLedger,
    divergence: PartitionDivergence,
    there: LaneLocation | None,
    back: LaneLocation | None,
) -> OwnPlace | None:
    """None where the way back begins where the histories part. Raises `BrokerError`."""
    pair, bounds = context.pair, _bounds(divergence)
    is_both_ways = pair.config.way_back(pair.flow.id) == context.back
    if there is None or back is None or bounds is None or not is_both_ways:
        return None
    # Before anything is read: in a round trip the way back stopped long ago, and its log went on.
    if _is_of_other_topics(context, ledger, back) or has_shared_map(there, back):
        return None
    old, present = bounds
    flow = await settled_lane(pair, there, (present.start, present.end))
    reverse = ClusterPair(
        config=pair.config, flow=context.back_flow, source=pair.target, ledger=ledger
    )
    own = await settled_lane(reverse, back, (old.start, old.end))
    if not own.runs or own.position <= own.runs.exact_from:
        # It has brought nothing, for all that is known.
        start = min(max(own.source_next_offset, present.start), divergence.target_offset)
        unread = OffsetRange(start=start, end=divergence.target_offset)
        if _was_begun(context, ledger, back, present.end) or not await _has_unread(
            context, ledger, flow, back, unread
        ):
            return None
    # Behind `parts_at` of the old primary the two histories are not the same any more.
    is_whole = flow.position == divergence.position
    parts_at = old.end if is_whole else divergence.source_offset
    position, source_offset = own.position, own.source_next_offset
    if own.position and parts_at < own.target_next_offset:
        position = min(position, max(own.runs.position_of_target(parts_at), own.runs.exact_from))
    if position < own.position:
        source_offset = own.runs.source_offset_at(position)
    kept = None
    if not is_whole:
        # No record of the present primary that lies behind this one had come to the old one before
        # the one that is lost: it was written when that had been copied.
        source_offset = min(source_offset, divergence.target_offset)
        kept = OffsetRange(start=divergence.target_offset, end=present.end)
    return OwnPlace(
        position=position,
        source_offset=source_offset,
        runs=_runs(own, anchor_of(back.record).position, position),
        kept=kept,
    )


def _bounds(divergence: PartitionDivergence) -> tuple[OffsetRange, OffsetRange] | None:
    """Of the old primary's log and of the present one's; None where there is no common history."""
    old = divergence.source_start, divergence.source_end
    present = divergence.target_start, divergence.target_end
    if divergence.position is None or None in (*old, *present):
        return None
    return (
        OffsetRange(start=old[0] or 0, end=old[1] or 0),
        OffsetRange(start=present[0] or 0, end=present[1] or 0),
    )


def has_shared_map(there: LaneLocation, back: LaneLocation) -> bool:
    """Whether the two lanes have one history, each told from its side: see the module."""
    ours, theirs = there.record.runs, back.record.runs
    if not ours or not theirs:
        return False
    head = there.record.head
    # Of a run that goes on by itself no record need be there.
    end = min(back.position, max(there.position, 0 if head is None else head.position))
    first = theirs.exact_from
    asked = max(first, ours.exact_from)
    if asked < end:
        known = ours.run_at(asked).at(asked)
    else:
        anchors = [run for run in _anchors(ours) if first <= run.position < end]
        if not anchors:
            return False
        known = anchors[-1]
    return exchanged(known) == theirs.run_at(known.position).at(known.position)


def _anchors(runs: Runs) -> Iterator[Run]:
    """Of what the ledger has forgotten otherwise."""
    columns = runs.anchors
    if columns is not None:
        yield from (columns.run(index) for index in range(len(columns.positions)))


def _is_of_other_topics(context: FailbackContext, ledger: OpenLedger, back: LaneLocation) -> bool:
    """Whether the way back stood in another topic than one of the two that are there now."""
    start, name = back.record.starts[-1], back.lane.source.topic
    present, old = context.pair.target.topic(name), ledger.target.topic(name)
    pairs = ((start.source_topic_id, present), (start.target_topic_id, old))
    return any(topic is not None and is_other_topic(known, topic.id) for known, topic in pairs)


def _was_begun(
    context: FailbackContext, ledger: OpenLedger, back: LaneLocation, present_end: int
) -> bool:
    """Whether this failback has begun the lane before, and was cut off: its start may be all that
    is there. What is kept is written before it, and all of a log only for such a lane."""
    topic = context.pair.target.topic(back.lane.source.topic)
    if topic is None:
        return False
    kept = kept_of(ledger.store.view, back.lane.source, topic.id)
    return kept == OffsetRange(start=0, end=present_end)


async def _has_unread(
    context: FailbackContext,
    ledger: OpenLedger,
    flow: Settled,
    back: LaneLocation,
    offsets: OffsetRange,
) -> bool:
    """Whether the way back has yet to bring a record of the present primary's own from there.

    Not every offset that the flow did not write is one: transactions that were aborted, markers.
    """
    pair, at = context.pair, back.lane.source
    start = next(others_between(flow.runs, offsets.start, offsets.end), None)
    if start is None:
        return False
    settings, left = pair.config.source_of(context.back), OffsetRange(start=start, end=offsets.end)
    source = open_cluster(settings, "consumer")
    try:
        await source.refresh([at.topic])
        reading = await with_mirrors(
            ClusterPair(config=pair.config, flow=context.back_flow, source=source, ledger=ledger)
        )
        brought = await brought_to(reading, at, left)
    finally:
        source.close()
    committed = context.back_flow.read_committed

    def has_own() -> bool:
        found = records_of(settings, at, left, brought, read_committed=committed)
        return any(not _is_mapped(flow, record.offset) for record in found)

    return await asyncio.to_thread(has_own)


def _is_mapped(flow: Settled, target_offset: int) -> bool:
    position = flow.runs.position_of_target(target_offset)
    at = flow.runs.target_offset_at(position) if flow.runs.explains(position) else -1
    return at == target_offset and position < flow.position


def _runs(own: Settled, start: int, end: int) -> tuple[Run, ...]:
    if not own.runs or max(start, own.runs.exact_from) >= end:
        return ()
    since = own.runs.since(max(start, own.runs.exact_from))
    return tuple(takewhile(lambda run: run.position < end, since))
