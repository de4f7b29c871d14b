"""Lanes that an operator sends to another source offset while the mirror runs. Driver only.

A lane that is to be rewound leaves its slot first, settled. Only then its new start is written, in
one go with the note that the rewind is done: whatever dies in between, the next driver finds either
both or does it again, and no record was copied meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.decisions.decision import Decision
from heliograph.decisions.record import done_entry
from heliograph.errors import MirrorError
from heliograph.inspect.reset import TO_EARLIEST, plan_resets
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.locations import all_topics
from heliograph.model import FlowId, LaneId, TopicPartition

log = logging.getLogger("heliograph")


async def carry_out_rewinds(
    config: MirrorConfig,
    ledgers: LedgerAccess,
    flow: FlowId,
    rewinds: Sequence[Decision],
    carried: Collection[LaneId],
) -> None:
    """Those whose lanes no slot carries any more; raises `MirrorError` where it is to be tried
    again."""
    for rewind in rewinds:
        if not any(lane.flow == flow and rewind.scope.has(lane.source) for lane in carried):
            await _carry_out(config, ledgers, flow, rewind)


async def _carry_out(
    config: MirrorConfig, ledgers: LedgerAccess, flow: FlowId, rewind: Decision
) -> None:
    done = done_entry(rewind.id, now_ms())
    wanted = all_topics(rewind.scope.topics)

    def to(lane: TopicPartition) -> str | int | None:
        if not rewind.scope.has_partition(lane.partition):
            return None
        return TO_EARLIEST if rewind.offset is None else rewind.offset

    try:
        planned = await plan_resets(config, flow, wanted, to)
    except MirrorError as exc:
        if exc.retriable:
            raise
        # It cannot become possible by waiting, and the lanes would wait with it.
        log.error("%s: %s is not rewound: %s", flow, rewind.scope, exc)
        await ledgers.note(flow, [done])
        return
    await ledgers.note(flow, [*planned.entries, done])
    for reset in planned.resets:
        log.warning("%s: goes on at source offset %d", reset.lane, reset.offset)
