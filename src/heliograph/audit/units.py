"""A stretch of a lane to audit, and where its records are on both sides. No I/O; runs anywhere."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from heliograph.config.transforms import TransformConfig
from heliograph.errors import InvariantError
from heliograph.ledger.kept import left_out_until
from heliograph.ledger.runs import Run
from heliograph.model import LaneId, OffsetRange, TopicPartition
from heliograph.wire.batch import BatchHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneWriters:
    """Whose records a lane leaves out where both sides take writes under one name."""

    brought: frozenset[int]
    """Producers of the mirrors that wrote on the source what this flow does not send on."""
    own: frozenset[int]
    """Producers of the flow: what others wrote on the target is none of its work."""
    kept: OffsetRange
    """Source offsets that are sent on whoever wrote them (`ledger.kept`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditUnit:
    """Positions `[start_position, end_position)` of a lane.

    What lies between the record before the first one and the first belongs to the unit: on the
    source it must be nothing that a mirror should have copied, on the target it is others' work.
    """

    lane: LaneId
    target: TopicPartition
    start_position: int
    end_position: int
    runs: tuple[Run, ...]
    """In order; the first covers `start_position`, none begins at or after `end_position`."""
    is_compacted: bool = False
    read_committed: bool = True
    transforms: tuple[TransformConfig, ...] = ()
    """Of the flow, as it is configured now."""
    left_out: tuple[OffsetRange, ...] = ()
    """Source offsets of records that could not be mirrored: dead letters, and those skipped."""
    source_start: int | None = None
    """After the record before the unit; None: at the unit's first record."""
    target_start: int | None = None
    source_end: int | None = None
    """Where the lane stood on the source; None: after the unit's last record."""
    target_end: int | None = None
    """Where the target's log ended, in the lane's last unit; None in every other. Up to there what
    this flow's producer did not write is looked at too."""
    producer_id: int = -1
    writers: LaneWriters | None = None
    """None where the flow takes everything and nobody else writes on the target."""

    def __post_init__(self) -> None:
        if not self.runs or not self.runs[0].position <= self.start_position < self.end_position:
            raise InvariantError(f"{self.lane}: not a unit: {self.start_position}..")

    @property
    def records(self) -> int:
        return self.end_position - self.start_position

    @property
    def is_first(self) -> bool:
        """Whether the unit begins where its lane does, so that nothing before it can be askew."""
        return self.source_start is None

    @property
    def source_range(self) -> OffsetRange:
        first, last = self._run_at(self.start_position), self._last()
        start = first.source_offset if self.source_start is None else self.source_start
        end = last.source_offset + 1 if self.source_end is None else self.source_end
        return OffsetRange(start=start, end=max(start, end))

    @property
    def target_range(self) -> OffsetRange:
        """Of the unit's records by the map, and of others' before them."""
        first, last = self._run_at(self.start_position), self._last()
        start = first.target_offset if self.target_start is None else self.target_start
        return OffsetRange(start=start, end=max(start, last.target_offset + 1))

    def _last(self) -> Run:
        return self._run_at(self.end_position - 1)

    def _run_at(self, position: int) -> Run:
        index = bisect_right(self.runs, position, key=lambda run: run.position) - 1
        return self.runs[index].at(position)


@dataclass(frozen=True, slots=True)
class Place:
    """What an offset is by the map."""

    position: int | None
    """None where no mirrored record is."""
    extent: int
    """How many offsets from here on are of the same kind, each with the next position."""


_ENDLESS = 1 << 62


class UnitMap:
    """Offsets of a unit to positions. Asked in ascending order mostly, so the last run is kept."""

    def __init__(self, unit: AuditUnit) -> None:
        runs = list(unit.runs)
        runs[0] = runs[0].at(unit.start_position)
        self._positions = [run.position for run in runs]
        self._counts = [
            end - start
            for start, end in zip(
                self._positions, [*self._positions[1:], unit.end_position], strict=True
            )
        ]
        self._sources = [run.source_offset for run in runs]
        self._targets = [run.target_offset for run in runs]
        self._writers = unit.writers

    def of_source(self, offset: int) -> Place:
        return self._place(self._sources, offset)

    def of_target(self, offset: int) -> Place:
        return self._place(self._targets, offset)

    def brought_until(self, header: BatchHeader) -> int:
        """Before which offset a batch of the source is left out: a mirror brought it."""
        writers = self._writers
        if writers is None:
            return header.base_offset
        until = left_out_until(header, writers.brought, writers.kept)
        # What was copied before `loop.prevention` said otherwise is compared as well.
        is_copied = until == header.next_offset and self._is_mapped(self._sources, header)
        return header.base_offset if is_copied else until

    def others_until(self, header: BatchHeader) -> int:
        """Before which offset somebody else wrote a batch of the target, where others may: all of
        it, or nothing."""
        writers = self._writers
        is_others = (
            writers is not None
            and header.producer_id not in writers.own
            and not self._is_mapped(self._targets, header)
        )
        return header.next_offset if is_others else header.base_offset

    def source_at(self, position: int) -> int:
        index = self._index(position)
        return self._sources[index] + position - self._positions[index]

    def target_at(self, position: int) -> int:
        index = self._index(position)
        return self._targets[index] + position - self._positions[index]

    def _index(self, position: int) -> int:
        return max(0, bisect_right(self._positions, position) - 1)

    def _is_mapped(self, offsets: list[int], header: BatchHeader) -> bool:
        place = self._place(offsets, header.base_offset)
        return place.position is not None or header.base_offset + place.extent < header.next_offset

    def _place(self, offsets: list[int], offset: int) -> Place:
        index = bisect_right(offsets, offset) - 1
        if index >= 0:
            into = offset - offsets[index]
            if into < self._counts[index]:
                return Place(self._positions[index] + into, self._counts[index] - into)
        after = offsets[index + 1] if index + 1 < len(offsets) else offset + _ENDLESS
        return Place(None, after - offset)
