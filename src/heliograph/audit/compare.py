"""Compare one unit of a lane on both sides, by the map. Runs on driver and executors.

Batches that are the same bytes on both sides are not opened. Where they are cut differently their
records are compared one by one, and where records differ both sides are aligned again by content,
so that one fault is one finding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.audit.align import (
    IN_A_ROW,
    Edit,
    edits_between,
    first_agreement,
    next_agreement,
    walk,
)
from heliograph.audit.extras import Extra, FindingCollector
from heliograph.audit.findings import Finding, FindingKind, UnitResult
from heliograph.audit.reading import FETCH_BYTES, BatchView, LogReader, Record, RecordReader
from heliograph.audit.source_side import source_reader
from heliograph.audit.units import AuditUnit, UnitMap
from heliograph.broker.cluster import Cluster
from heliograph.errors import BrokerError
from heliograph.model import OffsetRange, TopicName
from heliograph.wire.batch import HEADER_BYTES

__all__ = ["Finding", "FindingKind", "Sample", "UnitResult", "compare_unit"]

_WINDOWS: Final = (64, 1_024, 16_384, 65_536)
"""How far to look for the place where both sides agree again, ever further."""
_REFRESHES_MAX: Final = 4
_REFRESH_PAUSE_S: Final = 1.0
_LEAD: Final = 64
"""Records before a unit that are aligned too, when its first ones are not where they should be."""
_SHIFT_MAX: Final = 2_048
"""How far they are searched for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A unit that is compared beside a busy flow: little is read, and nothing far from it."""

    bytes_max: int
    """Of each side, and up to half as much that is fetched in vain; the unit's records behind that
    are not judged."""
    target_records: Callable[[int], RecordReader] | None = None
    """What a consumer got of the target from an offset on; None: the target's log is read."""


async def compare_unit(
    source: Cluster, target: Cluster, unit: AuditUnit, sample: Sample | None = None
) -> UnitResult:
    """Raises `BrokerError` where a side cannot be read; what differs is in the result."""
    await _refresh(source, unit.lane.source.topic)
    await _refresh(target, unit.target.topic)
    return await _Comparison(source, target, unit, sample).run()


async def _refresh(cluster: Cluster, topic: TopicName) -> None:
    for attempt in range(_REFRESHES_MAX):
        try:
            await cluster.refresh([topic])
        except BrokerError as exc:
            if not exc.retriable or attempt == _REFRESHES_MAX - 1:
                raise
            # A broker that is just being restarted is no reason to give a unit up.
            await asyncio.sleep(_REFRESH_PAUSE_S)
        else:
            return


class _Comparison:
    def __init__(
        self, source: Cluster, target: Cluster, unit: AuditUnit, sample: Sample | None
    ) -> None:
        self._clusters = source, target
        self._unit, self._map = unit, UnitMap(unit)
        self._sample = sample
        self._source_end = unit.source_range.end
        self._source = self._source_from(unit.source_range.start)
        self._target = self._target_from(unit.target_range.start)
        self._shift = 0
        """Target offset of a record minus what the map says: unmapped faults move what follows."""
        self._equal = self._unopened = self._differing = 0
        self._bytes = 0
        self._is_settled = unit.is_first
        """Whether the unit's start is known not to be askew."""
        self._found = FindingCollector(unit)

    async def run(self) -> UnitResult:
        try:
            await self._walk()
            if self._unit.target_end is not None:
                await self._tail(self._unit.target_end)
            elif self._shift < 0:
                await self._boundary()
            self._bytes += self._source.bytes + self._target.bytes
        finally:
            await self._source.close()
            await self._target.close()
        self._found.is_timeless = self._source.is_timeless
        tally, repaired = await self._found.judged(
            *self._clusters, searches_far=self._sample is None
        )
        unit, judged = self._unit, self._equal + self._differing
        return UnitResult(
            lane=unit.lane,
            target=unit.target,
            start_position=unit.start_position,
            end_position=unit.end_position,
            records=judged,
            equal_records=self._equal,
            bytes=self._bytes,
            unopened_records=self._unopened,
            expired_records=max(0, unit.records - judged),
            findings=tuple(tally.findings),
            counts=dict(tally.counts),
            repaired=repaired,
            timestamps_compared=not self._source.is_timeless,
            left_out_records=self._source.left_out,
            brought_records=self._source.others,
            others_records=self._target.others,
        )

    async def _walk(self) -> None:
        while True:
            if self._has_read_enough():
                return
            ours = await self._source.head()
            if ours is None or ours.offset >= self._source_end:
                return
            theirs = await self._target.head()
            if theirs is None:
                if await self._moved_start():
                    continue
                await self._rest_is_missing()
                return
            await self._step(ours, theirs)

    def _has_read_enough(self) -> bool:
        sample = self._sample
        return sample is not None and any(
            side.is_drained and side.bytes >= sample.bytes_max
            for side in (self._source, self._target)
        )

    async def _step(self, ours: BatchView, theirs: BatchView) -> None:
        """Pass at least one record on one side."""
        if theirs.is_append_time:
            # The target keeps the time of its own append; the source's is lost by its settings.
            self._source.is_timeless = self._target.is_timeless = True
        place = self._map.of_source(ours.offset)
        extent = min(ours.count, place.extent, self._source_end - ours.offset)
        if place.position is None:
            self._missing(ours, extent, theirs.offset)
            return
        wanted = self._map.target_at(place.position) + self._shift
        if theirs.offset < wanted:
            self._before(theirs, min(theirs.count, wanted - theirs.offset), ours.offset)
        elif theirs.offset > wanted:
            # A hole: compaction removed it, or it lies before the log's start.
            self._source.take(min(extent, theirs.offset - wanted))
        elif extent >= ours.count == theirs.count and _same_bytes(ours, theirs):
            self._equal += ours.count
            self._unopened += ours.count
            self._pass(ours.count)
        else:
            await self._records(ours, theirs, min(extent, theirs.count))

    def _before(self, theirs: BatchView, count: int, source_offset: int) -> None:
        """Target records before the next one's place: others', or ones the source has lost."""
        place = self._map.of_target(theirs.offset - self._shift)
        count = min(count, place.extent)
        if place.position is None:
            self._extra(theirs, count, source_offset)
        self._target.take(count)

    async def _records(self, ours: BatchView, theirs: BatchView, count: int) -> None:
        left = self._source.contents(ours, count)
        right = self._target.contents(theirs, count)
        agreeing = count if left == right else _common(left, right)
        if agreeing:
            self._equal += agreeing
            self._pass(agreeing)
        if agreeing < count and not await self._moved_start():
            await self._realign()

    def _pass(self, count: int) -> None:
        # A few records may agree by chance: two that were swapped, and one more before the unit.
        self._is_settled |= self._equal >= IN_A_ROW
        self._source.take(count)
        self._target.take(count)

    async def _realign(self) -> None:
        """Both sides stand at records that differ; find out how, and where they agree again."""
        self._is_settled = True
        far = _WINDOWS[-1] if self._sample is None else max(_WINDOWS[0], self._unit.records)
        for window in (each for each in _WINDOWS if each <= far):
            block = _Block(await self._source.window(window), await self._target.window(window))
            at_end = len(block.ours) < window and len(block.theirs) < window
            found = next_agreement(block.ours, block.theirs, at_end=at_end)
            if found is not None:
                break
        x, y = found or (min(len(block.ours), len(block.theirs)),) * 2
        edited = sum(
            self._note(block, edit) for edit in edits_between(block.ours[:x], block.theirs[:y])
        )
        inside = sum(offset < self._source_end for offset in block.source_offsets[:x])
        self._equal += max(0, inside - edited)
        if x < len(block.ours) and y < len(block.theirs):
            place = self._map.of_source(block.source_offsets[x])
            if place.position is not None:
                self._shift = block.target_offsets[y] - self._map.target_at(place.position)
        self._source.take(x)
        self._target.take(y)

    def _note(self, block: _Block, edit: Edit) -> int:
        """Keep what an edit says of this unit; how many of its source records it took."""
        if edit.kind == "extra":
            self._note_extra(block, edit)
            return 0
        inside = [
            n
            for n in range(edit.source_start, edit.source_end)
            if block.source_offsets[n] < self._source_end
        ]
        if not inside:
            return 0
        if edit.kind == "missing":
            for n in inside:
                self._note_missing(block, n, edit.target_start)
        elif edit.kind == "changed":
            target_offset = block.target_offsets[edit.target_start]
            self._differing += 1
            self._found.changed(
                block.source_offsets[edit.source_start],
                target_offset,
                block.ours[edit.source_start],
                block.theirs[edit.target_start],
            )
        else:
            self._differing += len(inside)
            self._found.swapped(
                block.source_span(edit.source_start, edit.source_end),
                block.target_span(edit.target_start, edit.target_end),
            )
        return len(inside)

    def _note_missing(self, block: _Block, index: int, target_index: int) -> None:
        offset = block.source_offsets[index]
        place = self._map.of_source(offset)
        if place.position is not None:
            wanted = self._map.target_at(place.position) + self._shift
            if block.is_target_hole(wanted):
                return
            self._differing += 1
        self._found.missing(offset, block.target_place(target_index), block.ours[index])

    def _note_extra(self, block: _Block, edit: Edit) -> None:
        follows = block.source_offsets[edit.source_start : edit.source_start + 1]
        if self._unit.target_end is None and (not follows or follows[0] >= self._source_end):
            # It comes before a record of the next unit, which will tell of it.
            return
        for n in range(edit.target_start, edit.target_end):
            offset = block.target_offsets[n]
            place = self._map.of_target(offset - self._shift)
            if place.position is not None and block.is_source_hole(
                self._map.source_at(place.position)
            ):
                continue
            before = follows[0] if follows else self._source_end
            self._found.extra(Extra(offset, block.theirs[n], before))

    def _missing(self, ours: BatchView, count: int, target_offset: int) -> None:
        for offset, content in enumerate(self._source.contents(ours, count), ours.offset):
            self._found.missing(offset, target_offset, content)
        self._source.take(count)

    def _extra(self, theirs: BatchView, count: int, source_offset: int) -> None:
        for offset, content in enumerate(self._target.contents(theirs, count), theirs.offset):
            self._found.extra(Extra(offset, content, source_offset))

    async def _rest_is_missing(self) -> None:
        """The target's log ended before the unit did."""
        ends_at: int | None = None
        while (ours := await self._source.head()) is not None and ours.offset < self._source_end:
            place = self._map.of_source(ours.offset)
            count = min(ours.count, place.extent, self._source_end - ours.offset)
            if place.position is not None:
                wanted = self._map.target_at(place.position) + self._shift
                if wanted < self._target.log_start:
                    self._source.take(min(count, self._target.log_start - wanted))
                    continue
                ends_at = wanted if ends_at is None else ends_at
                self._differing += count
            self._missing(ours, count, self._target.log_start if ends_at is None else ends_at)

    async def _boundary(self) -> None:
        """Extra records right at the end, if they put right what was askew.

        The next unit then finds its first record where it should be, and looks at nothing before.
        """
        next_start = self._unit.target_range.end
        _, ours = await self._source.window(IN_A_ROW)
        offsets, theirs = await self._target.window(IN_A_ROW - self._shift)
        before = sum(offset < next_start for offset in offsets)
        if ours and theirs[before : before + len(ours)] == ours:
            for n in range(before):
                self._found.extra(Extra(offsets[n], theirs[n], self._source_end))

    async def _tail(self, target_end: int) -> None:
        """What lies behind the lane's last record, up to where the log ended."""
        while (theirs := await self._target.head()) is not None and theirs.offset < target_end:
            place = self._map.of_target(theirs.offset - self._shift)
            count = min(theirs.count, target_end - theirs.offset, place.extent)
            if place.position is None and not self._is_own(theirs):
                self._extra(theirs, count, self._source_end)
            self._target.take(count)

    def _is_own(self, piece: BatchView) -> bool:
        """Whether the flow itself wrote it: mirrored after the unit was cut."""
        wrote = piece.header.producer_id if piece.header is not None else -1
        return wrote >= 0 and wrote == self._unit.producer_id

    async def _moved_start(self) -> bool:
        """Whether the unit's first records are elsewhere than the map says; both are read anew.

        Faults before the unit move what follows, and one may reach over its start. So both sides
        are aligned from a little before it; what begins there the unit before tells of.
        """
        if self._is_settled:
            return False
        self._is_settled = True
        unit = self._unit
        begin = unit.source_range.start - _LEAD, unit.target_range.start - _LEAD
        ours, theirs = self._source_from(begin[0]), self._target_from(begin[1] - _SHIFT_MAX)
        ours.is_timeless = theirs.is_timeless = self._target.is_timeless
        try:
            block = _Block(
                await ours.window(_LEAD + _SHIFT_MAX), await theirs.window(_LEAD + 2 * _SHIFT_MAX)
            )
        finally:
            self._bytes += ours.bytes + theirs.bytes
            await ours.close()
            await theirs.close()
        until = sum(offset < unit.source_range.start for offset in block.source_offsets)
        likely = sum(offset < begin[1] for offset in block.target_offsets)
        at = first_agreement(block.ours[:until], block.theirs, likely)
        at_end = len(block.ours) < _LEAD + _SHIFT_MAX and len(block.theirs) < _LEAD + 2 * _SHIFT_MAX
        walked = None if at is None else walk(block.ours, block.theirs, at, until, at_end=at_end)
        if walked is None:
            return False
        edits, x, y = walked
        if x >= len(block.ours) or y >= len(block.theirs):
            return False
        place = self._map.of_source(block.source_offsets[x])
        if place.position is None:
            return False
        self._shift = block.target_offsets[y] - self._map.target_at(place.position)
        if x == until and self._shift == 0:
            return False
        self._found.forget()
        self._equal = self._unopened = self._differing = 0
        inside = [edit for edit in edits if edit.source_start >= until]
        self._equal += x - until - sum(self._note(block, edit) for edit in inside)
        await self._reposition(block.source_offsets[x], block.target_offsets[y])
        return True

    async def _reposition(self, source_offset: int, target_offset: int) -> None:
        self._bytes += self._source.bytes + self._target.bytes
        await self._source.close()
        await self._target.close()
        is_timeless = self._source.is_timeless
        self._source = self._source_from(source_offset)
        self._target = self._target_from(target_offset)
        self._source.is_timeless = self._target.is_timeless = is_timeless

    def _source_from(self, start: int) -> RecordReader:
        return source_reader(
            self._clusters[0],
            self._clusters[1],
            self._unit,
            start,
            likely_end=self._source_end,
            fetch_bytes_max=self._fetch_bytes_max(),
        )

    def _target_from(self, start: int) -> RecordReader:
        unit, sample = self._unit, self._sample
        if sample is not None and sample.target_records is not None:
            return sample.target_records(start)
        end = unit.target_range.end if unit.target_end is None else unit.target_end
        return LogReader(
            self._clusters[1],
            unit.target,
            start,
            # A transaction of somebody else's that is open must not hide what is behind it.
            read_committed=False,
            likely_end=end,
            fetch_bytes_max=self._fetch_bytes_max(),
            left_out_until=None if unit.writers is None else self._map.others_until,
        )

    def _fetch_bytes_max(self) -> int:
        # A sample's last fetch may have been in vain, so it should not be all of it.
        return (
            FETCH_BYTES if self._sample is None else min(FETCH_BYTES, self._sample.bytes_max // 2)
        )


class _Block:
    """The next records of both sides, from a difference on."""

    def __init__(
        self, source: tuple[list[int], list[Record]], target: tuple[list[int], list[Record]]
    ) -> None:
        self.source_offsets, self.ours = source
        self.target_offsets, self.theirs = target
        self._known = frozenset(self.source_offsets), frozenset(self.target_offsets)

    def source_span(self, start: int, end: int) -> OffsetRange:
        return OffsetRange(start=self.source_offsets[start], end=self.source_offsets[end - 1] + 1)

    def target_span(self, start: int, end: int) -> OffsetRange:
        return OffsetRange(start=self.target_offsets[start], end=self.target_offsets[end - 1] + 1)

    def target_place(self, index: int) -> int:
        """Where a record that is not there would stand."""
        if index < len(self.target_offsets):
            return self.target_offsets[index]
        return self.target_offsets[-1] + 1 if self.target_offsets else 0

    def is_source_hole(self, offset: int) -> bool:
        return _is_hole(offset, self.source_offsets, self._known[0])

    def is_target_hole(self, offset: int) -> bool:
        return _is_hole(offset, self.target_offsets, self._known[1])


def _is_hole(offset: int, offsets: list[int], known: frozenset[int]) -> bool:
    return bool(offsets) and offsets[0] < offset < offsets[-1] and offset not in known


def _common(left: Sequence[Record], right: Sequence[Record]) -> int:
    """How many records agree from the first on."""
    return next(
        (n for n, (one, other) in enumerate(zip(left, right, strict=False)) if one != other),
        min(len(left), len(right)),
    )


def _same_bytes(ours: BatchView, theirs: BatchView) -> bool:
    """Whether both are whole batches with the same records, without opening either."""
    one, other = ours.header, theirs.header
    if ours.view is None or theirs.view is None or one is None or other is None:
        return False
    return (
        one.size_bytes == other.size_bytes
        and one.compression == other.compression
        and one.base_timestamp_ms == other.base_timestamp_ms
        and one.max_timestamp_ms == other.max_timestamp_ms
        # A bytearray compares at the speed of memory; a view compares byte by byte.
        and bytearray(ours.view[HEADER_BYTES:]) == theirs.view[HEADER_BYTES:]
    )
