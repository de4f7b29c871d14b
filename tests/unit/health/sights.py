"""Flows as somebody sees them, made up."""

from __future__ import annotations

from typing import Any, Final

from heliograph.config.health import AlarmsConfig, CanaryConfig
from heliograph.config.schema import FlowConfig
from heliograph.health.sight import AuditSight, FlowSight, GroupsSight, LaneSight, LedgerFacts
from heliograph.ledger.canary_note import CanaryNote
from heliograph.ledger.drill_note import LastDrill
from heliograph.model import ClusterAlias, FlowId, TopicName

NOW_MS: Final = 1_800_000_000_000
AB: Final = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
FLOW: Final = FlowConfig(id=AB, enabled=True)
WITH_CANARY: Final = FLOW.model_copy(update={"canary": CanaryConfig(enabled=True)})
PROVEN: Final = LedgerFacts(
    drill=LastDrill(at_ms=NOW_MS - 1_000, verdict="pass", reasons=()),
    audit=AuditSight(at_ms=NOW_MS - 1_000, differs=0),
)


def lane(topic: str = "orders", partition: int = 0, **more: Any) -> LaneSight:
    """Idle, with nothing to copy, unless told otherwise."""
    made: dict[str, Any] = {"state": "idle", "lag_records": 0, "lag_s": 0.0, "grew": False}
    return LaneSight(topic=TopicName(topic), partition=partition, **{**made, **more})


def sight(*lanes: LaneSight, **more: Any) -> FlowSight:
    """Of a flow that may be cut over, unless told otherwise."""
    made: dict[str, Any] = {"facts": PROVEN, "groups": GroupsSight(), "at_ms": NOW_MS}
    return FlowSight(flow=AB, lanes=lanes or (lane(),), **{**made, **more})


def with_alarms(**more: Any) -> FlowConfig:
    return FLOW.model_copy(update={"alarms": AlarmsConfig(**more)})


def canary(**more: Any) -> LedgerFacts:
    """A flow whose last canary was sent a second ago and has arrived."""
    made: dict[str, Any] = {
        "at_ms": NOW_MS,
        "interval_s": 60,
        "sequence": 7,
        "sent_ms": NOW_MS - 1_000,
    }
    return LedgerFacts(
        drill=PROVEN.drill, audit=PROVEN.audit, canary=CanaryNote(**{**made, **more})
    )
