"""How two topics differ is told in numbers and by the first place."""

from __future__ import annotations

from tests.kit.records import Rec, difference


def test_equal_records_at_other_offsets_do_not_differ() -> None:
    assert difference([rec(b"a", 0), rec(b"b", 1)], [rec(b"a", 10), rec(b"b", 11)]) is None


def test_a_repeated_record_is_counted_and_placed() -> None:
    told = difference([rec(b"a", 0), rec(b"b", 1)], [rec(b"a", 0), rec(b"a", 1), rec(b"b", 2)])

    assert told is not None
    assert "0 lost, 1 repeated, 0 never at the source" in told
    assert "first difference at record 1: source offset 1 key b'b'" in told


def test_a_lost_tail_is_told_where_it_begins() -> None:
    told = difference([rec(b"a", 0), rec(b"b", 1)], [rec(b"a", 0)])

    assert told is not None
    assert "1 lost" in told
    assert "target has no more" in told


def test_swapped_records_are_a_difference_though_nothing_is_lost() -> None:
    told = difference([rec(b"a", 0), rec(b"b", 1)], [rec(b"b", 0), rec(b"a", 1)])

    assert told is not None
    assert "0 lost, 0 repeated, 0 never" in told


def test_a_record_from_elsewhere_is_not_called_repeated() -> None:
    told = difference([rec(b"a", 0)], [rec(b"a", 0), rec(b"x", 1)])

    assert told is not None
    assert "0 lost, 0 repeated, 1 never at the source" in told


def rec(key: bytes, offset: int) -> Rec:
    return Rec(key=key, value=b"v", headers=(), timestamp_ms=1, offset=offset)
