"""Read both sides of lanes that a MirrorMaker 2 has carried, and find where each ends. Driver only.

By default a lane is read from the newest offset sync that is not after its stored position, and
that comes before the last restart which the syncs show: what came before is on the target, and
nothing after it is believed without being compared. Where that sync is not what the logs say, or
records are found that belong further back, the lane is read from the first record there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heliograph.model import Lane, OffsetRange, TopicPartition
from heliograph.takeover.alignment import Alignment, OffsetSyncAnchor, Stretch, align
from heliograph.takeover.fingerprints import FingerprintReader

RECORDS_AT_ONCE: Final = 2_000_000
"""Lanes are read together until their targets hold about so many records."""
_LANES_AT_ONCE: Final = 200
_MARGIN_RECORDS: Final = 1_000
RESTART_RECORDS_MAX: Final = 1_000_000
"""How far back a restart is looked for repeats without being asked to."""
_FURTHER_MAX: Final = 8


class WalkFrom(StrEnum):
    """Where reading a lane begins."""

    SYNC = "sync"
    EARLIEST = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLogs:
    """One lane before it is read."""

    lane: Lane
    stored_next: int | None
    """The first source offset MirrorMaker 2 would copy next; None where it stored nothing."""
    anchors: tuple[OffsetSyncAnchor, ...]
    source: OffsetRange
    """What the source lets MirrorMaker 2 read."""
    target: OffsetRange
    is_compacted: bool
    """Whether the target drops records by key."""
    resumed: OffsetSyncAnchor | None = None
    """The next record on both sides, where Heliograph carried the lane before MirrorMaker 2 did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walked:
    logs: LaneLogs
    alignment: Alignment
    source_from: int
    target_from: int
    source_records: int
    target_records: int
    has_older_source: bool
    """Whether the source has a record before the stored position."""
    is_untimed: bool
    """Whether timestamps had to be left out of the comparison."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Walk:
    logs: LaneLogs
    start: OffsetSyncAnchor
    """Where both sides are read from."""
    source_end: int
    is_last_try: bool
    source: Stretch = field(default_factory=Stretch)
    target: Stretch = field(default_factory=Stretch)
    is_untimed: bool = False


class Walker:
    """Owns a consumer on each side. Used by one thread."""

    def __init__(
        self,
        source: FingerprintReader,
        target: FingerprintReader,
        on_records: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._source, self._target, self._on_records = source, target, on_records

    def walk(self, lanes: Sequence[LaneLogs], begin: WalkFrom) -> Iterator[Walked]:
        """Each lane once, in order. Raises `BrokerError`."""
        for some in _batches(lanes):
            found: dict[TopicPartition, Walked] = {}
            walks = [_begin(logs, begin) for logs in some]
            while walks:
                self._read(walks)
                again: list[_Walk] = []
                for walk in walks:
                    walked = _judge(walk)
                    if isinstance(walked, Walked):
                        found[walk.logs.lane.id.source] = walked
                    else:
                        again.append(walked)
                walks = again
            yield from (found[logs.lane.id.source] for logs in some)

    def _read(self, walks: Sequence[_Walk]) -> None:
        """Fill the stretches of each walk as far as it has come to need them."""
        untimed = self._read_side(
            self._target,
            {walk.logs.lane.target: walk for walk in walks if not len(walk.target)},
            _target_span,
            lambda walk: walk.target,
        )
        untimed |= self._read_side(
            self._source,
            {walk.logs.lane.id.source: walk for walk in walks},
            _source_span,
            lambda walk: walk.source,
        )
        if not untimed:
            return
        # Their timestamps say nothing: both sides once more, without them.
        for walk in untimed:
            walk.source, walk.target, walk.is_untimed = Stretch(), Stretch(), True
        self._read(tuple(untimed))

    def _read_side(
        self,
        reader: FingerprintReader,
        walks: Mapping[TopicPartition, _Walk],
        span: Callable[[_Walk], OffsetRange],
        stretch: Callable[[_Walk], Stretch],
    ) -> set[_Walk]:
        clocked = reader.read(
            {at: span(walk) for at, walk in walks.items()},
            {at: stretch(walk) for at, walk in walks.items()},
            with_timestamps={at: not walk.is_untimed for at, walk in walks.items()},
            on_records=self._on_records,
        )
        return {walks[at] for at in clocked if not walks[at].is_untimed}


def _batches(lanes: Sequence[LaneLogs]) -> Iterator[list[LaneLogs]]:
    some: list[LaneLogs] = []
    records = 0
    for logs in lanes:
        if some and (records + logs.target.count > RECORDS_AT_ONCE or len(some) >= _LANES_AT_ONCE):
            yield some
            some, records = [], 0
        some.append(logs)
        records += logs.target.count
    if some:
        yield some


def _begin(logs: LaneLogs, begin: WalkFrom) -> _Walk:
    start = logs.resumed or (_newest_sync(logs) if begin is WalkFrom.SYNC else None)
    if start is None:
        return _from_earliest(logs)
    return _started(logs, start, is_last_try=logs.resumed is not None)


def last_restart(logs: LaneLogs) -> int | None:
    """Index of the last sync that goes back in the source while the target went on."""
    for index in range(len(logs.anchors) - 1, 0, -1):
        before, after = logs.anchors[index - 1], logs.anchors[index]
        if after.source_offset <= before.source_offset and (
            after.target_offset > before.target_offset
        ):
            return index
    return None


def _newest_sync(logs: LaneLogs) -> OffsetSyncAnchor | None:
    """The last one written that is not after the stored position, of records that are there."""
    if logs.stored_next is None:
        return None
    newest = _last_before(logs, logs.anchors, logs.stored_next)
    restart = last_restart(logs)
    if newest is None or restart is None:
        return newest
    begun = logs.anchors[restart]
    earlier = _last_before(logs, logs.anchors[:restart], begun.source_offset)
    if earlier is None or logs.target.end - earlier.target_offset > RESTART_RECORDS_MAX:
        return newest
    return min(newest, earlier, key=lambda anchor: anchor.target_offset)


def _last_before(
    logs: LaneLogs, anchors: Sequence[OffsetSyncAnchor], source_offset: int
) -> OffsetSyncAnchor | None:
    for anchor in reversed(anchors):
        if (
            anchor.source_offset < source_offset
            and logs.source.start <= anchor.source_offset < logs.source.end
            and logs.target.start <= anchor.target_offset < logs.target.end
        ):
            return anchor
    return None


def _from_earliest(logs: LaneLogs) -> _Walk:
    start = OffsetSyncAnchor(source_offset=logs.source.start, target_offset=logs.target.start)
    return _started(logs, start, is_last_try=True)


def _started(logs: LaneLogs, start: OffsetSyncAnchor, *, is_last_try: bool) -> _Walk:
    count = max(0, logs.target.end - start.target_offset)
    # From the first record on, the source may hold more than the target ever kept.
    since = max(start.source_offset, logs.stored_next or 0)
    return _Walk(
        logs=logs,
        start=start,
        source_end=min(logs.source.end, since + count + _MARGIN_RECORDS),
        is_last_try=is_last_try,
    )


def _target_span(walk: _Walk) -> OffsetRange:
    start = walk.start.target_offset
    return OffsetRange(start=start, end=max(start, walk.logs.target.end))


def _source_span(walk: _Walk) -> OffsetRange:
    """What is not read yet."""
    known = walk.source.offsets[-1] + 1 if len(walk.source) else walk.start.source_offset
    return OffsetRange(start=known, end=max(known, walk.source_end))


def _judge(walk: _Walk) -> Walked | _Walk:
    """What was found, or the walk to take instead."""
    logs = walk.logs
    found = align(
        walk.source,
        walk.target,
        stored_next=logs.stored_next,
        anchors=logs.anchors,
        is_compacted=logs.is_compacted,
    )
    is_whole = walk.source_end >= logs.source.end
    if not walk.is_last_try and (found.foreign_records or not _starts_there(walk, found)):
        return _from_earliest(logs)
    needs_more = found.foreign_records or found.reached == len(walk.source)
    read = walk.source_end - walk.start.source_offset
    is_far = read > _FURTHER_MAX * logs.target.count + _MARGIN_RECORDS and not logs.is_compacted
    if needs_more and len(walk.target) and not is_whole and not is_far:
        walk.source_end = min(logs.source.end, walk.source_end + max(read, _MARGIN_RECORDS))
        return walk
    older = walk.source.index_at(logs.stored_next) if logs.stored_next is not None else 0
    return Walked(
        logs=logs,
        alignment=found,
        source_from=walk.start.source_offset,
        target_from=walk.start.target_offset,
        source_records=len(walk.source),
        target_records=len(walk.target),
        has_older_source=older > 0,
        is_untimed=walk.is_untimed,
    )


def _starts_there(walk: _Walk, found: Alignment) -> bool:
    """Whether the two records of the offset sync are the same one."""
    source, target = walk.source, walk.target
    if not len(source) or not len(target) or found.next_source_offset is None:
        return False
    return (
        source.offsets[0] == walk.start.source_offset
        and target.offsets[0] == walk.start.target_offset
        and source.prints[0] == target.prints[0]
    )
