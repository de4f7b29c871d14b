"""How a copy with identical records may have come about: the least it holds. No I/O; runs anywhere.

A copy is a row of lives, see `alignment`. Where records repeat, several rows of lives make the same
copy: `aaaa` is four records, or the first two of them twice. What is known of all of them:

- no life begins after the stored position, for positions only grow,
- a life begins at or before the end of the one before it,
- everything before the stored position has arrived,
- each offset sync (a *pin*) says of one target record which source record it is.

All rows are followed at once, record by record. Records that differ leave one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_ROWS_MAX: Final = 128
RECORDS_MAX: Final = 5_000_000
"""Most records of a target that are followed this way."""

_Row = tuple[int, bool]
"""The source index a row goes on with, and whether it has come to the stored position."""
_Ends = tuple[int, int]
"""The least and the most that the rows which led here have mirrored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """The row that mirrored least."""

    segments: tuple[tuple[int, int, int], ...]
    """Target index, source index and count of its records, in order of the target."""
    least: int
    most: int
    """What the row that mirrored most has mirrored, as a source index."""


def read_lives(
    source: Sequence[int],
    target: Sequence[int],
    *,
    first: tuple[int, int],
    first_unstored: int,
    anchors: Mapping[int, int],
    is_known: Callable[[int], bool],
) -> Lives | None:
    """Every row at once; None where no row of lives makes this copy, or too many do.

    `first` are the target and the source index of the first record that was found; `anchors` are
    source indexes by target index; `is_known` says whether a fingerprint is in the source at all.
    """
    if len(target) > RECORDS_MAX:
        return None
    follower = _Follower(source, first[1], first_unstored)
    for at in range(first[0], len(target)):
        fingerprint = target[at]
        if not follower.follow(at, fingerprint, anchors.get(at)):
            if is_known(fingerprint):
                return None
            follower.skip(at)
        if len(follower.rows) > _ROWS_MAX:
            return None
    return follower.lives(first[0], len(target))


@dataclass(slots=True)
class _Follower:
    source: Sequence[int]
    begin: int
    first_unstored: int
    rows: dict[_Row, _Ends] = field(init=False)
    _origins: dict[int, dict[_Row, _Row]] = field(default_factory=dict)
    """By target index: what each row was before that record. Where one row went on as it was,
    nothing is kept."""
    _restarts: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrived = self.begin >= self.first_unstored
        self.rows = {(self.begin, arrived): (self.begin, self.begin)}
        for index in range(min(self.first_unstored + 1, len(self.source))):
            self._restarts.setdefault(self.source[index], []).append(index)

    def follow(self, at: int, fingerprint: int, pinned: int | None) -> bool:
        """Take one record of the target; whether any row has it next."""
        restarts = self._restarts.get(fingerprint, ())
        if len(self.rows) == 1 and pinned is None:
            (row, ends), *_ = self.rows.items()
            index = row[0]
            goes_on = index < len(self.source) and self.source[index] == fingerprint
            if goes_on and (not restarts or tuple(restarts) == (index,)):
                self.rows = {self._after(row[1], index): self._with(ends, index)}
                return True
        rows: dict[_Row, _Ends] = {}
        origins: dict[_Row, _Row] = {}
        for row, ends in self.rows.items():
            if row[0] < len(self.source) and self.source[row[0]] == fingerprint:
                self._reach(rows, origins, row, row[0], ends)
        for index in restarts:
            for row, ends in self.rows.items():
                if row[0] > index:
                    self._reach(rows, origins, row, index, ends)
        if pinned is not None:
            rows = {row: ends for row, ends in rows.items() if row[0] == pinned + 1}
        if not rows:
            return False
        self.rows, self._origins[at] = rows, origins
        return True

    def skip(self, at: int) -> None:
        """A foreign record."""
        self._origins[at] = {}

    def lives(self, start: int, end: int) -> Lives | None:
        arrived = {row: ends for row, ends in self.rows.items() if row[1]}
        if not arrived:
            return None
        row = min(arrived, key=lambda each: (arrived[each][0], -each[0]))
        least, most = arrived[row][0], max(ends[1] for ends in arrived.values())
        segments: list[tuple[int, int, int]] = []
        at = end
        for step in sorted(self._origins, reverse=True):
            if at > step + 1:
                segments.append((step + 1, row[0] - (at - step - 1), at - step - 1))
                row = (row[0] - (at - step - 1), row[1])
            at = step
            origin = self._origin(step, row)
            if origin is not None:
                segments.append((step, row[0] - 1, 1))
                row = origin
        if at > start:
            segments.append((start, row[0] - (at - start), at - start))
        return Lives(segments=tuple(_merged(reversed(segments))), least=least, most=most)

    def _origin(self, step: int, row: _Row) -> _Row | None:
        origins = self._origins[step]
        # A row that went on alone may have arrived in between; then only its index is the same.
        return origins.get(row) or origins.get((row[0], not row[1]))

    def _reach(
        self,
        rows: dict[_Row, _Ends],
        origins: dict[_Row, _Row],
        origin: _Row,
        index: int,
        ends: _Ends,
    ) -> None:
        row, reached = self._after(origin[1], index), self._with(ends, index)
        known = rows.get(row)
        if known is None or reached[0] < known[0]:
            origins[row] = origin
        if known is not None:
            reached = min(reached[0], known[0]), max(reached[1], known[1])
        rows[row] = reached

    def _after(self, arrived: bool, index: int) -> _Row:
        return index + 1, arrived or index + 1 >= self.first_unstored

    def _with(self, ends: _Ends, index: int) -> _Ends:
        return max(ends[0], index + 1), max(ends[1], index + 1)


def _merged(segments: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    merged: list[tuple[int, int, int]] = []
    for target, source, count in segments:
        if merged:
            last_target, last_source, last_count = merged[-1]
            if last_target + last_count == target and last_source + last_count == source:
                merged[-1] = (last_target, last_source, last_count + count)
                continue
        merged.append((target, source, count))
    return merged
