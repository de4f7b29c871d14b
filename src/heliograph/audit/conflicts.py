"""Which keys were written on both sides within a window of time. No I/O; runs anywhere.

Writes come sorted by topic, key and time, as Spark brings them together, and are passed once: of a
key that is written without end no more is kept than the milliseconds of one window.
"""

from __future__ import annotations

import heapq
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

WORST_MAX: Final = 1_000
"""Keys that are told of, the worst first; a Parquet file has all."""


class Write(NamedTuple):
    """One record that a local producer wrote. Sorts as it must be passed."""

    topic: str
    key: bytes
    at_ms: int
    side: int
    """0 for the source of the flow, 1 for its target."""
    partition: int
    offset: int


class Place(NamedTuple):
    partition: int
    offset: int
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConflict:
    """A key with writes of each side that are not further apart than the window."""

    topic: str
    key: bytes
    writes: tuple[int, int]
    """All local ones that were read, on each side."""
    conflicting: tuple[int, int]
    """Those with a write of the other side within the window."""
    closest_ms: int
    """The shortest time between two."""
    closest: tuple[Place, Place]
    """Those two."""
    first_ms: int
    last_ms: int
    """When the key was in conflict for the first and the last time."""

    @property
    def records(self) -> int:
        return sum(self.conflicting)


@dataclass(slots=True, kw_only=True)
class TopicConflicts:
    """What was found of one topic; two numbers are those of the two sides."""

    topic: str
    keys: int = 0
    """With a local write."""
    keys_on_both: int = 0
    keys_in_conflict: int = 0
    writes: list[int] = field(default_factory=lambda: [0, 0])
    conflicting: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, other: TopicConflicts) -> None:
        self.keys += other.keys
        self.keys_on_both += other.keys_on_both
        self.keys_in_conflict += other.keys_in_conflict
        for side in (0, 1):
            self.writes[side] += other.writes[side]
            self.conflicting[side] += other.conflicting[side]


@dataclass(slots=True)
class Summary:
    """Of some keys: counts of each topic, and the worst keys."""

    topics: dict[str, TopicConflicts] = field(default_factory=dict)
    worst: list[KeyConflict] = field(default_factory=list)

    def add(self, other: Summary) -> None:
        for name, found in other.topics.items():
            self.topics.setdefault(name, TopicConflicts(topic=name)).add(found)
        self.worst = _worst([*self.worst, *other.worst])


def bucket_of(write: Write) -> int:
    """The same for all writes of a key, in every process."""
    return zlib.crc32(write.key, zlib.crc32(write.topic.encode()))


def judged(writes: Iterable[Write], window_ms: int) -> Iterator[KeyConflict | TopicConflicts]:
    """Every key in conflict, and counts of all keys now and then; `writes` are sorted."""
    for topic, of_topic in groupby(writes, attrgetter("topic")):
        found = TopicConflicts(topic=topic)
        for key, of_key in groupby(of_topic, attrgetter("key")):
            passed = _Key(topic, key, window_ms)
            for write in of_key:
                passed.take(write)
            found.keys += 1
            found.keys_on_both += all(passed.writes)
            for side in (0, 1):
                found.writes[side] += passed.writes[side]
                found.conflicting[side] += passed.conflicting[side]
            conflict = passed.conflict()
            if conflict is not None:
                found.keys_in_conflict += 1
                yield conflict
        yield found


def summarised(rows: Iterable[KeyConflict | TopicConflicts]) -> Summary:
    summary = Summary()
    some: list[KeyConflict] = []
    for row in rows:
        if isinstance(row, TopicConflicts):
            summary.topics.setdefault(row.topic, TopicConflicts(topic=row.topic)).add(row)
            continue
        some.append(row)
        if len(some) >= 2 * WORST_MAX:
            some = _worst(some)
    summary.worst = _worst(some)
    return summary


def _worst(found: list[KeyConflict]) -> list[KeyConflict]:
    """Most records in conflict first, then the closest."""
    return heapq.nsmallest(
        WORST_MAX, found, key=lambda one: (-one.records, one.closest_ms, one.topic, one.key)
    )


class _Key:
    """One key, while its writes pass by in order of time."""

    def __init__(self, topic: str, key: bytes, window_ms: int) -> None:
        self._topic, self._key, self._window_ms = topic, key, window_ms
        self.writes = [0, 0]
        self.conflicting = [0, 0]
        self._last: list[Place | None] = [None, None]
        self._alone: tuple[deque[list[int]], deque[list[int]]] = deque(), deque()
        """Time and number of writes without a counterpart so far, each side's, oldest first."""
        self._closest: tuple[Place, Place] | None = None
        self._closest_ms = window_ms + 1
        self._first_ms = self._last_ms = 0

    def take(self, write: Write) -> None:
        side, other = write.side, 1 - write.side
        here, there = Place(write.partition, write.offset, write.at_ms), self._last[other]
        self.writes[side] += 1
        self._last[side] = here
        oldest_ms = write.at_ms - self._window_ms
        if there is not None and there.at_ms >= oldest_ms:
            self._met(side, here, there, oldest_ms)
        else:
            self._wait(side, write.at_ms, oldest_ms)
        # What was not met now lies further back than the window of any later write.
        self._alone[other].clear()

    def _met(self, side: int, here: Place, there: Place, oldest_ms: int) -> None:
        self.conflicting[side] += 1
        for at_ms, count in self._alone[1 - side]:
            if at_ms >= oldest_ms:
                self.conflicting[1 - side] += count
        gap_ms = here.at_ms - there.at_ms
        if gap_ms < self._closest_ms:
            self._closest_ms = gap_ms
            self._closest = (here, there) if side == 0 else (there, here)
        self._first_ms = self._first_ms or here.at_ms
        self._last_ms = here.at_ms

    def _wait(self, side: int, at_ms: int, oldest_ms: int) -> None:
        alone = self._alone[side]
        if alone and alone[-1][0] == at_ms:
            alone[-1][1] += 1
        else:
            alone.append([at_ms, 1])
        while alone[0][0] < oldest_ms:
            alone.popleft()

    def conflict(self) -> KeyConflict | None:
        if self._closest is None:
            return None
        return KeyConflict(
            topic=self._topic,
            key=self._key,
            writes=(self.writes[0], self.writes[1]),
            conflicting=(self.conflicting[0], self.conflicting[1]),
            closest_ms=self._closest_ms,
            closest=self._closest,
            first_ms=self._first_ms,
            last_ms=self._last_ms,
        )
