"""A flow judged by what its own driver sees, for the API, the page and metrics alike. Driver only.

No I/O: lanes are as slots told last, the ledger as it was read last. Consumer groups are not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.config.schema import FlowConfig
from heliograph.decisions.decision import Decision
from heliograph.health.sight import FlowSight, LedgerFacts, lane_of_progress, own_topics
from heliograph.health.verdict import FlowVerdict, verdict
from heliograph.lag.figures import LaneLag
from heliograph.ledger.leadership import Leadership, Leading, Standby
from heliograph.model import LaneId, LaneProgress


def judged(
    flow: FlowConfig,
    leadership: Leadership,
    stopped: Decision | None,
    lanes: Sequence[LaneProgress],
    lags: Mapping[LaneId, LaneLag],
    facts: LedgerFacts,
    at_ms: int,
) -> FlowVerdict | None:
    """None of a flow that another driver leads: that one sees its lanes."""
    if isinstance(leadership, Standby):
        return None
    own = own_topics(flow, {at.lane.source.topic for at in lanes})
    idle = "" if isinstance(leadership, Leading) else leadership.why
    sight = FlowSight(
        flow=flow.id,
        at_ms=at_ms,
        lanes=tuple(lane_of_progress(at, own, at_ms, lags.get(at.lane)) for at in lanes),
        idle_because=idle or ("" if stopped is None else f"stopped by {stopped.who}"),
        facts=facts,
    )
    return verdict(sight, flow)
