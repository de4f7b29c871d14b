"""What an offset of one side of a lane becomes on the other. No I/O; runs anywhere.

Exact means: the mirrored records after the answer are those after the question, no more and no
fewer. Where there is no exact answer, the nearest one that skips nothing is given and marked. Where
even that cannot be told there is a reason instead of an offset, and no group may be moved.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from heliograph.ledger.entries import StartEntry
from heliograph.ledger.view import LaneRecord
from heliograph.model import OffsetRange

Side = Literal["before", "after", "coarse"]
"""`before`: the consumer had yet to read records that are not on the other side. `after`: it had
read further than what is mirrored, and will read that part again. `coarse`: the ledger has
forgotten the exact offsets there, and the consumer will read some records again."""
_Cluster = Literal["source", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEnd:
    """The first record that is not mirrored: where it would be on each side."""

    position: int
    source_next_offset: int
    target_next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Exact:
    offset: int
    """The consumer's next offset on the other side."""

    @property
    def side(self) -> Side | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamped:
    """The nearest offset that skips no mirrored record."""

    offset: int
    side: Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsafe:
    """Every offset that could be given might skip records that are on the other side."""

    reason: str


Translated = Exact | Clamped
Translation = Translated | Unsafe


class OffsetMap:
    """The map of one lane up to its end; all rules about what may be translated are in here."""

    __slots__ = ("_end", "_others", "_record", "_runs", "unsafe")

    def __init__(self, record: LaneRecord, end: LaneEnd) -> None:
        self._record, self._runs, self._end = record, record.runs, end
        self.unsafe = self._unusable()
        """Set where no offset at all can be translated."""
        self._others = () if self.unsafe else tuple(_stretches_of_others(record, end))

    def to_target(self, source_next_offset: int) -> Translation:
        """Where a consumer of the source continues on the target; never past what is mirrored."""
        if self.unsafe is not None:
            return self.unsafe
        runs, end, asked = self._runs, self._end, source_next_offset
        if (of_others := self._of_others("source", asked)) is not None:
            return of_others
        if asked >= end.source_next_offset:
            return _at_end(end.target_next_offset, is_beyond=asked > end.source_next_offset)
        if runs.exact_from >= end.position:
            return self._before("source", asked, end.source_next_offset, end.target_next_offset)
        position = runs.position_of_source(asked)
        if position >= end.position:
            # What the consumer has not read yet lies in a gap at the end: nothing of it is
            # mirrored.
            return Exact(offset=end.target_next_offset)
        first, offset = (
            runs.source_offset_at(runs.exact_from),
            runs.target_offset_at(position),
        )
        return (
            self._before("source", asked, first, offset) if asked < first else Exact(offset=offset)
        )

    def to_source(self, target_next_offset: int) -> Translation:
        """Where a consumer of the target continues on the source; others' records count as read."""
        if self.unsafe is not None:
            return self.unsafe
        runs, end, asked = self._runs, self._end, target_next_offset
        if (of_others := self._of_others("target", asked)) is not None:
            return of_others
        if asked >= end.target_next_offset:
            return _at_end(end.source_next_offset, is_beyond=asked > end.target_next_offset)
        if runs.exact_from >= end.position:
            return self._before("target", asked, end.target_next_offset, end.source_next_offset)
        # Records of a source topic that has been replaced are not there to be read again.
        restart = runs.exact_from
        position = max(runs.position_of_target(asked), restart)
        if position >= end.position:
            return Exact(offset=end.source_next_offset)
        first, offset = runs.target_offset_at(restart), runs.source_offset_at(position)
        return (
            self._before("target", asked, first, offset) if asked < first else Exact(offset=offset)
        )

    def _unusable(self) -> Unsafe | None:
        overlap_at = self._runs.overlap_at
        if overlap_at is not None:
            return Unsafe(
                reason="the ledger contradicts itself until the lane is resynced: two runs claim "
                f"the same target offsets at position {overlap_at}"
            )
        if not self._runs.explains(self._end.position):
            return Unsafe(
                reason=f"the lane is at position {self._end.position}, and the ledger has no run "
                "for it"
            )
        return None

    def _of_others(self, side: _Cluster, asked: int) -> Unsafe | None:
        for source, target in self._others:
            stretch = source if side == "source" else target
            if stretch.start <= asked < stretch.end:
                return Unsafe(
                    reason=f"{side} offset {asked} is among those that another mirror copied: "
                    f"[{stretch.start}, {stretch.end}) went to offsets the ledger does not know"
                )
        return None

    def _before(self, side: _Cluster, asked: int, first: int, nearest: int) -> Translation:
        """By an anchor, where the runs there were forgotten. Otherwise the first offset known,
        unless the other side has records before it."""
        starts, restart = self._record.starts, self._runs.source_restart_position
        anchors = self._runs.anchors
        if anchors is not None:
            is_source = side == "source"
            here, there = anchors[1:] if is_source else (anchors.targets, anchors.sources)
            index = bisect_right(here, asked) - 1
            if index >= 0:
                is_anchor = here[index] == asked
                offset = there[index]
                return Exact(offset=offset) if is_anchor else Clamped(offset=offset, side="coarse")
            first, nearest = here[0], there[0]
        if not has_unknown_before(starts, restart):
            return Clamped(offset=nearest, side="before")
        what = "adopted" if starts[0].position >= restart else "reset"
        return Unsafe(
            reason=f"{side} offset {asked} is from before the lane was {what}: what came before "
            f"{side} offset {first} was mirrored at offsets the ledger does not know"
        )


def _stretches_of_others(
    record: LaneRecord, end: LaneEnd
) -> Iterator[tuple[OffsetRange, OffsetRange]]:
    """Source and target offsets between ours that another mirror carried the lane through."""
    for start in record.starts[1:]:
        before = start.position - 1
        if start.adopted and start.position <= end.position and record.runs.explains(before):
            source = record.runs.source_offset_at(before) + 1
            target = record.runs.target_offset_at(before) + 1
            if source <= start.source_offset and target <= start.target_offset:
                yield (
                    OffsetRange(start=source, end=start.source_offset),
                    OffsetRange(start=target, end=start.target_offset),
                )


def has_unknown_before(starts: Sequence[StartEntry], first_position: int) -> bool:
    """Whether the source has records before the first run that went to unknown target offsets.

    So it is where the lane was adopted, since MirrorMaker 2 copied what came before; and where it
    was sent back, since what was copied before that is at other offsets of the target than what
    the map says. After a topic that was created again there is nothing before.
    """
    before = [start for start in starts if start.position < first_position]
    if not before:
        return bool(starts) and starts[0].adopted
    here = next((start for start in starts if start.position == first_position), None)
    return here is None or here.source_topic_id == before[-1].source_topic_id


def _at_end(offset: int, *, is_beyond: bool) -> Translated:
    return Clamped(offset=offset, side="after") if is_beyond else Exact(offset=offset)


def translated(answer: Translation) -> Translated | None:
    """The answer where there is an offset; for those that leave out what has none."""
    return None if isinstance(answer, Unsafe) else answer
