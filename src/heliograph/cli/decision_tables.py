"""Decisions as tables and as JSON. Driver only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator
from rich.console import RenderableType

from heliograph.cli.document import At, Document, OrNull, Text
from heliograph.cli.tables import ago, new_table
from heliograph.decisions.decide import Change
from heliograph.decisions.decision import Decision
from heliograph.decisions.words import argument_words, order_words
from heliograph.ledger.trail import Change as Trailed


class _Ended(Document):
    who: str
    at_ms: int


class DecisionDocument(Document):
    id: str
    verb: str
    topics: tuple[str, ...] = At("scope.topics")
    patterns: tuple[str, ...] = At("scope.patterns")
    partitions: tuple[int, ...] = At("scope.partitions")
    bytes_per_s: int | None
    slots: tuple[int, ...]
    offset: int | None
    who: str
    at_ms: int
    why: OrNull
    until_ms: int | None
    withdrawn: _Ended | None
    done_ms: int | None


OrderWords = Annotated[str, BeforeValidator(order_words)]


class _Change(Document):
    topic: str
    partition: int | None
    before: OrderWords
    after: OrderWords


class _Holder(Document):
    host: str
    pid: int


class DecidedDocument(Document):
    flow: Text
    written: bool
    decision: DecisionDocument | None
    changes: tuple[_Change, ...]
    remarks: tuple[str, ...]
    carried_by: _Holder | None = At("holder")


def change_table(changes: Sequence[Change]) -> RenderableType:
    table = new_table([("topic", "left"), ("before", "left"), ("after", "left")])
    for each in changes:
        name = each.topic if each.partition is None else f"{each.topic}-{each.partition}"
        table.add_row(name, order_words(each.before), order_words(each.after))
    return table


def decision_table(rows: Sequence[tuple[str, Decision, str]]) -> RenderableType:
    """Flow, decision, and what became of it."""
    columns = ("flow", "id", "decision", "of", "who", "when", "until", "state", "why")
    table = new_table([(name, "left") for name in columns])
    for flow, each, state in rows:
        until = "" if each.until_ms is None else time_words(each.until_ms)
        what = f"{each.verb} {argument_words(each)}".strip()
        table.add_row(
            flow,
            each.id,
            what,
            str(each.scope),
            each.who,
            ago(each.at_ms),
            until,
            state,
            each.why,
        )
    return table


def change_history_table(rows: Sequence[tuple[str, Trailed]]) -> RenderableType:
    """Flow, and what somebody did there."""
    columns = ("flow", "id", "change", "of", "who", "when", "outcome")
    table = new_table([(name, "left") for name in columns])
    for flow, each in rows:
        table.add_row(
            flow, each.id, each.verb, each.what, each.who, time_words(each.at_ms), each.outcome
        )
    return table


def time_words(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
