"""Entries that take back nothing of what is known, whenever they land."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest

from heliograph.ledger.entries import (
    RunsEntry,
    keeps_sources,
    new_author,
    new_corrector,
    new_predictor,
    only_raises,
)
from heliograph.ledger.runs import Runs
from tests.kit.lane_records import lane_record, runs, start


def predicted(*of: tuple[int, int, int], end_position: int) -> RunsEntry:
    return replace(runs(*of, end_position=end_position), author=new_predictor())


def corrected(*of: tuple[int, int, int], end_position: int) -> RunsEntry:
    return replace(runs(*of, end_position=end_position), author=new_corrector())


def folded(*entries: RunsEntry) -> Runs:
    return lane_record(start(), *entries).runs


def offsets(found: Runs, *positions: int) -> list[tuple[int, int]]:
    return [(found.source_offset_at(at), found.target_offset_at(at)) for at in positions]


def test_an_author_says_of_itself_what_it_takes_back() -> None:
    for _ in range(100):
        assert not only_raises(new_author())
        assert only_raises(new_predictor())
        assert only_raises(new_corrector())
        assert not keeps_sources(new_author())
        assert not keeps_sources(new_predictor())
        assert keeps_sources(new_corrector())


def test_a_prediction_that_lands_late_lowers_nothing() -> None:
    """Its writer had not seen the ten records of others in front of position 4."""
    true = predicted((4, 5, 14), end_position=8)

    found = folded(true, predicted((4, 5, 4), end_position=20))

    assert offsets(found, 3, 4, 7, 8, 19, 30) == [
        (3, 3),
        *((n + 1, n + 10) for n in (4, 7, 8, 19, 30)),
    ]


def test_a_prediction_that_saw_more_than_what_is_there_counts() -> None:
    found = folded(predicted((4, 5, 4), end_position=8), predicted((6, 7, 9), end_position=8))

    assert offsets(found, 4, 5, 6, 7, 8) == [(5, 4), (6, 5), (7, 9), (8, 10), (9, 11)]


def test_what_lies_behind_is_pushed_on_as_far_as_it_must() -> None:
    """Nobody has seen it there, so nothing contradicts itself."""
    ahead = predicted((4, 5, 4), (8, 10, 8), (12, 20, 30), end_position=16)

    found = folded(ahead, predicted((6, 7, 12), end_position=8))

    assert found.overlap_at is None
    assert offsets(found, 5, 6, 8, 11, 12) == [(6, 5), (7, 12), (10, 14), (13, 17), (20, 30)]


def test_a_correction_says_nothing_of_source_offsets_that_somebody_wrote() -> None:
    """Its writer guessed that position 10 is source offset 10, and 12 is 12."""
    chunk = predicted((10, 14, 10), end_position=12)

    found = folded(chunk, corrected((10, 10, 13), end_position=14))

    assert offsets(found, 10, 11, 12, 13) == [(14, 13), (15, 14), (12, 15), (13, 16)]


def test_runs_without_a_sign_replace_what_is_there_as_ever() -> None:
    found = folded(predicted((4, 5, 14), end_position=8), runs((4, 6, 4), end_position=8))

    assert offsets(found, 4, 7) == [(6, 4), (9, 7)]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_predictions_of_one_source_fold_to_one_map_in_any_order(order: tuple[int, ...]) -> None:
    entries = (
        predicted((4, 5, 4), end_position=20),
        predicted((4, 5, 14), end_position=8),
        corrected((6, 7, 17), end_position=7),
        predicted((10, 12, 25), end_position=12),
    )

    found = folded(*(entries[index] for index in order))

    targets = [target for _, target in offsets(found, *range(12))]
    assert targets == [0, 1, 2, 3, 14, 15, 17, 18, 19, 20, 25, 26]
