"""The ledger's records folded into what is known of each lane. No I/O; runs anywhere.

Heads and runs are kept as bytes, the last ones of each key, and decoded when they are asked for: a
ledger has many that nobody asks for before the next one comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from heliograph.acl import AclBinding
from heliograph.ledger.entries import (
    AclEntry,
    AclKey,
    Entry,
    EntryKey,
    FlowEntry,
    FlowKey,
    HeadEntry,
    HeadKey,
    LeaseEntry,
    LeaseKey,
    LossEntry,
    LossKey,
    MemoEntry,
    MemoKey,
    RunsEntry,
    RunsKey,
    SegmentEntry,
    StartEntry,
    StartKey,
)
from heliograph.ledger.entry_codec import decode, decode_key, encode, encode_key
from heliograph.ledger.lane_fold import LaneFold
from heliograph.ledger.runs import Runs
from heliograph.model import TopicName, TopicPartition

_LANE_KINDS: Final = (b"head|", b"run|", b"start|", b"loss|")
_RUN_KEY: Final = re.compile(
    rb"run\|([\w.-]{1,249}\|(?:0|[1-9]\d{0,8}))\|(?:0|[1-9]\d{0,17})\|[0-9a-f]{32}"
)
"""Nearly every key of runs, with its topic and partition; the few others are parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRecord:
    """What the ledger says of one lane. `runs` is the view's own: it changes as the view does."""

    head: HeadEntry | None
    runs: Runs
    losses: tuple[LossEntry, ...]
    starts: tuple[StartEntry, ...]
    """The ones that count, by position; a lane without any has not begun, see `begun`."""


class LedgerView:
    """Fold records in log order; any log and what compaction leaves of it fold to the same view.

    That is so because of each key only the last record counts, in the place where that one stands:
    whoever reads the earlier ones too forgets them when the last one comes. The lease alone is not
    like that, see `holder`. All records of a lane, and all flow and lease entries, must go to one
    partition. Belongs to one task.
    """

    def __init__(self, lanes: Iterable[TopicPartition] | None = None) -> None:
        """`lanes` are those to fold, where not all are: records of others are not looked at."""
        self._only = None if lanes is None else {_lane_bytes(lane) for lane in lanes}
        self._flows: dict[int, FlowEntry] = {}
        self._holder: LeaseEntry | None = None
        self._folds: dict[bytes, LaneFold] = {}
        """By topic and partition as they are in keys."""
        self._heads: dict[bytes, LaneFold | None] = {}
        """By the key of a head, which most records are; None where the lane is not looked at."""
        self._acls: dict[AclKey, AclEntry] = {}
        self._memos: dict[str, str] = {}

    @property
    def flow(self) -> FlowEntry | None:
        """The first one in the log; see `FlowEntry` for why not the last."""
        return next(iter(self._flows.values()), None)

    @property
    def producers(self) -> tuple[FlowEntry, ...]:
        """All that ever wrote what the flow brings, the one that writes now first."""
        return tuple(self._flows.values())

    @property
    def holder(self) -> LeaseEntry | None:
        """Who carries the flow, by its last entry; the reader's clock says whether it still does.

        The first keeps the lease while it renews it. Another takes over with an entry later than
        the holder's `until_ms`, or after the holder let go.

        Compaction leaves the last entry of each author. A new reader then still finds one holder,
        and it is the same unless the last entry of somebody who was refused comes before the
        holder's: then the refused one seems to have been first, until its lease is over and the
        holder renews. Who was refused lets go at once, so this takes a driver that died between.
        """
        return self._holder

    @property
    def acls(self) -> frozenset[AclBinding]:
        """What the flow created on the target and did not take back."""
        return frozenset(key.binding for key in self._acls)

    @property
    def memos(self) -> Mapping[str, str]:
        """By subject; whoever owns a subject reads its text."""
        return self._memos

    @property
    def lanes(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(fold.lane for fold in self._folds.values()))

    @property
    def lane_count(self) -> int:
        return len(self._folds)

    @property
    def entry_count(self) -> int:
        """Entries that count; a topic that was not compacted yet has more."""
        lanes = sum(
            len(fold.written) + len(fold.losses) + fold.has_head for fold in self._folds.values()
        )
        return lanes + len(self._flows) + len(self._acls) + len(self._memos)

    @property
    def unreadable_records(self) -> int:
        """Values of lanes that were asked for and could not be decoded."""
        return sum(fold.unreadable for fold in self._folds.values())

    @property
    def losses(self) -> tuple[LossEntry, ...]:
        """Of all lanes, without an order."""
        return tuple(loss for fold in self._folds.values() for loss in fold.losses.values())

    def lane(self, topic: TopicName, partition: int) -> LaneRecord | None:
        fold = self.fold(topic, partition)
        if fold is None:
            return None
        return LaneRecord(
            head=fold.head,
            runs=fold.runs,
            losses=tuple(fold.losses.values()),
            starts=fold.starts_in_force(),
        )

    def fold(self, topic: TopicName, partition: int) -> LaneFold | None:
        """The lane's entries one by one."""
        return self._folds.get(_lane_bytes(TopicPartition(topic=topic, partition=partition)))

    def take(self, lanes: LedgerView) -> None:
        """Take the lanes over from a view of the same ledger, read as far as this one."""
        self._folds |= lanes._folds
        self._heads.clear()
        if self._only is not None and lanes._only is not None:
            self._only |= lanes._only

    def drop(self, lanes: Iterable[TopicPartition]) -> None:
        """Fold these no longer; only for a view that was given its lanes."""
        if self._only is not None:
            self._heads.clear()
            for lane in map(_lane_bytes, lanes):
                self._only.discard(lane)
                self._folds.pop(lane, None)

    def folds(self, lane: TopicPartition) -> bool:
        """Whether records of this lane are looked at."""
        return self._only is None or _lane_bytes(lane) in self._only

    def begun(self) -> dict[TopicPartition, LaneRecord]:
        """The lanes that have a start, by source partition and in its order."""
        return {
            lane: record
            for lane in self.lanes
            if (record := self.begun_lane(lane.topic, lane.partition)) is not None
        }

    def begun_lane(self, topic: TopicName, partition: int) -> LaneRecord | None:
        """None also for a lane that was being forgotten when the writer died: its head is left."""
        record = self.lane(topic, partition)
        return record if record is not None and record.starts else None

    def lane_keys(self, topic: TopicName, partition: int) -> tuple[EntryKey, ...]:
        """Every key to write a tombstone for, in this order, to forget the lane.

        What the others hold down goes before them: starts that do not count, then starts and runs
        as they were written. So a writer may stop or die anywhere and nothing that was replaced
        comes back. The head is last: it is what says that there is a lane.
        """
        fold = self.fold(topic, partition)
        if fold is None:
            return ()
        counting = {start.key for start in fold.starts_in_force()}
        idle = [key for key in reversed(fold.starts) if key not in counting]
        others = [key for key in fold.written if isinstance(key, RunsKey) or key in counting]
        head = (HeadKey(topic=topic, partition=partition),) if fold.has_head else ()
        return (*fold.losses, *idle, *others, *head)

    def apply_record(self, key: bytes, value: bytes | None) -> None:
        """Fold one record of the topic; garbage raises `WireError` and changes nothing."""
        if value is not None and key in self._heads:
            fold = self._heads[key]
            if fold is None or fold.is_next_head(value):
                return
        if value is None and self._removes_nothing(key):
            return
        if self._is_skipped(key):
            if key.startswith(b"head|"):
                self._heads[key] = None
            return
        parsed = decode_key(key)
        if value is None:
            self._remove(parsed)
        elif isinstance(parsed, HeadKey | RunsKey | LossKey | StartKey):
            self._apply_to_lane(key, parsed, value)
        else:
            entry = decode(key, value)
            if isinstance(entry, FlowEntry | LeaseEntry | AclEntry | MemoEntry):
                self._apply(entry)

    def _removes_nothing(self, key: bytes) -> bool:
        """Whether these runs are not there: so it is with most tombstones, since compaction drops
        what they remove long before them."""
        found = _RUN_KEY.fullmatch(key)
        if found is None:
            return False
        fold = self._folds.get(found[1])
        return fold is None or key not in fold.run_keys

    def _is_skipped(self, key: bytes) -> bool:
        only = self._only
        return only is not None and key.startswith(_LANE_KINDS) and _lane_of(key) not in only

    def apply(self, entry: Entry) -> None:
        """As if the entry had been read."""
        match entry:
            case FlowEntry() | LeaseEntry() | AclEntry() | MemoEntry():
                self._apply(entry)
            case LossEntry() | StartEntry():
                self._fold_of(entry).put(entry)
            case HeadEntry() | RunsEntry() | SegmentEntry():
                self.apply_record(*encode(entry))
            case _:
                assert_never(entry)

    def remove(self, key: EntryKey) -> None:
        """Fold a tombstone; of something unknown it is nothing."""
        self.apply_record(encode_key(key), None)

    def _apply(self, entry: FlowEntry | LeaseEntry | AclEntry | MemoEntry) -> None:
        match entry:
            case FlowEntry():
                # Compaction keeps the last record of a key, so that is where the key counts.
                self._flows.pop(entry.producer_id, None)
                self._flows[entry.producer_id] = entry
            case LeaseEntry():
                self._lease(entry)
            case AclEntry():
                self._acls[AclKey(binding=entry.binding)] = entry
            case MemoEntry():
                self._memos[entry.subject] = entry.text
            case _:
                assert_never(entry)

    def _apply_to_lane(
        self, raw_key: bytes, key: HeadKey | RunsKey | LossKey | StartKey, value: bytes
    ) -> None:
        match key:
            case HeadKey():
                fold = self._fold_of(key)
                fold.put_head(raw_key, value)
                self._heads[raw_key] = fold
            case RunsKey():
                self._fold_of(key).put_runs(raw_key, key, value)
            case LossKey() | StartKey():
                entry = decode(raw_key, value)
                if isinstance(entry, LossEntry | StartEntry):
                    self._fold_of(key).put(entry)
            case _:
                assert_never(key)

    def _remove(self, key: EntryKey) -> None:
        match key:
            case FlowKey():
                self._flows.pop(key.producer_id, None)
            case LeaseKey():
                if self._holder is not None and self._holder.author == key.author:
                    self._holder = None
            case AclKey():
                self._acls.pop(key, None)
            case MemoKey():
                self._memos.pop(key.subject, None)
            case HeadKey() | LossKey() | RunsKey() | StartKey():
                fold = self.fold(key.topic, key.partition)
                if fold is not None:
                    fold.remove(key)
                    if fold.is_empty:
                        del self._folds[_lane_bytes(fold.lane)]
                        self._heads.clear()
            case _:
                assert_never(key)

    def _lease(self, entry: LeaseEntry) -> None:
        holder = self._holder
        is_own = holder is not None and holder.author == entry.author
        if entry.lease_ms == 0:
            self._holder = None if is_own else holder
        elif holder is None or is_own or entry.at_ms > holder.until_ms:
            self._holder = entry

    def _fold_of(
        self, of: HeadKey | RunsKey | LossKey | StartKey | LossEntry | StartEntry
    ) -> LaneFold:
        lane = TopicPartition(topic=of.topic, partition=of.partition)
        return self._folds.setdefault(_lane_bytes(lane), LaneFold(lane))


def _lane_bytes(lane: TopicPartition) -> bytes:
    return f"{lane.topic}|{lane.partition}".encode()


def _lane_of(key: bytes) -> bytes:
    """Topic and partition of a key of `_LANE_KINDS`, as they are in it."""
    return b"|".join(key.split(b"|", 3)[1:3])
