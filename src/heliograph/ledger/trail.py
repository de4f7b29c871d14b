"""Every change that somebody makes: who, when, what, and what became of it. Runs on the driver.

    memo|change/<id>    one change, in the ledger of the flow; written again when it has ended

Decisions are notes of their own and carry the same; `decisions.history` has both. The trail never
stands in the way of what it records: a failover does not wait for its note.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Protocol, TypeVar

from pydantic import Field

from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.errors import MirrorError, RecoveryRefused, WireError
from heliograph.ledger.access import open_ledger, within
from heliograph.ledger.entries import Entry, MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId

log = logging.getLogger("heliograph.trail")

T = TypeVar("T")

KEPT_MAX: Final = 500
"""Changes of a flow that are kept; the oldest are forgotten."""
BEGUN: Final = "begun"
DONE: Final = "done"
_PREFIX: Final = "change/"
_ID_BYTES: Final = 5
_TEXT_MAX: Final = 1_000
_NOTE_S_MAX: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    id: str = field(default_factory=lambda: secrets.token_hex(_ID_BYTES))
    at_ms: Annotated[int, Field(ge=0)] = field(default_factory=now_ms)
    who: str
    verb: str
    what: str
    """What it is about, for the eye: topics, a mode, a connector."""
    outcome: str = BEGUN
    """`begun` until it has ended; one that was killed stays so."""
    ended_ms: int | None = None

    def ended(self, outcome: str) -> Change:
        return replace(self, outcome=outcome[:_TEXT_MAX], ended_ms=now_ms())


class Noting(Protocol):
    """As much of a `ledger.store:LedgerStore` as a trail needs."""

    @property
    def view(self) -> LedgerView: ...
    async def catch_up(self) -> object: ...
    async def write_or_refuse(self, entries: Sequence[Entry | Tombstone]) -> None: ...


_CHANGES: Final[Memo[Change]] = Memo(Change)


async def on_trail(store: Noting, change: Change, work: Awaitable[T]) -> T:
    """Do the work of a change; the ledger says that it began, and how it ended."""
    await noted_in(store, change)
    try:
        result = await work
    except Exception as exc:
        word = "refused" if isinstance(exc, RecoveryRefused) else "failed"
        await noted_in(store, change.ended(f"{word}: {exc}"))
        raise
    await noted_in(store, change.ended(DONE))
    return result


async def recorded(config: MirrorConfig, flow: FlowId, change: Change, work: Awaitable[T]) -> T:
    """As `on_trail`, for whoever has no ledger of the flow open."""
    async with open_ledger(config, flow) as ledger:
        return await on_trail(ledger.store, change, work)


async def noted(config: MirrorConfig, flow: FlowId, change: Change) -> bool:
    """As `noted_in`, for whoever has no ledger of the flow open."""
    async with open_ledger(config, flow) as ledger:
        return await noted_in(ledger.store, change)


async def noted_in(store: Noting, change: Change) -> bool:
    """Whether the change is in the ledger now; where it is not, the log says why."""
    try:
        await within(_write(store, change), _NOTE_S_MAX, "the ledger")
    except MirrorError as exc:
        log.warning("%s by %s is not in the ledger's history: %s", change.verb, change.who, exc)
        return False
    return True


async def _write(store: Noting, change: Change) -> None:
    await store.catch_up()
    await store.write_or_refuse(change_entries(store.view, change))


def change_entries(view: LedgerView, change: Change) -> list[MemoEntry | Tombstone]:
    """The change, and the end of the oldest ones where there are too many."""
    others = [each for each in changes_of(view) if each.id != change.id]
    gone = others[: max(0, len(others) + 1 - KEPT_MAX)]
    short = replace(change, what=change.what[:_TEXT_MAX], who=change.who[:_TEXT_MAX])
    return [
        _CHANGES.entry(_PREFIX + change.id, short),
        *(forget_memo(_PREFIX + each.id) for each in gone),
    ]


def changes_of(view: LedgerView) -> tuple[Change, ...]:
    """The oldest first, by the clocks of those who made them."""
    found: list[Change] = []
    for subject, text in view.memos.items():
        if subject.startswith(_PREFIX):
            id_ = subject.removeprefix(_PREFIX)
            try:
                found.append(replace(_CHANGES.decode(subject, text), id=id_))
            except WireError as exc:
                # Another version wrote it, or another program: that there is one is shown.
                found.append(Change(id=id_, at_ms=0, who="", verb="unknown", what=str(exc)))
    return tuple(sorted(found, key=lambda each: (each.at_ms, each.id)))
