"""Maps corrected by what is in the log."""

from __future__ import annotations

from heliograph.ledger.correction import Correction
from heliograph.ledger.runs import Run, Runs


def run(position: int, source_offset: int, target_offset: int) -> Run:
    return Run(position=position, source_offset=source_offset, target_offset=target_offset)


def corrected(runs: Runs, correction: Correction, position: int, end: int) -> Runs:
    runs.replace_from(correction.runs(position, end))
    return runs


def test_a_map_that_is_right_needs_no_correction() -> None:
    runs = Runs([run(0, 0, 0), run(10, 20, 10)])
    correction = Correction(runs, 0)

    correction.see(0, 8, 0)
    correction.see(8, 12, 8)

    assert correction.position == 20
    assert correction.runs(20, 20) == []


def test_records_of_others_move_all_runs_after_them_those_ahead_too() -> None:
    runs = Runs([run(0, 0, 0), run(10, 20, 10), run(30, 50, 30)])
    correction = Correction(runs, 0)

    correction.see(0, 5, 0)
    correction.see(5, 15, 8)

    assert list(corrected(runs, correction, 20, 23)) == [
        run(0, 0, 0),
        run(5, 5, 8),
        run(10, 20, 13),
        run(30, 50, 33),
    ]


def test_records_of_others_at_the_end_move_what_comes_next() -> None:
    runs = Runs([run(0, 0, 0)])
    correction = Correction(runs, 0)

    correction.see(0, 5, 0)

    assert list(corrected(runs, correction, 5, 9)) == [run(0, 0, 0), run(5, 5, 9)]


def test_a_contradiction_inside_a_batch_is_corrected_where_it_is() -> None:
    runs = Runs([run(0, 0, 0), run(5, 5, 8)])
    runs.replace_between(10, 15, [run(10, 20, 10)])
    assert runs.overlap_at == 10
    correction = Correction(runs, 5)

    correction.see(0, 5, 0)
    correction.see(5, 15, 8)

    fixed = corrected(runs, correction, 20, 23)
    assert fixed.overlap_at is None
    assert [fixed.target_offset_at(position) for position in (5, 10, 19)] == [8, 13, 22]
    assert fixed.source_offset_at(19) == 29


def test_a_contradiction_whose_records_are_deleted_yields_to_what_is_there() -> None:
    runs = Runs([run(0, 0, 0), run(5, 5, 8)])
    runs.replace_between(10, 15, [run(10, 20, 10)])
    correction = Correction(runs, 5)

    correction.see(18, 2, 21)

    fixed = corrected(runs, correction, 20, 23)
    assert fixed.overlap_at is None
    assert fixed.target_offset_at(18) == 21


def test_batches_before_the_anchor_are_passed_over() -> None:
    runs = Runs([run(0, 0, 0)])
    correction = Correction(runs, 10)

    correction.see(0, 10, 100)

    assert correction.position is None
