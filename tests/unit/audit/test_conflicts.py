"""Which keys were written on both sides within a window, by writes in order of time."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from heliograph.audit import conflicts
from heliograph.audit.conflicts import (
    KeyConflict,
    Place,
    Summary,
    TopicConflicts,
    Write,
    bucket_of,
    judged,
    summarised,
)

WINDOW_MS = 100


def write(side: int, at_ms: int, key: bytes = b"k", topic: str = "orders") -> Write:
    return Write(topic, key, at_ms, side, 0, at_ms)


def found(*writes: Write) -> list[KeyConflict]:
    rows = judged(sorted(writes), WINDOW_MS)
    return [row for row in rows if isinstance(row, KeyConflict)]


@pytest.mark.parametrize(
    ("times", "conflicting"),
    [
        ([(0, 0), (1, 100)], (1, 1)),
        ([(0, 0), (1, 101)], None),
        ([(0, 5), (1, 5)], (1, 1)),
        ([(0, 0), (0, 50), (1, 100), (0, 300)], (2, 1)),
        ([(0, 0), (0, 50), (1, 120), (1, 500)], (1, 1)),
        ([(0, 0), (0, 0), (1, 1), (1, 101), (0, 201)], (3, 2)),
        ([(0, 0), (0, 1)], None),
    ],
)
def test_writes_of_both_sides_within_the_window_are_in_conflict(
    times: list[tuple[int, int]], conflicting: tuple[int, int] | None
) -> None:
    conflict = found(*(write(side, 1_000 + at_ms) for side, at_ms in times))

    assert [one.conflicting for one in conflict] == ([] if conflicting is None else [conflicting])


def test_the_closest_two_are_named() -> None:
    (one,) = found(write(0, 1_000), write(1, 1_090), write(0, 2_000), write(1, 2_010))

    assert (one.closest_ms, one.first_ms, one.last_ms) == (10, 1_090, 2_010)
    assert one.closest == (Place(0, 2_000, 2_000), Place(0, 2_010, 2_010))


def test_as_many_as_comparing_each_with_each_finds() -> None:
    draw = random.Random(7)
    for _ in range(50):
        writes = [write(draw.randrange(2), draw.randrange(1, 600)) for _ in range(30)]

        assert sum(one.records for one in found(*writes)) == _by_pairs(writes)


def _by_pairs(writes: Sequence[Write]) -> int:
    return sum(
        any(one.side != two.side and abs(one.at_ms - two.at_ms) <= WINDOW_MS for two in writes)
        for one in writes
    )


def test_keys_and_topics_do_not_meet_each_other_and_an_empty_key_is_a_key() -> None:
    rows = [
        write(0, 1, b"a"),
        write(1, 1, b"b"),
        write(1, 1, b"a", "logs"),
        write(0, 1, b""),
        write(1, 2, b""),
    ]

    (one,) = found(*rows)

    assert (one.topic, one.key) == ("orders", b"")
    assert len({bucket_of(row) for row in rows}) == 4


def test_counts_of_parts_add_up_and_the_worst_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conflicts, "WORST_MAX", 2)
    parts = [
        [write(0, 1, b"a"), write(1, 1, b"a"), write(0, 1, b"alone")],
        [write(0, 1, b"b"), write(1, 1, b"b"), write(1, 2, b"b"), write(0, 1, b"c")],
        [write(1, 9, b"d"), write(0, 1, b"d")],
    ]
    summary = Summary()

    for part in parts:
        summary.add(summarised(judged(sorted(part), WINDOW_MS)))

    assert [one.key for one in summary.worst] == [b"b", b"a"]
    assert summary.topics == {
        "orders": TopicConflicts(
            topic="orders",
            keys=5,
            keys_on_both=3,
            keys_in_conflict=3,
            writes=[5, 4],
            conflicting=[3, 4],
        )
    }


def test_a_key_that_is_written_without_end_on_one_side_is_not_kept() -> None:
    passed = conflicts._Key("orders", b"hot", WINDOW_MS)

    for at_ms in range(10_000):
        passed.take(write(0, 1 + at_ms // 10))

    assert len(passed._alone[0]) <= WINDOW_MS + 1
