"""What the file says of the same things: weaker than any decision. No I/O; runs anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from heliograph.config.schema import FlowConfig
from heliograph.decisions.decision import Decision, Scope, Verb
from heliograph.decisions.orders import FlowOrders, orders_of

THE_FILE: Final = "the file"


def file_decisions(flow: FlowConfig) -> tuple[Decision, ...]:
    """As if they had been made before all others."""
    load, found = flow.load, list[Decision]()
    for id_, verb, rate in (
        ("file-source", Verb.THROTTLE_SOURCE, flow.limits.source_bytes_per_s),
        ("file-target", Verb.THROTTLE_TARGET, flow.limits.target_bytes_per_s),
    ):
        if rate is not None:
            found.append(_made(id_, verb, bytes_per_s=rate))
    if load.throttle_bytes_per_s is not None:
        found.append(_made("file-throttle", Verb.THROTTLE, bytes_per_s=load.throttle_bytes_per_s))
    if load.throttle_topics and load.throttle_topics_bytes_per_s is not None:
        scope = Scope(patterns=load.throttle_topics)
        rate = load.throttle_topics_bytes_per_s
        found.append(_made("file-topics", Verb.THROTTLE, scope=scope, bytes_per_s=rate))
    if load.critical_topics:
        scope = Scope(patterns=load.critical_topics)
        found.append(_made("file-critical", Verb.PIN, scope=scope, slots=load.critical_slots))
    return tuple(found)


def orders_for(flow: FlowConfig, decisions: Sequence[Decision], now_ms: int) -> FlowOrders:
    """Of the file and of decisions in the order of the ledger."""
    return orders_of((*file_decisions(flow), *decisions), now_ms)


def _made(
    id_: str,
    verb: Verb,
    *,
    scope: Scope | None = None,
    bytes_per_s: int | None = None,
    slots: tuple[int, ...] = (),
) -> Decision:
    return Decision(
        id=id_,
        verb=verb,
        scope=scope or Scope(),
        who=THE_FILE,
        at_ms=0,
        bytes_per_s=bytes_per_s,
        slots=slots,
    )
