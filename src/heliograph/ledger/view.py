"""The ledger's records folded into what is known of each lane. No I/O; runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import assert_never

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
    StartEntry,
    StartKey,
)
from heliograph.ledger.entry_codec import decode, decode_key, decode_runs_entry
from heliograph.ledger.runs import Runs
from heliograph.ledger.runs_codec import encode_runs
from heliograph.model import TopicName, TopicPartition


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

    def __init__(self) -> None:
        self._flows: dict[int, FlowEntry] = {}
        self._holder: LeaseEntry | None = None
        self._lanes: dict[TopicPartition, _LaneFold] = {}
        self._acls: dict[AclKey, AclEntry] = {}
        self._memos: dict[str, str] = {}

    @property
    def flow(self) -> FlowEntry | None:
        """The first one in the log; see `FlowEntry` for why not the last."""
        return next(iter(self._flows.values()), None)

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
        return tuple(sorted(self._lanes))

    def lane(self, topic: TopicName, partition: int) -> LaneRecord | None:
        fold = self._lanes.get(TopicPartition(topic=topic, partition=partition))
        if fold is None:
            return None
        return LaneRecord(
            head=fold.head,
            runs=fold.runs,
            losses=tuple(fold.losses.values()),
            starts=fold.starts_in_force(),
        )

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
        fold = self._lanes.get(TopicPartition(topic=topic, partition=partition))
        if fold is None:
            return ()
        counting = {start.key for start in fold.starts_in_force()}
        idle = [key for key in reversed(fold.starts) if key not in counting]
        others = [key for key in fold.written if isinstance(key, RunsKey) or key in counting]
        head = (HeadKey(topic=topic, partition=partition),) if fold.head else ()
        return (*fold.losses, *idle, *others, *head)

    def apply_record(self, key: bytes, value: bytes | None) -> None:
        """Fold one record of the topic; garbage raises `WireError` and changes nothing."""
        entry = decode(key, value)
        if entry is None:
            self.remove(decode_key(key))
        elif isinstance(entry, RunsEntry) and value is not None:
            self._fold_of(entry.key).add_runs(entry, value)
        else:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        match entry:
            case FlowEntry():
                # Compaction keeps the last record of a key, so that is where the key counts.
                self._flows.pop(entry.producer_id, None)
                self._flows[entry.producer_id] = entry
            case LeaseEntry():
                self._lease(entry)
            case HeadEntry():
                self._fold_of(entry).head = entry
            case RunsEntry():
                value = encode_runs(entry.runs, entry.end_position)
                self._fold_of(entry).add_runs(entry, value)
            case LossEntry():
                self._fold_of(entry).add_loss(entry)
            case StartEntry():
                self._fold_of(entry).add_start(entry)
            case AclEntry():
                self._acls[AclKey(binding=entry.binding)] = entry
            case MemoEntry():
                self._memos[entry.subject] = entry.text
            case _:
                assert_never(entry)

    def remove(self, key: EntryKey) -> None:
        """Fold a tombstone; of something unknown it is nothing."""
        if isinstance(key, FlowKey):
            self._flows.pop(key.producer_id, None)
            return
        if isinstance(key, LeaseKey):
            if self._holder is not None and self._holder.author == key.author:
                self._holder = None
            return
        if isinstance(key, AclKey):
            self._acls.pop(key, None)
            return
        if isinstance(key, MemoKey):
            self._memos.pop(key.subject, None)
            return
        lane = TopicPartition(topic=key.topic, partition=key.partition)
        fold = self._lanes.get(lane)
        if fold is None:
            return
        match key:
            case HeadKey():
                fold.head = None
            case LossKey():
                fold.losses.pop(key, None)
            case RunsKey() | StartKey():
                fold.forget(key)
            case _:
                assert_never(key)
        if fold.is_empty:
            del self._lanes[lane]

    def _lease(self, entry: LeaseEntry) -> None:
        holder = self._holder
        is_own = holder is not None and holder.author == entry.author
        if entry.lease_ms == 0:
            self._holder = None if is_own else holder
        elif holder is None or is_own or entry.at_ms > holder.until_ms:
            self._holder = entry

    def _fold_of(self, of: HeadEntry | RunsEntry | RunsKey | LossEntry | StartEntry) -> _LaneFold:
        lane = TopicPartition(topic=of.topic, partition=of.partition)
        return self._lanes.setdefault(lane, _LaneFold())


@dataclass(slots=True, kw_only=True)
class _LaneFold:
    head: HeadEntry | None = None
    losses: dict[LossKey, LossEntry] = field(default_factory=dict)
    written: dict[StartKey | RunsKey, StartEntry | bytes] = field(default_factory=dict)
    """The last entry of each key, in log order; runs as bytes, for there may be a million."""
    starts: dict[StartKey, StartEntry] = field(default_factory=dict)
    """Those of `written`, which are few."""
    _runs: Runs = field(default_factory=Runs)
    _is_stale: bool = False
    """Whether an entry that `_runs` comes from is gone, so that it must be made again."""

    @property
    def is_empty(self) -> bool:
        return not (self.head or self.losses or self.written)

    @property
    def runs(self) -> Runs:
        if self._is_stale:
            self._is_stale = False
            self._runs.clear()
            counting = set(self.starts_in_force())
            for key, entry in self.written.items():
                if isinstance(entry, StartEntry):
                    if entry in counting:
                        self._runs.replace_from((entry.run,))
                elif isinstance(key, RunsKey):
                    self._replace(decode_runs_entry(key, entry))
        return self._runs

    def starts_in_force(self) -> tuple[StartEntry, ...]:
        first: dict[int, StartEntry] = {}
        for start in self.starts.values():
            first.setdefault(start.position, start)
        return tuple(first[position] for position in sorted(first))

    def add_start(self, entry: StartEntry) -> None:
        self.forget(entry.key)
        self.written[entry.key] = self.starts[entry.key] = entry
        if entry in self.starts_in_force():
            self._runs.replace_from((entry.run,))

    def add_runs(self, entry: RunsEntry, value: bytes) -> None:
        self.forget(entry.key)
        self.written[entry.key] = value
        self._replace(entry)

    def forget(self, key: StartKey | RunsKey) -> None:
        # Taking one entry's part out of the runs would need all that it once replaced.
        self._is_stale |= self.written.pop(key, None) is not None
        if isinstance(key, StartKey):
            self.starts.pop(key, None)

    def add_loss(self, entry: LossEntry) -> None:
        key = LossKey(
            topic=entry.topic,
            partition=entry.partition,
            position=entry.position,
            lost_start=entry.lost.start,
        )
        # Compaction keeps the last record of a key, so that is where it stands among the others.
        self.losses.pop(key, None)
        self.losses[key] = entry

    def _replace(self, entry: RunsEntry) -> None:
        self._runs.replace_between(entry.runs[0].position, entry.end_position, entry.runs)
