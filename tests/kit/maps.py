"""Offset maps for tests that have runs and no ledger."""

from __future__ import annotations

from collections.abc import Sequence

from heliograph.ledger.entries import StartEntry
from heliograph.ledger.runs import Runs
from heliograph.ledger.translate import Exact, LaneEnd, OffsetMap, Translation, Unsafe
from heliograph.ledger.view import LaneRecord


def map_of(runs: Runs, end: LaneEnd, starts: Sequence[StartEntry] = ()) -> OffsetMap:
    """A lane that ends there; without `starts` nothing is unknown of what came before."""
    return OffsetMap(LaneRecord(head=None, runs=runs, losses=(), starts=tuple(starts)), end)


def offset_of(answer: Translation) -> int:
    assert not isinstance(answer, Unsafe), answer
    return answer.offset


def exact_offset(answer: Translation) -> int:
    assert isinstance(answer, Exact), answer
    return answer.offset
