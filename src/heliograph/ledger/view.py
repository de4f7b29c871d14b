"""The ledger's records folded into what is known of each lane. Pure; runs anywhere."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from heliograph.ledger.entries import (
    Entry,
    EntryKey,
    FlowEntry,
    FlowKey,
    HeadEntry,
    HeadKey,
    LossEntry,
    LossKey,
    RunsEntry,
    RunsKey,
    StartEntry,
    StartKey,
    decode,
    decode_key,
)
from heliograph.ledger.runs import Run, Runs
from heliograph.model import TopicName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneRecord:
    """What the ledger says of one lane. `runs` is the view's own: it changes as the view does."""

    head: HeadEntry | None
    runs: Runs
    losses: tuple[LossEntry, ...]
    starts: tuple[StartEntry, ...]
    """The ones that count, by position; a lane without any has not begun."""


class LedgerView:
    """Fold records in log order; any log and what compaction leaves of it fold to the same view.

    Belongs to one task. The promise needs two things of those who write: all records of a lane,
    and all flow entries, go to one partition; and tombstones are written for all keys of a lane, to
    forget it, in the order of `lane_keys`. One for some entry alone would, once compaction has
    dropped that entry, bring back the older runs it had replaced.
    """

    def __init__(self) -> None:
        self._flows: dict[int, FlowEntry] = {}
        self._lanes: dict[TopicPartition, _LaneFold] = {}

    @property
    def flow(self) -> FlowEntry | None:
        """The first one in the log; see `FlowEntry` for why not the last."""
        return next(iter(self._flows.values()), None)

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

    def lane_keys(self, topic: TopicName, partition: int) -> tuple[EntryKey, ...]:
        """Every key to write a tombstone for, in this order, to forget the lane.

        Entries replaced as a whole go first, since the others hold them down; then the others from
        the first position on. So a writer may stop or die anywhere and leave the lane's newest runs
        as they were. The head is last: it is what says that there is a lane.
        """
        fold = self._lanes.get(TopicPartition(topic=topic, partition=partition))
        if fold is None:
            return ()
        counting = {start.key for start in fold.starts_in_force()}
        # A start that does not count must not come to count because the one before it is gone.
        idle = [key for key in reversed(fold.starts) if key not in counting]
        written: set[StartKey | RunsKey] = {*counting, *fold.runs_written}
        replaced = sorted(written.difference(fold.in_force), key=_position)
        head = (HeadKey(topic=topic, partition=partition),) if fold.head else ()
        return (*fold.losses, *idle, *replaced, *fold.in_force, *head)

    def apply_record(self, key: bytes, value: bytes | None) -> None:
        """Fold one record of the topic; garbage raises `WireError` and changes nothing."""
        entry = decode(key, value)
        if entry is None:
            self.remove(decode_key(key))
        else:
            self.apply(entry)

    def apply(self, entry: Entry) -> None:
        if isinstance(entry, FlowEntry):
            # Compaction keeps the last record of a key, so that is where the key counts.
            self._flows.pop(entry.producer_id, None)
            self._flows[entry.producer_id] = entry
            return
        lane = TopicPartition(topic=entry.topic, partition=entry.partition)
        fold = self._lanes.setdefault(lane, _LaneFold())
        match entry:
            case HeadEntry():
                fold.head = entry
            case RunsEntry():
                fold.add_runs(entry)
            case LossEntry():
                fold.add_loss(entry)
            case StartEntry():
                fold.add_start(entry)
            case _:
                assert_never(entry)

    def remove(self, key: EntryKey) -> None:
        """Fold a tombstone; of something unknown it is nothing."""
        if isinstance(key, FlowKey):
            self._flows.pop(key.producer_id, None)
            return
        lane = TopicPartition(topic=key.topic, partition=key.partition)
        fold = self._lanes.get(lane)
        if fold is None:
            return
        match key:
            case HeadKey():
                fold.head = None
            case RunsKey():
                fold.runs_written.discard(key)
                fold.release(key)
            case LossKey():
                fold.losses.pop(key, None)
            case StartKey():
                fold.starts.pop(key, None)
                fold.release(key)
            case _:
                assert_never(key)
        if fold.is_empty:
            del self._lanes[lane]


@dataclass(slots=True, kw_only=True)
class _LaneFold:
    head: HeadEntry | None = None
    runs: Runs = field(default_factory=Runs)
    losses: dict[LossKey, LossEntry] = field(default_factory=dict)
    starts: dict[StartKey, StartEntry] = field(default_factory=dict)
    """All that were not removed, in log order; the first at a position counts."""
    runs_written: set[RunsKey] = field(default_factory=set)
    """All that were not removed, those replaced as a whole included."""
    in_force: list[StartKey | RunsKey] = field(default_factory=list)
    """What `runs` comes from, by position."""

    @property
    def is_empty(self) -> bool:
        return not (self.head or self.losses or self.starts or self.runs_written)

    def starts_in_force(self) -> tuple[StartEntry, ...]:
        first: dict[int, StartEntry] = {}
        for start in self.starts.values():
            first.setdefault(start.position, start)
        return tuple(first[position] for position in sorted(first))

    def add_start(self, entry: StartEntry) -> None:
        counts = all(start.position != entry.position for start in self.starts.values())
        self.starts[entry.key] = entry
        if counts:
            self._replace_from(entry.key, (entry.run,))

    def add_runs(self, entry: RunsEntry) -> None:
        key = RunsKey(topic=entry.topic, partition=entry.partition, position=entry.runs[0].position)
        self.runs_written.add(key)
        self._replace_from(key, entry.runs)

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

    def release(self, key: StartKey | RunsKey) -> None:
        """Drop the runs that come from this entry, if any still do."""
        index = bisect_left(self.in_force, key.position, key=_position)
        if index == len(self.in_force) or self.in_force[index] != key:
            return
        del self.in_force[index]
        following = self.in_force[index].position if index < len(self.in_force) else None
        self.runs.remove_between(key.position, following)

    def _replace_from(self, key: StartKey | RunsKey, runs: Sequence[Run]) -> None:
        self.runs.replace_from(runs)
        del self.in_force[bisect_left(self.in_force, key.position, key=_position) :]
        self.in_force.append(key)


def _position(key: StartKey | RunsKey) -> int:
    return key.position
