"""Chunks laid out again where runs have been written already."""

from __future__ import annotations

from heliograph.ledger.replay_guard import ReplayGuard
from heliograph.ledger.runs import Run, Runs


def run(position: int, source_offset: int, target_offset: int) -> Run:
    return Run(position=position, source_offset=source_offset, target_offset=target_offset)


def test_with_nothing_known_ahead_a_chunk_without_gaps_says_nothing() -> None:
    for ahead in (ReplayGuard(), ReplayGuard(5, 4), ReplayGuard(5, 6)):
        runs_to_write = ahead.runs_to_write(run(5, 5, 5), [])

        assert runs_to_write == []


def test_chunks_say_where_they_begin_until_they_are_past_what_is_known() -> None:
    ahead = ReplayGuard(5, 12)

    runs_to_write = [bool(ahead.runs_to_write(run(at, at, at), [])) for at in (5, 10, 15, 20)]

    assert runs_to_write == [True, True, False, False]


def test_a_chunk_that_begins_with_a_gap_says_that_once() -> None:
    ahead = ReplayGuard(5, 12)

    assert ahead.runs_to_write(run(5, 9, 5), [run(5, 9, 5)]) == [run(5, 9, 5)]
    assert ahead.runs_to_write(run(10, 14, 10), [run(11, 20, 11)]) == [
        run(10, 14, 10),
        run(11, 20, 11),
    ]


def test_a_source_that_was_compacted_since_leaves_nothing_of_the_runs_ahead() -> None:
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(10, 20, [run(10, 20, 10), run(14, 30, 14)])
    ahead = ReplayGuard(5, runs.written_until)

    # Source offsets 5 to 7 are gone, and nothing after them has a gap.
    for start, end, own in ((5, 12, [run(5, 8, 5)]), (12, 16, []), (16, 30, []), (30, 40, [])):
        runs_to_write = ahead.runs_to_write(run(start, start + 3, start), own)
        if runs_to_write:
            runs.replace_between(runs_to_write[0].position, end, runs_to_write)

    assert [runs.source_offset_at(position) for position in range(5, 50)] == list(range(8, 53))
