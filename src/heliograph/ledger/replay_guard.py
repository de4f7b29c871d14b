"""Lay out again what has runs already, without taking those back. No I/O; runs anywhere.

A mirror writes the runs of a chunk, then its batches. Its successor may find runs for records
that are not in the log. They cannot be taken back: whoever wrote them may only be slow, and a batch
that still lands would then have no runs. They cannot be trusted either: the source may have been
compacted since, and a chunk without gaps says nothing that would replace them. So while there
are such runs each chunk says where it begins, gap or not, and thus replaces just its own part.
"""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.ledger.runs import Run


class ReplayGuard:
    """What is known of a lane beyond its place when it resumed, by `Runs.written_until`."""

    __slots__ = ("_until",)

    def __init__(self, position: int = 0, written_until: int = 0) -> None:
        # A run at the very place is where the lane goes on; were it wrong, the chunk would say so.
        self._until = written_until if written_until > position + 1 else -1

    def runs_to_write(self, first: Run, runs: Sequence[Run]) -> list[Run]:
        """What the chunk that begins with `first` and has these runs of its own has to say."""
        if first.position >= self._until or (runs and runs[0].position == first.position):
            return list(runs)
        return [first, *runs]
