"""Where lanes go on that a policy lets go on: decided by the driver, begun by slots. Runs anywhere.

    memo|new-start/<topic>/<partition>    the last decision on a lane

The slot that finds the lane at the decision's position writes the start, and the loss that goes
with it, after it has looked at the log. A driver that wrote the start itself, and then looked,
could not tell a batch of what the lane had next before, sent by a slot that was given up, from one
of a slot that has followed the start: the position says as little as the log. A decision for a
place that the lane has left says nothing, so no start is ever taken back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.clock import now_ms
from heliograph.errors import BrokerError, BrokerUnreachable, WireError
from heliograph.ledger.entries import (
    Entry,
    LossEntry,
    MemoEntry,
    StartEntry,
    Tombstone,
    new_author,
)
from heliograph.ledger.memo import Memo, OffsetPair
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import Lane, LaneProgress, OffsetRange, StallReason, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A lane that waits for a new start."""

    lane: Lane
    at: LaneProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun(Waiting):
    lost: OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStart(Waiting):
    """The lane is to go on with `source_offset`, at the position where it stands."""

    source_offset: int
    lost: OffsetRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedStart:
    position: int
    """Where the lane stood; anywhere else this says nothing."""
    source_offset: int
    after: str
    """Who wrote the start that the lane went on from: it has begun elsewhere or anew since where
    that is another."""
    at_ms: int
    source_topic_id: str | None = None
    lost: OffsetPair | None = None


_MEMO: Final[Memo[DecidedStart]] = Memo(DecidedStart, writes_null=False)


async def decide_starts(store: LedgerStore, wanted: Sequence[NewStart]) -> list[BrokerError | None]:
    """Note where these lanes begin anew, in place of what was decided before.

    Of each lane in turn: why it could not be decided on, if so.
    """
    await store.catch_up()
    entries: list[MemoEntry] = []
    answers: list[BrokerError | None] = []
    for each in wanted:
        source = each.lane.id.source
        record = store.view.begun_lane(source.topic, source.partition)
        if record is None:
            answers.append(BrokerUnreachable(f"{each.lane.id}: the ledger has no start of it"))
        else:
            answers.append(None)
            entries.append(decision_entry(each, record))
    await store.write_or_refuse(entries)
    return answers


def decision_entry(wanted: NewStart, record: LaneRecord) -> MemoEntry:
    """What the slots that carry the lane are told."""
    decided = DecidedStart(
        position=wanted.at.position,
        source_offset=wanted.source_offset,
        source_topic_id=wanted.lane.source_topic_id,
        after=record.starts[-1].author,
        at_ms=now_ms(),
        lost=wanted.lost,
    )
    return _MEMO.entry(_subject(wanted.lane.id.source), decided)


def decided_start(
    view: LedgerView, lane: Lane, record: LaneRecord, position: int
) -> DecidedStart | None:
    """Where a lane that stands at `position` is to begin again; None where nothing was decided for
    that place, or it has begun there already."""
    try:
        decided = _MEMO.read(view, _subject(lane.id.source))
    except WireError:
        # Written by nobody of ours: the lane waits and says for what.
        return None
    if decided is None or decided.position != position:
        return None
    if decided.source_topic_id != lane.source_topic_id:
        # That topic is gone, or this slot does not know it yet.
        return None
    last = record.starts[-1]
    # A later start than that is one of a log that has lost records since.
    return decided if decided.after == last.author and last.position <= position else None


def start_entries(
    view: LedgerView, lane: Lane, record: LaneRecord, decided: DecidedStart, target_offset: int
) -> list[Entry | Tombstone]:
    """What begins the lane as it was decided; `target_offset` is where its target's log ends.

    The first start at a position counts, so those that are there go: nothing was mirrored since
    them, or the lane would not stand at that position. The new one has an author, so a key, of its
    own: written late it counts for nothing beside that of another slot.
    """
    source, last = lane.id.source, record.starts[-1]
    fold = view.fold(source.topic, source.partition)
    is_same_place = last.position == decided.position
    start = StartEntry(
        topic=source.topic,
        partition=source.partition,
        position=decided.position,
        author=new_author(),
        source_offset=decided.source_offset,
        target_offset=target_offset,
        source_topic_id=lane.source_topic_id,
        target_topic_id=last.target_topic_id,
        at_ms=now_ms(),
        adopted=is_same_place and last.adopted,
    )
    gone = [
        Tombstone(key=key)
        for key in (() if fold is None else fold.starts)
        if key.position == decided.position
    ]
    return [*_losses(source, decided), *gone, start]


def _losses(source: TopicPartition, decided: DecidedStart) -> tuple[LossEntry, ...]:
    if decided.lost is None:
        return ()
    loss = LossEntry(
        topic=source.topic,
        partition=source.partition,
        position=decided.position,
        lost=decided.lost,
        reason=StallReason.RETENTION_OVERRUN,
        at_ms=decided.at_ms,
    )
    return (loss,)


def _subject(source: TopicPartition) -> str:
    return f"new-start/{source.topic}/{source.partition}"
