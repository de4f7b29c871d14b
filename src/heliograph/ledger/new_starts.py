"""Where lanes go on that a policy lets go on: decided for many at once. Runs on the driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from heliograph.broker.cluster import Cluster
from heliograph.clock import now_ms
from heliograph.errors import BrokerError, InvariantError
from heliograph.ledger.entries import Entry, LossEntry, StartEntry, Tombstone, key_of
from heliograph.ledger.positions import position_from_sequence
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.model import Lane, LaneProgress, OffsetRange, StallReason, TopicPartition

log = logging.getLogger(__name__)


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
class _Begun:
    lane: Lane
    start: StartEntry
    losses: tuple[LossEntry, ...]
    replaced: StartEntry | None
    """The start whose key this one takes."""

    @property
    def undone(self) -> list[Entry | Tombstone]:
        before = Tombstone(key=self.start.key) if self.replaced is None else self.replaced
        return [*(Tombstone(key=key_of(loss)) for loss in self.losses), before]


async def begin_lanes_at(
    store: LedgerStore, target: Cluster, wanted: Sequence[NewStart], *, author: str
) -> list[bool | BrokerError]:
    """Write a start at each lane's position, and take those back whose position is taken.

    A slot that was given up may have sent a batch of what the lane had next before. If it lands
    before the start is durable, its records are not what the start says: the position after
    them would be followed to source offsets that were never read.
    """
    await store.catch_up()
    begun = [_begun(store.view, each, author) for each in wanted]
    written: list[Entry | Tombstone] = []
    for each in begun:
        written += [*each.losses, each.start]
    await store.write_or_refuse(written)
    ends = await _last_positions(store.view, target, begun)
    undone: list[Entry | Tombstone] = []
    answers: list[bool | BrokerError] = []
    for each in begun:
        end = ends[each.lane.target]
        if isinstance(end, BrokerError):
            answers.append(end)
            continue
        answers.append(end <= each.start.position)
        if end > each.start.position:
            log.warning("%s: its log went on by itself, the start is taken back", each.lane.id)
            undone += each.undone
    if undone:
        await store.write_or_refuse(undone)
    return answers


def _begun(view: LedgerView, wanted: NewStart, author: str) -> _Begun:
    lane, at = wanted.lane, wanted.at
    source = lane.id.source
    if at.target_next_offset < 0:
        raise InvariantError(f"{lane.id}: decided on before the target's log was asked")
    record = view.begun_lane(source.topic, source.partition)
    last = None if record is None else record.starts[-1]
    # The first start at a position counts. Where nothing was mirrored since the last one, this
    # one takes its key: what that one begins with is gone, so nobody can follow it any more.
    replaced = last if last is not None and last.position == at.position else None
    at_ms = now_ms()
    start = StartEntry(
        topic=source.topic,
        partition=source.partition,
        position=at.position,
        author=author if replaced is None else replaced.author,
        source_offset=wanted.source_offset,
        target_offset=at.target_next_offset,
        source_topic_id=lane.source_topic_id,
        target_topic_id=last.target_topic_id if last is not None else None,
        at_ms=at_ms,
        adopted=replaced is not None and replaced.adopted,
    )
    return _Begun(lane=lane, start=start, losses=_losses(wanted, at_ms), replaced=replaced)


def _losses(wanted: NewStart, at_ms: int) -> tuple[LossEntry, ...]:
    if wanted.lost is None:
        return ()
    source = wanted.lane.id.source
    loss = LossEntry(
        topic=source.topic,
        partition=source.partition,
        position=wanted.at.position,
        lost=wanted.lost,
        reason=StallReason.RETENTION_OVERRUN,
        at_ms=at_ms,
    )
    return (loss,)


async def _last_positions(
    view: LedgerView, target: Cluster, begun: Sequence[_Begun]
) -> dict[TopicPartition, int | BrokerError]:
    """After the last record of each lane that its target's leader remembers; 0 if none."""
    near = {each.lane.target: each.start.position for each in begun}
    if view.flow is None:
        return dict.fromkeys(near, 0)
    await target.refresh({each.topic for each in near})
    sequences = await target.last_sequences(list(near), view.flow.producer_id)
    ends: dict[TopicPartition, int | BrokerError] = {}
    for at, sequence in sequences.items():
        if isinstance(sequence, BrokerError):
            ends[at] = sequence
        else:
            ends[at] = 0 if sequence < 0 else position_from_sequence(sequence, near[at])
    return ends
