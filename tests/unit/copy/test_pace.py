"""What is kept under way fills a link, whatever it is, and no more."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import pytest

from heliograph.broker import round_trip as round_trips
from heliograph.broker.round_trip import RoundTrip
from heliograph.copy import pace as paces
from heliograph.copy.pace import Pace

MB = 1_000_000
MIB = 1024 * 1024


@dataclass(slots=True)
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(paces, "monotonic_s", made)
    monkeypatch.setattr(round_trips, "monotonic_s", made)
    return made


def new_pace() -> Pace:
    return Pace(RoundTrip(), first_bytes=256 * 1024, near_bytes=16 * MIB, bytes_max=64 * MIB)


def share_used(
    pace: Pace,
    clock: Clock,
    *,
    streams: int,
    bytes_per_s: float,
    round_trip_s: float,
    seconds: float = 30.0,
) -> float:
    """Of a link over which each of `streams` has one request under way, in its later half."""
    began_s, free_s, carried = clock.now_s, clock.now_s, 0.0
    due = [(clock.now_s, stream) for stream in range(streams)]
    asked: dict[int, tuple[paces.Departure, int]] = {}
    while due[0][0] < began_s + seconds:
        clock.now_s, stream = heapq.heappop(due)
        if stream in asked:
            departure, size = asked.pop(stream)
            pace.answered(departure, size, busy=True)
            pace.round_trip.heard(round_trip_s)
            if clock.now_s > began_s + seconds / 2:
                carried += size
        size = pace.bytes_under_way(pipelined=streams > 1) // streams
        asked[stream] = (pace.departed(), size)
        free_s = max(free_s, clock.now_s + round_trip_s) + size / bytes_per_s
        heapq.heappush(due, (free_s, stream))
    return carried / (bytes_per_s * seconds / 2)


@pytest.mark.parametrize(
    ("bytes_per_s", "round_trip_s"),
    [(20 * MB, 0.05), (60 * MB, 0.2), (0.1 * MB, 0.3), (5 * MB, 0.3), (1000 * MB, 0.0005)],
)
@pytest.mark.parametrize("streams", [2, 4])
def test_a_few_streams_fill_a_link(
    clock: Clock, streams: int, bytes_per_s: float, round_trip_s: float
) -> None:
    used = share_used(
        new_pace(), clock, streams=streams, bytes_per_s=bytes_per_s, round_trip_s=round_trip_s
    )

    assert used > 0.95


def test_one_stream_asks_for_more_at_once(clock: Clock) -> None:
    used = share_used(new_pace(), clock, streams=1, bytes_per_s=20 * MB, round_trip_s=0.05)

    assert used > 0.85


def test_a_near_link_gets_what_keeps_both_ends_busy(clock: Clock) -> None:
    pace = new_pace()

    share_used(pace, clock, streams=1, bytes_per_s=1000 * MB, round_trip_s=0.0005, seconds=1)

    assert pace.bytes_under_way(pipelined=False) == 16 * MIB


@pytest.mark.parametrize("round_trip_s", [0.001, 0.3])
def test_a_narrow_link_gets_what_it_carries_in_a_second(clock: Clock, round_trip_s: float) -> None:
    pace = new_pace()

    share_used(pace, clock, streams=4, bytes_per_s=100_000, round_trip_s=round_trip_s)

    assert 32 * 1024 <= pace.bytes_under_way() <= 100_000


def test_a_link_that_became_narrow_gets_less_and_gets_more_when_it_is_wide_again(
    clock: Clock,
) -> None:
    pace = new_pace()
    wide, narrow = 60.0 * MB, 1.0 * MB
    share_used(pace, clock, streams=4, bytes_per_s=wide, round_trip_s=0.2)
    at_first = pace.bytes_under_way()
    share_used(pace, clock, streams=4, bytes_per_s=narrow, round_trip_s=0.2, seconds=90)
    meanwhile = pace.bytes_under_way()
    used = share_used(pace, clock, streams=4, bytes_per_s=wide, round_trip_s=0.2)

    assert at_first > 12 * MB > 2 * MB > meanwhile
    assert used > 0.95


def test_what_may_be_under_way_is_bounded(clock: Clock) -> None:
    pace = new_pace()

    share_used(pace, clock, streams=4, bytes_per_s=1000 * MB, round_trip_s=0.3)

    assert pace.bytes_under_way() == 64 * MIB


def test_a_link_that_had_nothing_to_carry_was_not_slow(clock: Clock) -> None:
    pace = new_pace()
    share_used(pace, clock, streams=4, bytes_per_s=60 * MB, round_trip_s=0.2)
    before = pace.bytes_under_way()
    for _ in range(100):
        departure = pace.departed()
        clock.now_s += 0.5
        pace.answered(departure, 1_000, busy=False)

    assert pace.bytes_under_way() == before
