"""Two sequences of records that differ: where they agree again, and how they differ until there.

No I/O; runs anywhere. A fault must not make everything behind it look different, so after a
difference both sides are searched for the next place where several records in a row agree. What
the map says is preferred: the same number of records on both sides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal

IN_A_ROW: Final = 8
"""Records that must agree before both sides count as aligned again."""
_SAME_PLACE_MAX: Final = 64
_IN_PLACE_GRACE: Final = 2
"""Records more that may be passed to agree in the same place; the map says that they should."""
_PLACES_MAX: Final = 16
"""Of one content that are tried; with more, any of them is as good."""
_FINE_MAX: Final = 2_000
"""Records of a block that is looked into closely; longer ones are told apart in place only."""

EditKind = Literal["missing", "extra", "changed", "swapped"]


@dataclass(frozen=True, slots=True)
class Edit:
    """Records `[source_start, source_end)` of one side and of the other, counted from the
    difference."""

    kind: EditKind
    source_start: int
    source_end: int
    target_start: int
    target_end: int


def next_agreement(
    source: Sequence[Hashable], target: Sequence[Hashable], *, at_end: bool
) -> tuple[int, int] | None:
    """How many records of each side to pass until both agree again; None when nowhere in sight.

    `at_end` says that there is nothing behind either sequence, so that fewer records in a row are
    enough at the very end.
    """
    in_place = next(
        (
            passed
            for passed in range(min(_SAME_PLACE_MAX, len(source), len(target)) + 1)
            if _agree(source, target, passed, passed, at_end)
        ),
        None,
    )
    if in_place is not None and in_place <= 1:
        return in_place, in_place
    moved = _nearest(source, target, at_end)
    if in_place is not None and (moved is None or 2 * in_place <= sum(moved) + _IN_PLACE_GRACE):
        return in_place, in_place
    if moved is None and at_end:
        return len(source), len(target)
    return moved


def _nearest(
    source: Sequence[Hashable], target: Sequence[Hashable], at_end: bool
) -> tuple[int, int] | None:
    """The agreement for which the fewest records are passed."""
    locations: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, content in enumerate(target):
        known = locations[content]
        if len(known) < _PLACES_MAX:
            known.append(index)
    best: tuple[int, int] | None = None
    for x, content in enumerate(source):
        if best is not None and x > sum(best):
            break
        for y in locations.get(content, ()):
            if best is not None and x + y >= sum(best):
                break
            if _agree(source, target, x, y, at_end):
                best = x, y
    return best


def first_agreement(
    source: Sequence[Hashable], target: Sequence[Hashable], likely: int
) -> tuple[int, int] | None:
    """The first records of the source that are on the target too, nearest to `likely` there."""
    locations: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, content in enumerate(target):
        locations[content].append(index)
    for x, content in enumerate(source):
        found = [y for y in locations.get(content, ()) if _agree(source, target, x, y, False)]
        if found:
            return x, min(found, key=lambda y: abs(y - x - likely))
    return None


def walk(
    source: Sequence[Hashable],
    target: Sequence[Hashable],
    at: tuple[int, int],
    until: int,
    *,
    at_end: bool,
) -> tuple[list[Edit], int, int] | None:
    """From a place where both agree to record `until` of the source: what differs, and where both
    stand then, which is further on if a difference reaches over it. None when they lose each other.
    """
    x, y = at
    edits: list[Edit] = []
    while x < until and y < len(target):
        if source[x] == target[y]:
            x, y = x + 1, y + 1
            continue
        passed = next_agreement(source[x:], target[y:], at_end=at_end)
        if passed is None:
            return None
        edits += [
            Edit(
                edit.kind,
                edit.source_start + x,
                edit.source_end + x,
                edit.target_start + y,
                edit.target_end + y,
            )
            for edit in edits_between(source[x : x + passed[0]], target[y : y + passed[1]])
        ]
        x, y = x + passed[0], y + passed[1]
    return edits, x, y


def edits_between(source: Sequence[Hashable], target: Sequence[Hashable]) -> list[Edit]:
    """How the target's block differs from the source's; both are short, neither need be."""
    if not source or not target:
        return _replaced(0, len(source), 0, len(target))
    in_place = _in_place(source, target)
    if in_place is not None and len(in_place) <= 1:
        return in_place
    if max(len(source), len(target)) > _FINE_MAX:
        return in_place or _replaced(0, len(source), 0, len(target))
    fine = _fine(source, target)
    if in_place is not None and _cost(in_place) <= _cost(fine):
        return in_place
    return fine


def _agree(
    source: Sequence[Hashable], target: Sequence[Hashable], x: int, y: int, at_end: bool
) -> bool:
    here = min(IN_A_ROW, len(source) - x, len(target) - y)
    if here < IN_A_ROW:
        ends_together = len(source) - x == len(target) - y
        if not (at_end and ends_together):
            return False
    return source[x : x + here] == target[y : y + here]


def _in_place(source: Sequence[Hashable], target: Sequence[Hashable]) -> list[Edit] | None:
    """Differences where both blocks are of a length: each record in its place."""
    if len(source) != len(target):
        return None
    differing = [n for n in range(len(source)) if source[n] != target[n]]
    if len(differing) > 1 and Counter(source[n] for n in differing) == Counter(
        target[n] for n in differing
    ):
        start, end = differing[0], differing[-1] + 1
        return [Edit("swapped", start, end, start, end)]
    return [Edit("changed", n, n + 1, n, n + 1) for n in differing]


def _fine(source: Sequence[Hashable], target: Sequence[Hashable]) -> list[Edit]:
    matcher = SequenceMatcher(None, source, target, autojunk=False)
    edits: list[Edit] = []
    for tag, s0, s1, t0, t1 in matcher.get_opcodes():
        if tag != "equal":
            edits += _replaced(s0, s1, t0, t1)
    return edits


def _replaced(s0: int, s1: int, t0: int, t1: int) -> list[Edit]:
    both = min(s1 - s0, t1 - t0)
    edits = [Edit("changed", s0 + n, s0 + n + 1, t0 + n, t0 + n + 1) for n in range(both)]
    if s1 - s0 > both:
        edits.append(Edit("missing", s0 + both, s1, t1, t1))
    if t1 - t0 > both:
        edits.append(Edit("extra", s1, s1, t0 + both, t1))
    return edits


def _cost(edits: list[Edit]) -> int:
    return sum(
        max(edit.source_end - edit.source_start, edit.target_end - edit.target_start)
        for edit in edits
    )
