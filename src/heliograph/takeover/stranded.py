"""Groups that an adoption would leave without a place on the target. No I/O; driver only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from heliograph.groups.reading import GroupOffsets
from heliograph.takeover.verdict import LaneFinding, Verdict
from heliograph.takeover.walk import WalkFrom
from heliograph.words import counted

_PLACES_NAMED_MAX: Final = 3


def notes_on_stranded(
    groups: GroupOffsets, lanes: Iterable[LaneFinding], begin: WalkFrom
) -> Iterator[str]:
    """A sentence for each group with committed offsets from before the map of an adopted lane.

    The map begins where the comparison does, and cannot be extended once the lane is adopted.
    """
    begins = {lane.lane.source: at for lane in lanes if (at := _map_begins(lane)) is not None}
    cure = (
        "; `--from earliest` compares, and maps, all that both clusters still have"
        if begin is WalkFrom.SYNC
        else "; the clusters no longer hold, or do not share, what lies before"
    )
    for group, offsets in sorted(groups.items()):
        behind = [
            f"{at} at {stood.offset:,}, mapped from {begins[at]:,}"
            for at, stood in sorted(offsets.items())
            if at in begins and stood.offset < begins[at]
        ]
        if behind:
            named = ", ".join(behind[:_PLACES_NAMED_MAX])
            more = len(behind) - _PLACES_NAMED_MAX
            yield (
                f"group {group}: {counted(len(behind), 'committed offset')} would have no place on "
                f"the target ({named}{f' and {more} more' if more > 0 else ''}){cure}"
            )


def _map_begins(lane: LaneFinding) -> int | None:
    """The first source offset that will translate; None where all that did goes on to do so."""
    if lane.verdict is not Verdict.ADOPT or lane.resumed_position is not None:
        return None
    return lane.runs[0].source_offset if lane.runs else lane.next_source_offset
