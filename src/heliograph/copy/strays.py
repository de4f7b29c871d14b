"""Lanes that are new to the ledger, though their target has what they wrote. Runs on executors.

A start is durable before the first batch, so a ledger that has none was not read whole, or is not
the one there was. To begin the lane again would copy all of it behind what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from heliograph.broker.log import read_batches
from heliograph.broker.seed import is_filler
from heliograph.clock import monotonic_s
from heliograph.copy.flow import Flow
from heliograph.copy.found import Blocked, Found, L, Resumable
from heliograph.copy.phases import RETRY_S
from heliograph.errors import CorruptBatch, LeaderMoved, MirrorError
from heliograph.ledger.locate import LogState
from heliograph.ledger.mark import mark_of
from heliograph.model import StallReason, TopicPartition

UNKNOWN_S_MAX: Final = 5.0
"""How long a ledger may not know of a lane: it may only have to be read once more."""


async def find_strays(flow: Flow, newborn: Mapping[L, LogState]) -> dict[L, Found]:
    """Those of `newborn` that must not begin, each with what is to be reported."""
    found: dict[L, Found] = {}
    occupied: dict[TopicPartition, tuple[L, LogState]] = {}
    for lane, state in newborn.items():
        if state.last_sequence >= 0 and not is_filler(state.last_sequence):
            found[lane] = _unknown_to_ledger(flow, lane)
        elif state.end > state.start and state.last_sequence < 0:
            occupied[lane.spec.target] = lane, state
    if not occupied:
        return found
    remembered = await flow.target.has_producer_of_epoch(occupied, mark_of(flow.id))

    async def look(target: TopicPartition) -> None:
        lane, state = occupied[target]
        is_ours: bool | MirrorError = remembered[target]
        if is_ours is False:
            # The leader forgets a producer after a day; the log has what was written last.
            async with flow.long_reads:
                is_ours = await _ends_with_ours(flow, target, state.end)
        if isinstance(is_ours, MirrorError):
            found[lane] = is_ours
        elif is_ours:
            found[lane] = _unknown_to_ledger(flow, lane)

    await asyncio.gather(*map(look, occupied))
    return found


async def _ends_with_ours(flow: Flow, target: TopicPartition, end: int) -> bool | MirrorError:
    try:
        async for header, _ in read_batches(flow.target, target, end - 1, end):
            is_plain = not header.is_transactional
            return is_plain and header.producer_epoch == mark_of(flow.id)
    except CorruptBatch:
        return False  # compacted away, or not to be read: nothing says that it is ours
    except MirrorError as exc:
        return exc
    return False


def _unknown_to_ledger(flow: Flow, lane: Resumable) -> Found:
    target = lane.spec.target
    what = f"{target}: has records of this flow, but the ledger does not know the lane"
    since_s = flow.behind_since_s.setdefault(target, monotonic_s())
    if monotonic_s() - since_s < UNKNOWN_S_MAX:
        return LeaderMoved(what)
    detail = f"{what}: restore the ledger's topic, or delete {target.topic} to begin it again"
    return Blocked(reason=StallReason.LEDGER_UNUSABLE, detail=detail, retry_s=RETRY_S)
