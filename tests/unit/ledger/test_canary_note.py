"""What canaries say, and what is made of those that arrive."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.canary_note import (
    GAPS_MAX,
    RECENT_MAX,
    TRACKS_MAX,
    Canary,
    CanaryNote,
    Track,
    arrived,
    canary_entry,
    canary_note,
    decode,
    encode,
)
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.view import LedgerView

FIRST = Canary(flow="A->B", source="A", sequence=0, sent_ms=1_000, interval_s=60, driver="h (1)")


def tracked(*sequences: int) -> Track:
    track: Track | None = None
    for sequence in sequences:
        track = arrived(track, replace(FIRST, sequence=sequence), 1_000 + sequence)
    assert track is not None
    return track


def test_a_canary_is_json_that_anyone_can_read_and_comes_back_whole() -> None:
    key, value = encode(FIRST)

    assert key == b"A->B"
    assert value.startswith(b'{"v": 1, "flow": "A->B", "source": "A", "sequence": 0, "sent_ms"')
    assert decode(value) == FIRST


@pytest.mark.parametrize(
    "value", [None, b"", b"x", b"[]", b'{"v": 1}', b"\xff", b"[" * 100_000, b'{"sequence": -1}']
)
def test_what_is_no_canary_is_left_out(value: bytes | None) -> None:
    assert decode(value) is None


@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_it_raise(value: bytes) -> None:
    assert decode(value) is None


@pytest.mark.parametrize(
    ("sequences", "seen", "missing", "late", "repeated", "gaps"),
    [
        ((0, 1, 2), 3, 0, 0, 0, ()),
        ((0, 3), 2, 2, 0, 0, (1, 2)),
        ((0, 3, 1), 2, 1, 1, 0, (2,)),
        ((0, 1, 1), 2, 0, 0, 1, ()),
        ((5, 6), 2, 0, 0, 0, ()),
        ((0, 2, 1, 1), 2, 0, 1, 1, ()),
    ],
)
def test_gaps_order_and_repeats_are_told_apart(
    sequences: tuple[int, ...],
    seen: int,
    missing: int,
    late: int,
    repeated: int,
    gaps: tuple[int, ...],
) -> None:
    track = tracked(*sequences)

    assert (track.seen, track.missing, track.late, track.repeated) == (
        seen,
        missing,
        late,
        repeated,
    )
    assert track.gaps == gaps


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=100))
def test_a_track_is_bounded_and_loses_no_canary(sequences: list[int]) -> None:
    track = tracked(*sequences)

    assert track.seen + track.late + track.repeated == len(sequences)
    assert track.missing >= len(track.gaps)
    assert len(track.gaps) <= GAPS_MAX
    assert len(track.recent) <= RECENT_MAX
    assert sum(track.counts) == track.seen


def test_what_was_there_before_anyone_looked_has_no_latency() -> None:
    track = arrived(None, FIRST, 9_000, hop_ms=5, was_there=True)

    assert (track.latency_ms, track.hop_ms, sum(track.counts)) == (None, None, 0)


def test_a_clock_that_is_behind_makes_no_negative_latency() -> None:
    assert arrived(None, FIRST, 500).latency_ms == 0


@pytest.mark.parametrize(
    ("note", "late_s"),
    [
        (CanaryNote(at_ms=0, interval_s=60), 40.0),
        (CanaryNote(at_ms=0, interval_s=60, sent_ms=90_000), 0.0),
        (CanaryNote(at_ms=0, interval_s=60, sent_ms=30_000), 10.0),
        (CanaryNote(at_ms=0, interval_s=60, sent_ms=90_000, waiting_ms=20_000), 80.0),
    ],
)
def test_a_canary_is_late_from_when_it_was_sent_or_from_when_it_was_due(
    note: CanaryNote, late_s: float
) -> None:
    assert note.late_s(100_000) == late_s


def test_the_note_comes_back_bounded_and_one_that_cannot_be_read_is_none() -> None:
    many = tuple(
        replace(tracked(0), flow=f"{number}->B", seen_ms=number) for number in range(TRACKS_MAX + 5)
    )
    note = CanaryNote(at_ms=1, interval_s=60, tracks=many, problem="x" * 1_000)
    view, broken = LedgerView(), LedgerView()

    view.apply(canary_entry(note))
    broken.apply(MemoEntry(subject="canary", text='{"v": 1, "at_ms": "soon"}'))

    back = canary_note(view)
    assert back is not None
    assert len(back.tracks) == TRACKS_MAX
    assert back.track(f"{TRACKS_MAX + 4}->B") is not None
    assert back.track("0->B") is None
    assert len(back.problem) == 300
    assert canary_note(broken) is None
