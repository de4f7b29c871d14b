"""The history of changes: who, when, what, what became of it; bounded, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from heliograph.errors import BrokerUnreachable, RecoveryRefused
from heliograph.ledger import trail
from heliograph.ledger.entries import Entry, MemoEntry, Tombstone
from heliograph.ledger.trail import Change, change_entries, changes_of, on_trail
from heliograph.ledger.view import LedgerView


class Store:
    """A ledger in memory; `trouble` is raised by every write while it is set."""

    def __init__(self) -> None:
        self.view, self.trouble = LedgerView(), None

    trouble: BrokerUnreachable | None

    async def catch_up(self) -> None: ...

    async def write_or_refuse(self, entries: Sequence[Entry | Tombstone]) -> None:
        if self.trouble is not None:
            raise self.trouble
        for entry in entries:
            if isinstance(entry, Tombstone):
                self.view.remove(entry.key)
            else:
                self.view.apply(entry)


def failover(**more: object) -> Change:
    return replace(Change(who="ann@vm", verb="failover", what="topics orders"), **more)  # type: ignore[arg-type]


async def answer(found: int | Exception) -> int:
    if isinstance(found, Exception):
        raise found
    return found


def test_a_change_that_is_done_says_so_and_its_result_is_the_works() -> None:
    store, seen = Store(), list[str]()

    async def work() -> int:
        seen.extend(each.outcome for each in changes_of(store.view))
        return 7

    result = asyncio.run(on_trail(store, failover(), work()))

    (change,) = changes_of(store.view)
    assert (result, seen) == (7, ["begun"]), "one that is killed stays `begun`"
    assert (change.who, change.verb, change.what) == ("ann@vm", "failover", "topics orders")
    assert change.outcome == "done"
    assert change.ended_ms is not None


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (RecoveryRefused("groups are in use"), "refused: groups are in use"),
        (BrokerUnreachable("no answer"), "failed: no answer"),
        (ValueError("a bug"), "failed: a bug"),
    ],
)
def test_what_kept_a_change_from_being_made_is_its_outcome(error: Exception, outcome: str) -> None:
    store = Store()

    with pytest.raises(type(error)):
        asyncio.run(on_trail(store, failover(), answer(error)))

    assert [each.outcome for each in changes_of(store.view)] == [outcome]


def test_a_ledger_that_takes_no_note_keeps_nobody_from_failing_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = Store()
    store.trouble = BrokerUnreachable("cluster B: no answer")

    result = asyncio.run(on_trail(store, failover(), answer(7)))

    assert result == 7
    assert "failover by ann@vm is not in the ledger's history" in caplog.text


def test_the_oldest_changes_are_forgotten_beyond_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trail, "KEPT_MAX", 3)
    store = Store()

    for number in range(5):
        change = failover(id=f"{number:010}", at_ms=number)
        asyncio.run(store.write_or_refuse(change_entries(store.view, change)))
        asyncio.run(store.write_or_refuse(change_entries(store.view, change.ended("done"))))

    assert [each.at_ms for each in changes_of(store.view)] == [2, 3, 4]
    assert {each.outcome for each in changes_of(store.view)} == {"done"}


def test_a_change_that_cannot_be_read_is_shown_as_such() -> None:
    store = Store()
    asyncio.run(store.write_or_refuse([MemoEntry(subject="change/1", text='{"at_ms": "soon"}')]))

    (found,) = changes_of(store.view)

    assert (found.id, found.verb) == ("1", "unknown")
    assert "cannot decode" in found.what
