"""Rows with a far cluster: what they are, and what share of their link is a success."""

from __future__ import annotations

import pytest

from heliograph_tools.bench.copying import CopyRun
from heliograph_tools.bench.report import verdicts
from heliograph_tools.bench.rows import ROWS, FarRow, Side, System, choose_rows
from heliograph_tools.bench.suite import RowResult, one_line


def _run(share: float) -> CopyRun:
    return CopyRun(
        system=System.HELIOGRAPH,
        round_index=0,
        records=100,
        seconds=1.0,
        records_per_s=100.0,
        link_share=share,
    )


def test_both_links_are_measured_before_source_and_target_plain_and_compressed() -> None:
    far = [row for row in ROWS if isinstance(row, FarRow)]

    assert len(far) == len({row.name for row in far}) == 8
    assert {(row.far, row.round_trip_ms, row.bytes_per_s) for row in far} == {
        (side, round_trip_ms, bytes_per_s)
        for side in Side
        for round_trip_ms, bytes_per_s in ((50, 20_000_000), (200, 60_000_000))
    }


@pytest.mark.parametrize(("share", "reached"), [(0.95, True), (0.5, False)])
def test_nine_tenths_of_the_link_are_the_goal(share: float, reached: bool) -> None:
    (row,) = choose_rows(("far_source_50ms_20mb",), 1.0)

    told = verdicts(RowResult(row=row, runs=(_run(share),), failures=()))

    assert [verdict.reached for verdict in told if "share" in verdict.measure] == [reached]


def test_a_run_over_a_link_tells_its_share() -> None:
    assert one_line(_run(0.5)) == "heliograph 100 records/s, 50% of the link"
