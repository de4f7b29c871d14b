"""What MirrorMaker 2 would answer: its store of offset syncs, rebuilt. Pure; runs anywhere.

Heliograph translates by its ledger. This is for what must be known of MirrorMaker 2: what it would
say of a group after it is given the topic back, and how far that is from exact.

Per partition there are 64 slots, slot 0 the newest sync, slot 63 the oldest that may be used. For
slots i < j that hold different syncs:

    B  slot[i] <= slot[j] + 2^j - 2^i         a slot is refilled before it is too old for its place
    C  slot[i] >= slot[j] + 2^max(i - 2, 0)   neighbours keep apart, more so the older they are

by upstream offset. So precision halves each time the distance to the end doubles.
"""

from __future__ import annotations

from typing import Final

from heliograph.model import TopicPartition
from heliograph.wire.mirror_records import OffsetSync

SLOTS: Final = 64
TOO_OLD: Final = -1
"""The answer for an offset before the oldest sync; MirrorMaker 2 writes no checkpoint then."""


class SyncStore:
    """Syncs of one flow in the order of their topic; translates once the topic was read to its end.

    With `must_read_to_end`, of what was in the topic at the start only the last sync of a partition
    counts. MirrorMaker 2 does that where it could not read its checkpoints, since an earlier life
    of it may have answered from syncs that came later.
    """

    def __init__(self, *, must_read_to_end: bool = True) -> None:
        self._must_read_to_end = must_read_to_end
        self._is_read_to_end = False
        self._slots: dict[TopicPartition, tuple[OffsetSync, ...]] = {}

    def add(self, sync: OffsetSync) -> None:
        partition = TopicPartition(topic=sync.topic, partition=sync.partition)
        slots = self._slots.get(partition)
        only_last_counts = self._must_read_to_end and not self._is_read_to_end
        if slots is None or only_last_counts or sync.upstream_offset < slots[0].upstream_offset:
            # Offsets that went back make all that was known of later ones untrue.
            self._slots[partition] = (sync,) * SLOTS
        else:
            self._slots[partition] = _inserted(slots, sync)

    def read_to_end(self) -> None:
        """All that was in the topic at the start has been added."""
        self._is_read_to_end = True

    def slots(self, partition: TopicPartition) -> tuple[OffsetSync, ...]:
        """Empty for a partition without a sync."""
        return self._slots.get(partition, ())

    def distinct(self, partition: TopicPartition) -> tuple[OffsetSync, ...]:
        """The syncs still in store, the oldest first."""
        slots = self.slots(partition)
        return tuple(
            slots[place]
            for place in reversed(range(len(slots)))
            if place == 0 or slots[place] is not slots[place - 1]
        )

    def translate(self, partition: TopicPartition, upstream_offset: int) -> int | None:
        """A group's offset on the target; `TOO_OLD`, or None where nothing is known."""
        slots = self.slots(partition)
        if not self._is_read_to_end or not slots:
            return None
        for sync in slots:
            if sync.upstream_offset <= upstream_offset:
                # How many records follow the sync on the target is not known, only that those of
                # the group's future do: one past it is the furthest that can skip nothing.
                step = 0 if sync.upstream_offset == upstream_offset else 1
                return sync.downstream_offset + step
        return TOO_OLD


def _inserted(old: tuple[OffsetSync, ...], sync: OffsetSync) -> tuple[OffsetSync, ...]:
    """Slot 0 is the new sync; further slots change only as far as B asks.

    A slot that must change takes the oldest sync of a lower slot that fits there. `next_old` is the
    first of those not yet placed or ruled out.
    """
    new = [sync, *old[1:]]
    candidate, next_old = sync, 0
    for place in range(1, SLOTS):
        before = new[place - 1]
        while True:
            offered = old[next_old]
            is_apart = _keeps_apart(before, offered, place - 1)
            fits = (
                is_apart
                and _is_recent(before, offered, place - 1, place)
                and (place + 1 == SLOTS or _keeps_apart(offered, new[place + 1], place))
            )
            if fits:
                candidate = offered
            is_repeated = next_old + 1 < SLOTS and old[next_old + 1] is offered
            ruled_out = is_repeated or not is_apart
            if fits or ruled_out:
                next_old += 1
            if not ruled_out or next_old >= place:
                break
        if _is_recent(before, new[place], place - 1, place):
            break
        new[place] = candidate
    return tuple(new)


def _is_recent(newer: OffsetSync, older: OffsetSync, i: int, j: int) -> bool:
    """Invariant B, for `newer` in slot i and `older` in slot j."""
    bound = older.upstream_offset + 2**j - 2**i
    return newer is older or newer.upstream_offset <= bound


def _keeps_apart(newer: OffsetSync, older: OffsetSync, i: int) -> bool:
    """Invariant C, for `newer` in slot i."""
    bound = older.upstream_offset + 2 ** max(i - 2, 0)
    return newer is older or newer.upstream_offset >= bound
