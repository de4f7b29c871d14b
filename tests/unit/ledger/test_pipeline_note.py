from __future__ import annotations

from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.entry_codec import encode
from heliograph.ledger.pipeline_note import (
    PipelineFigures,
    PipelineState,
    pipeline_figures,
    pipeline_note,
)
from heliograph.ledger.view import LedgerView

FIGURES = PipelineFigures(
    name="p",
    state=PipelineState.STALLED,
    reason="x" * 1_000,
    at_ms=5,
    batch=3,
    batch_ms=40,
    batch_at_ms=4,
    lag_records=0,
    records_per_s=1.5,
)


def test_what_was_noted_is_read_of_pipelines_that_the_file_has() -> None:
    view = LedgerView()
    for entry in (
        pipeline_note(FIGURES),
        MemoEntry(subject="pipeline-state|strange", text='{"v":1,"x":3}'),
    ):
        view.apply_record(*encode(entry))

    (found,) = pipeline_figures(view, ["p", "strange", "never-run"])

    assert (found.state, found.batch, found.lag_records) == (PipelineState.STALLED, 3, 0)
    assert found.reason == "x" * 255
    assert pipeline_figures(view, []) == ()
