"""Decisions in words, the same wherever a lane is shown. No I/O; runs anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from heliograph.decisions.decision import Decision, Verb
from heliograph.decisions.orders import LaneOrders, replaced_by, standing_of
from heliograph.words import rate_words


def argument_words(decision: Decision) -> str:
    """What the verb is given: a rate, slots, an offset."""
    match decision.verb:
        case Verb.THROTTLE | Verb.THROTTLE_SOURCE | Verb.THROTTLE_TARGET:
            return "none" if decision.bytes_per_s is None else rate_words(decision.bytes_per_s)
        case Verb.PIN | Verb.MOVE | Verb.DRAIN:
            return f"slot {', '.join(map(str, decision.slots))}" if decision.slots else "none"
        case Verb.REWIND:
            return "to earliest" if decision.offset is None else f"to {decision.offset}"
        case _:
            return ""


def order_words(orders: LaneOrders) -> str:
    """What a lane should be, in a few words."""
    if orders.stopped is not None:
        return "stopped"
    if orders.excluded is not None:
        return "excluded"
    if orders.rewound is not None:
        return f"goes on {argument_words(orders.rewound)}"
    parts = ["paused" if orders.paused is not None else "copying"]
    parts += [_throttle_words(each) for each in orders.limits]
    if orders.placed is not None:
        how = "pinned to" if orders.placed.verb is Verb.PIN else "in"
        parts.append(f"{how} {argument_words(orders.placed)}")
    return ", ".join(parts)


def _throttle_words(decision: Decision) -> str:
    """What it is about a cluster holds for all flows that read from it, or write to it."""
    whose = {Verb.THROTTLE_SOURCE: " from the source", Verb.THROTTLE_TARGET: " to the target"}
    return f"at most {argument_words(decision)}{whose.get(decision.verb, '')}"


def decision_words(decision: Decision) -> str:
    """`paused by ann: B is upgraded, until 2026-01-31T04:03:00+00:00`."""
    given = argument_words(decision)
    past = {
        Verb.THROTTLE: f"at most {given}, decided",
        Verb.THROTTLE_SOURCE: f"at most {given} from the source by all flows, decided",
        Verb.THROTTLE_TARGET: f"at most {given} to the target by all flows, decided",
        Verb.PIN: f"pinned to {given}",
        Verb.MOVE: f"moved to {given}",
        Verb.DRAIN: f"{given} drained",
        Verb.STOP: "stopped",
        Verb.START: "started",
        Verb.REWIND: f"sent {given}",
    }.get(decision.verb, f"{decision.verb}d")
    why = f": {decision.why}" if decision.why else ""
    until = ""
    if decision.until_ms is not None:
        at = datetime.fromtimestamp(decision.until_ms / 1000, UTC).isoformat(timespec="seconds")
        until = f", until {at}"
    return f"{past} by {decision.who}{why}{until}"


HOLDS: Final = "holds"


def states_of(made: Sequence[Decision], now_ms: int) -> list[tuple[Decision, str]]:
    """Each decision with what became of it."""
    replaced = replaced_by(made)
    standing = {each.id for each in standing_of(made, now_ms)}

    def state(each: Decision) -> str:
        if each.id in standing:
            return HOLDS
        if each.withdrawn is not None:
            return f"withdrawn by {each.withdrawn.who}"
        if each.done_ms is not None:
            return "done"
        if each.id in replaced:
            return f"replaced by {replaced[each.id].id}"
        return "ended"

    return [(each, state(each)) for each in made]
