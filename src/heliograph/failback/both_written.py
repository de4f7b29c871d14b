"""Lanes of the way back that had begun by themselves: both sides were written. Driver only.

Where only one side is written at a time, the map of the flow that was failed over says all, and the
way back begins where the histories part. Where the present primary had records of its own, these
lie among the others, and the way back had brought some of them: it goes on where it stood, by its
own map, or it would skip what it had not brought yet and repeat what it had.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from heliograph.failback.context import FailbackContext
from heliograph.failback.divergence import PartitionDivergence
from heliograph.failback.lane import ClusterPair, Settled, settled_lane
from heliograph.ledger.access import OpenLedger
from heliograph.ledger.both_ways import others_between
from heliograph.ledger.locate import anchor_of
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.runs import Run
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
    old, present = bounds
    flow = await settled_lane(pair, there, (present.start, present.end))
    reverse = ClusterPair(
        config=pair.config, flow=context.back_flow, source=pair.target, ledger=ledger
    )
    own = await settled_lane(reverse, back, (old.start, old.end))
    if not _has_own(flow, own, present.start, divergence.target_offset):
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


def _has_own(flow: Settled, own: Settled, log_start: int, parted_at: int) -> bool:
    """Whether the present primary had records of its own that the way back saw, or has yet to."""
    runs, first = own.runs, own.source_next_offset
    if own.position > (runs.exact_from if runs else 0):
        first = runs.source_offset_at(runs.exact_from)
        if own.position > runs.position_of_source(parted_at):
            return True
    return next(others_between(flow.runs, max(first, log_start), parted_at), None) is not None


def _runs(own: Settled, start: int, end: int) -> tuple[Run, ...]:
    if not own.runs or max(start, own.runs.exact_from) >= end:
        return ()
    since = own.runs.since(max(start, own.runs.exact_from))
    return tuple(takewhile(lambda run: run.position < end, since))
