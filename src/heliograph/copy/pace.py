"""How many bytes to keep under way over one link: found by itself. Pure; runs on executors.

A link is full while round trip x bandwidth is under way. Neither is known, but what is under way
gives the rate, and rate x round trip gives what to keep under way next: as long as the link is not
full, more under way makes more of a rate. So both grow until the rate does not, and stay there,
with enough to spare for a pause of either end.

A near link needs only what keeps both ends busy. A narrow one gets what it carries in a second, so
that an answer comes within a second or two however many lanes share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.broker.round_trip import Best, RoundTrip
from heliograph.clock import monotonic_s

_PIPELINED: Final = 3.0
"""How many times round trip x rate is under way where others fill the pause of one."""
_ALONE: Final = 9.0
"""The same for one request at a time: the link idles for a round trip after each."""
_FULL_S: Final = 1.0
"""What is under way may take so long on a link too narrow for more."""
_FULL_S_MAX: Final = 2.0
"""The same on a link so long that it takes this."""
_BYTES_MIN: Final = 32 * 1024
_RATE_WINDOW_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Departure:
    """When a request left, and how much had been answered by then."""

    at_s: float
    answered_bytes: int


class Pace:
    """Of one connection, or of several that share their work. Used by one event loop."""

    def __init__(
        self, round_trip: RoundTrip, *, first_bytes: int, near_bytes: int, bytes_max: int
    ) -> None:
        self.round_trip = round_trip
        self._first_bytes = first_bytes
        self._near_bytes = near_bytes
        self._bytes_max = bytes_max
        self._answered_bytes = 0
        self._rate = Best(_RATE_WINDOW_S)

    def departed(self) -> Departure:
        return Departure(monotonic_s(), self._answered_bytes)

    def answered(self, departure: Departure, answered_bytes: int, *, busy: bool) -> None:
        """An answer has come; `busy` when there was more to carry than could be under way."""
        self._answered_bytes += answered_bytes
        took_s = max(monotonic_s() - departure.at_s, 1e-4)
        rate = (self._answered_bytes - departure.answered_bytes) / took_s
        if busy or rate > (self._rate.value or rate):
            # A link that had nothing to carry was not slow.
            self._rate.add(rate)

    def bytes_under_way(self, *, pipelined: bool = True) -> int:
        """For all connections together; `pipelined` when one's pause is filled by another."""
        rate = self._rate.value
        if rate is None:
            return self._first_bytes
        times = _PIPELINED if pipelined else _ALONE
        long = min(times * rate * self.round_trip.seconds, rate * _FULL_S_MAX)
        narrow = min(self._near_bytes, rate * _FULL_S)
        return min(max(_BYTES_MIN, int(max(long, narrow))), self._bytes_max)
