"""How far away a broker is, by its answers. Runs on driver and executors."""

from __future__ import annotations

from typing import Final

from heliograph.clock import monotonic_s

FAR_S: Final = 0.005
"""From this round trip on, one request at a time leaves a link idle for long."""
_WINDOW_S: Final = 600.0
_OVERDUE_S: Final = 5.0
_OVERDUE_ROUND_TRIPS: Final = 3.0


class RoundTrip:
    """The shortest answer of the last minutes: the others waited for something."""

    def __init__(self) -> None:
        self._best = Best(_WINDOW_S)

    def heard(self, seconds: float) -> None:
        self._best.add(-seconds)

    @property
    def seconds(self) -> float:
        """0 while nothing was heard: near, until it shows."""
        return -(self._best.value or 0.0)

    @property
    def is_far(self) -> bool:
        return self.seconds >= FAR_S

    @property
    def overdue_s(self) -> float:
        """After how long the way there and back no longer explains why there is no answer."""
        return max(_OVERDUE_S, _OVERDUE_ROUND_TRIPS * self.seconds)


class Best:
    """The largest value of the last one to two windows of time."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._since_s = monotonic_s()
        self._now: float | None = None
        self._before: float | None = None

    def add(self, value: float) -> None:
        at_s = monotonic_s()
        if at_s > self._since_s + self._window_s:
            self._before, self._now, self._since_s = self._now, None, at_s
        self._now = value if self._now is None else max(self._now, value)

    @property
    def value(self) -> float | None:
        before, now = self._before, self._now
        if before is None or now is None:
            return now if before is None else before
        return max(before, now)
