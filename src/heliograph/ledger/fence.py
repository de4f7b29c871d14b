"""The fence of what was failed over: no driver mirrors it until an operator lifts the fence.

After a failover clients write to the target. A mirror that went on by itself when the source comes
back would put old records behind theirs, so the fence is in the ledger, where every driver looks
before it carries the flow, and every slot before a lane goes on. Runs anywhere.

    memo|fence            of the whole flow
    memo|fence/<topic>    of one topic: the others go on. A note of its own for each, so that two
                          failovers at once never take each other's fence away
    memo|fence-kept       which of them the driver that leads keeps to: none of its slots has a
                          lane of these topics any more
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName

_SUBJECT: Final = "fence"
_OF_TOPICS: Final = f"{_SUBJECT}/"
_KEPT: Final = "fence-kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    at_ms: int
    why: str
    """Why nothing is mirrored, as a sentence for the operator."""
    planned: Literal[True] | None = None
    """Set where the source was drained before: what a slot fetched may still be appended."""
    id: Annotated[str, Field(exclude_if=lambda id_: not id_)] = ""
    """Of a topic's: tells it from one that was there before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFences:
    """Written by the driver that leads, once its slots have let go."""

    author: str
    """Whose lease it is; what another driver wrote says nothing."""
    at_ms: int
    ids: tuple[str, ...] = field(default=())


_MEMO: Final[Memo[Fence]] = Memo(Fence, writes_null=False)
_KEPT_MEMO: Final[Memo[KeptFences]] = Memo(KeptFences)


def fence_of(view: LedgerView) -> Fence | None:
    """Of the whole flow."""
    return _read(view, _SUBJECT)


def topic_fences(view: LedgerView) -> Mapping[TopicName, Fence]:
    """Of single topics, by their name on the source."""
    return {
        TopicName(subject.removeprefix(_OF_TOPICS)): fence
        for subject in view.memos
        if subject.startswith(_OF_TOPICS) and (fence := _read(view, subject)) is not None
    }


def fence_entry(fence: Fence) -> MemoEntry:
    return _MEMO.entry(_SUBJECT, fence)


def unfence_entry() -> Tombstone:
    return forget_memo(_SUBJECT)


def topic_fence_entry(topic: TopicName, fence: Fence) -> MemoEntry:
    return _MEMO.entry(f"{_OF_TOPICS}{topic}", fence)


def topic_unfence_entries(topics: Collection[TopicName]) -> list[Tombstone]:
    return [forget_memo(f"{_OF_TOPICS}{topic}") for topic in sorted(topics)]


def kept_fences_entry(kept: KeptFences) -> MemoEntry:
    return _KEPT_MEMO.entry(_KEPT, kept)


def are_kept(view: LedgerView, fences: Collection[Fence], author: str) -> bool:
    """Whether the driver with this lease has said that it keeps to all of these."""
    try:
        kept = _KEPT_MEMO.read(view, _KEPT)
    except WireError:
        return False  # it is written again
    if kept is None or kept.author != author:
        return False
    return {fence.id for fence in fences} <= set(kept.ids)


def _read(view: LedgerView, subject: str) -> Fence | None:
    try:
        return _MEMO.read(view, subject)
    except WireError as exc:
        # What it was for is not known; lifting it must be an operator's decision all the same.
        return Fence(at_ms=0, why=f"the ledger has a fence that cannot be read ({exc})")
