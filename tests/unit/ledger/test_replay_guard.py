"""Chunks laid out again where runs have been written already."""

from __future__ import annotations

from heliograph.ledger.replay_guard import Ahead, ReplayGuard
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


def test_what_lies_ahead_of_fewer_records_than_it_says_is_replaced_whole() -> None:
    """A mirror wrote runs for ten records and died; compaction left four of them; its successor
    copied those and died. What is left of the first runs would have them copied again."""
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(5, 15, [run(5, 5, 5)])
    guard = ReplayGuard(5, runs.written_until, Ahead.of(runs, 5))
    first, end = run(5, 11, 5), run(9, 15, 9)

    said = guard.runs_to_write(first, [first])
    until = guard.parts_until(end)

    assert until == 15
    runs.replace_between(5, until, [*said, end])
    assert [runs.source_offset_at(position) for position in range(5, 12)] == [
        *range(11, 15),
        *range(15, 18),
    ]
    assert guard.parts_until(run(12, 18, 12)) is None


def test_what_lies_ahead_stays_while_as_many_records_were_laid_out() -> None:
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(5, 15, [run(5, 5, 5), run(8, 20, 8)])
    guard = ReplayGuard(5, runs.written_until, Ahead.of(runs, 5))

    assert guard.parts_until(run(8, 12, 8)) is None
    assert guard.parts_until(run(9, 21, 9)) is None


def test_what_was_decided_is_known_by_source_offset() -> None:
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(5, 10, [run(5, 5, 5), run(8, 20, 8)])
    ahead = Ahead.of(runs, 6)

    assert ahead is not None
    asked = (5, 6, 7, 8, 19, 20, 21, 22)
    assert [ahead.has(at) for at in asked] == [None, True, True, False, False, True, True, None]
    assert [ahead.position_of(at) for at in asked] == [6, 6, 7, 8, 8, 8, 9, 10]
    assert Ahead.of(runs, 10) is None


def test_a_lane_that_is_past_what_was_decided_is_asked_for_it_no_more() -> None:
    """Batches are opened as long as something is decided of their records."""
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(5, 10, [run(5, 5, 5), run(8, 20, 8)])
    guard = ReplayGuard(5, runs.written_until, Ahead.of(runs, 5))

    within = (guard.parts_until(run(9, 21, 9)), guard.ahead is not None)
    past = (guard.parts_until(run(10, 22, 10)), guard.ahead is not None)

    assert (within, past) == ((None, True), (None, False))


def test_a_lane_that_parted_says_where_it_begins_until_it_is_past_what_lay_ahead() -> None:
    """A chunk that ends early leaves the map behind it to the one before, which knew less."""
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(1, 11, [run(1, 5, 1)])
    guard = ReplayGuard(1, runs.written_until, Ahead.of(runs, 1))

    # One record is left of what was laid out, then others far behind it, then no gap any more.
    for first, end, own in (
        (run(1, 5, 1), run(2, 9, 2), []),
        (run(2, 15, 2), run(6, 19, 6), [run(2, 15, 2)]),
        (run(6, 19, 6), run(9, 22, 9), []),
    ):
        said, until = guard.runs_to_write(first, own), guard.parts_until(end)
        if until is not None:
            runs.replace_between(said[0].position, until, [*said, end])
        elif said:
            runs.replace_between(said[0].position, end.position, said)

    assert [runs.source_offset_at(position) for position in range(1, 9)] == [5, *range(15, 22)]


def test_a_gap_behind_where_a_lane_parted_is_in_the_map_as_soon_as_its_chunk_is() -> None:
    """A successor may resume right behind any chunk, before the next one says where it begins."""
    runs = Runs([run(0, 0, 0)])
    runs.replace_between(1, 20, [run(1, 5, 1), run(4, 30, 4)])
    guard = ReplayGuard(1, runs.written_until, Ahead.of(runs, 1))

    for first, end, own in (
        (run(1, 100, 1), run(2, 101, 2), [run(1, 100, 1)]),
        (run(2, 114, 2), run(3, 115, 3), [run(2, 114, 2)]),
        (run(3, 115, 3), run(5, 117, 5), []),
    ):
        said, until = guard.runs_to_write(first, own), guard.parts_until(end)
        if until is not None:
            runs.replace_between(said[0].position, until, [*said, end])
        elif said:
            runs.replace_between(said[0].position, end.position, said)

        assert runs.source_offset_at(end.position) == end.source_offset
