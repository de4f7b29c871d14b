"""Merge and forget the runs of carried lanes in the ledger, beside the copying. Runs on executors.

A chunk's runs are one small entry, written before its batches may leave. Here these entries are put
together, once there are many and what they say is settled, and the oldest are forgotten: see
`ledger.segments`. Each write is signed by an author of its own: another slot may remove what it has
read under a key, late, and must not find anything newer there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from heliograph.broker.cluster import EARLIEST
from heliograph.copy.flow import Flow
from heliograph.copy.lane import CarriedLane
from heliograph.errors import InvariantError, MirrorError
from heliograph.ledger import segments
from heliograph.ledger.entries import new_author
from heliograph.ledger.lane_fold import LaneFold
from heliograph.ledger.runs import Run
from heliograph.probe import RUNS_MERGED, RUNS_TO_MERGE, probe


def is_merge_due(lane: CarriedLane) -> bool:
    return lane.running is not None and lane.unmerged_entries >= segments.MERGE_ENTRIES_MIN


async def merge_runs(flow: Flow, lanes: Iterable[CarriedLane]) -> None:
    """One turn for each lane; what the ledger does not let happen is tried with the next head."""
    try:
        await flow.ledger.catch_up()
        for lane in lanes:
            source = lane.spec.id.source
            fold = flow.ledger.view.fold(source.topic, source.partition)
            if fold is None or fold.head is None:
                continue
            entries = segments.merged(
                fold,
                fold.head.position,
                author=new_author(),
                least=segments.MERGE_ENTRIES_MIN,
            )
            if entries:
                probe(RUNS_TO_MERGE)
                await flow.ledger.write_or_refuse(entries)
                probe(RUNS_MERGED)
                await flow.ledger.catch_up()
                fold = flow.ledger.view.fold(source.topic, source.partition)
                if fold is not None:
                    await _forget(flow, lane, fold)
            lane.unmerged_entries = 0 if fold is None else segments.unmerged_count(fold)
            # Thousands of runs are packed in one go; the lanes' answers wait meanwhile.
            await asyncio.sleep(0)
    except InvariantError:
        raise
    except MirrorError:
        # `ledger.problem` has it where lanes must wait; a longer ledger alone stops nothing.
        return


async def _forget(flow: Flow, lane: CarriedLane, fold: LaneFold) -> None:
    """Forget runs beyond what the ledger keeps, and those that neither log has records of."""
    if segments.forgettable_count(fold) < segments.FORGET_SEGMENTS_MIN:
        return
    target, seen = lane.spec.target, lane.source_seen
    first = (await flow.target.list_offsets([target], EARLIEST))[target]
    log_starts = None
    if isinstance(first, int) and seen.end_offset >= 0:
        log_starts = Run(position=0, source_offset=seen.start_offset, target_offset=first)
    entries = segments.forgotten(
        fold,
        runs_max=flow.limits.ledger_runs_max,
        log_starts=log_starts,
        author=new_author(),
        least=segments.FORGET_SEGMENTS_MIN,
    )
    if entries:
        await flow.ledger.write_or_refuse(entries)
