"""A lane that waits for a new start begins where the driver decided. Runs on executors."""

from __future__ import annotations

import logging

from heliograph.copy.flow import Flow
from heliograph.copy.found import Resumable
from heliograph.ledger.locate import LogState
from heliograph.ledger.new_starts import decided_start, start_entries
from heliograph.ledger.store import WRITE_S_MAX
from heliograph.ledger.view import LaneRecord

log = logging.getLogger(__name__)


async def begun_anew(
    flow: Flow,
    lane: Resumable,
    record: LaneRecord,
    position: int,
    state: LogState,
) -> bool:
    """Whether a start that was decided for this place is in the ledger now and was not before.

    Written by whoever has seen the lane there, in a log that was read before the ledger: a batch
    of what came next before, of a slot that was given up, has moved the lane elsewhere by then and
    the decision is none. Two slots may write one; the first counts for both.
    """
    decided = decided_start(flow.ledger.view, lane.spec, record, position)
    if decided is None:
        return False
    log.warning("%s: begins anew at source offset %d", lane.spec.id, decided.source_offset)
    entries = start_entries(flow.ledger.view, lane.spec, record, decided, state.end)
    await flow.ledger.write_or_refuse(entries, WRITE_S_MAX)
    await flow.ledger.catch_up()
    return True
