"""Decisions as an operator sees them: what changes, and what was decided."""

from __future__ import annotations

from rich.console import Console

from heliograph.cli.decision_tables import change_table, decision_table
from heliograph.decisions.decide import Change
from heliograph.decisions.decision import Decision, Verb, Withdrawal, scope_of
from heliograph.decisions.orders import FREE, orders_of
from heliograph.decisions.words import states_of
from heliograph.model import TopicName, TopicPartition

ORDERS = TopicName("orders")


def text_of(table: object) -> str:
    console = Console(width=200, no_color=True)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def made(id_: str, verb: Verb, **more: object) -> Decision:
    fields = {"who": "ann", "at_ms": 1, "why": "narrow line", **more}
    return Decision(id=id_, verb=verb, scope=scope_of(("orders",)), **fields)  # type: ignore[arg-type]


def test_a_change_is_told_as_before_and_after() -> None:
    limit = made("0000000001", Verb.THROTTLE, bytes_per_s=2_000_000)
    after = orders_of([limit], 5).lane(TopicPartition(topic=ORDERS, partition=3))

    shown = text_of(change_table([Change(topic=ORDERS, partition=3, before=FREE, after=after)]))

    assert "orders-3" in shown
    assert "copying, at most 2 MB/s" in shown


def test_every_decision_says_what_became_of_it() -> None:
    decisions = [
        made("0000000001", Verb.PAUSE),
        made("0000000002", Verb.RESUME),
        made("0000000003", Verb.PIN, slots=(1,), withdrawn=Withdrawal(who="ben", at_ms=2)),
        made("0000000004", Verb.THROTTLE, bytes_per_s=5, until_ms=4),
        made("0000000005", Verb.REWIND, offset=7, done_ms=3),
    ]

    states = states_of(decisions, 5)
    shown = text_of(decision_table([("A->B", each, state) for each, state in states]))

    assert [state for _, state in states] == [
        "replaced by 0000000002",
        "holds",
        "withdrawn by ben",
        "ended",
        "done",
    ]
    for words in ("pin slot 1", "throttle 5 B/s", "rewind to 7", "narrow line", "withdrawn by ben"):
        assert words in shown
