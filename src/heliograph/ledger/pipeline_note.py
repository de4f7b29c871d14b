"""How a pipeline of a flow is, as the flow's ledger has it. Runs anywhere.

One memo for each pipeline, written by the driver that leads the flow when something is new: so
`heliograph status` and a standby see what a driver elsewhere does, or did last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from heliograph.errors import WireError
from heliograph.ledger.entries import TEXT_CHARS_MAX, MemoEntry
from heliograph.ledger.memo import Memo
from heliograph.ledger.view import LedgerView

_PREFIX: Final = "pipeline-state|"

_Count = Annotated[int, Field(ge=0)]


class PipelineState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STALLED = "stalled"
    PAUSED = "paused"
    ENDED = "ended"
    """All that was there has been written, where that was the end; or the driver has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFigures:
    """Of one pipeline, at one moment."""

    name: Annotated[str, Field(max_length=TEXT_CHARS_MAX)]
    state: PipelineState
    reason: Annotated[str, Field(max_length=TEXT_CHARS_MAX)] = ""
    """Why it is stalled or paused."""
    at_ms: _Count
    batch: int | None = None
    """The last that was written."""
    batch_ms: _Count | None = None
    """How long it took, from its trigger to Spark's commit."""
    batch_at_ms: _Count | None = None
    """When it began."""
    records_read: _Count = 0
    """By this driver; so with `rows_written` and `restarts`."""
    rows_written: _Count = 0
    rows_left_out: _Count = 0
    """Those that could not be written, where the pipeline is told to skip them."""
    records_per_s: float | None = None
    """Read in the last batch that had some."""
    lag_records: _Count | None = None
    """At the source, behind what was read."""
    restarts: _Count = 0


_MEMO: Final[Memo[PipelineFigures]] = Memo(PipelineFigures)


def pipeline_note(figures: PipelineFigures) -> MemoEntry:
    short = replace(figures, reason=figures.reason[:TEXT_CHARS_MAX])
    return _MEMO.entry(f"{_PREFIX}{figures.name}", short)


def pipeline_figures(view: LedgerView, names: Iterable[str]) -> tuple[PipelineFigures, ...]:
    """Of those that the file has and some driver has run."""
    found = (_read(view, name) for name in names)
    return tuple(each for each in found if each is not None)


def _read(view: LedgerView, name: str) -> PipelineFigures | None:
    try:
        return _MEMO.read(view, f"{_PREFIX}{name}")
    except WireError:
        return None  # the next one replaces it
