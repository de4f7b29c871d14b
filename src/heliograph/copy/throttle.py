"""How many bytes a second lanes may fetch together. Runs on executors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from heliograph.clock import monotonic_s

_SAVED_S: Final = 0.2
"""So many seconds' worth may be saved up."""
_FETCH_S: Final = 0.2
"""So many seconds' worth is fetched at once, by all lanes together."""
_SMOOTH_SAVED_S: Final = 0.06
"""Instead, where others must not wait for what is fetched at once; more than a fetch waits while
its lanes have to (`fetching.WAIT_MS_THROTTLED`)."""
_SMOOTH_FETCH_S: Final = 0.02
_SMOOTH_BYTES: Final = 262_144
"""And no more, where this takes more than the time below: what a broker is busy with for a moment,
others wait for, however high the rate is."""
_SMOOTH_FETCH_S_MIN: Final = 0.005
_FETCH_BYTES_MIN: Final = 1024


class Throttle:
    """A token bucket in bytes that lanes share; it may go into debt by one fetch of each, and they
    wait that off."""

    def __init__(
        self,
        clock_s: Callable[[], float] = monotonic_s,
        *,
        counts_written: bool = False,
        is_smooth: bool = False,
    ) -> None:
        """`counts_written`: not what the source sent, but what is left of it for the target.
        `is_smooth`: little at once, at the cost of more fetches."""
        self._clock_s, self.counts_written = clock_s, counts_written
        self._saved_s = _SMOOTH_SAVED_S if is_smooth else _SAVED_S
        self._is_smooth = is_smooth
        self._bytes_per_s: int | None = None
        self._tokens = 0.0
        self._at_s = clock_s()
        self.lanes = 0
        """How many keep it."""

    def set_rate(self, bytes_per_s: int | None) -> None:
        """What was taken too much at the old rate is waited off at the new one."""
        self._gain()
        if bytes_per_s is None or self._bytes_per_s is None:
            self._tokens = 0.0
        self._bytes_per_s = bytes_per_s

    def spend(self, spent_bytes: int) -> float:
        """Take what was fetched; returns the seconds to wait before the next fetch, 0 when none."""
        if self._bytes_per_s is None:
            return 0.0
        self._gain()
        self._tokens -= spent_bytes
        return max(0.0, -self._tokens / self._bytes_per_s)

    @property
    def fetch_bytes(self) -> int | None:
        """The most one lane should fetch at once: all that fetch together overdraw little."""
        if self._bytes_per_s is None:
            return None
        share = self._at_once(self._bytes_per_s) // max(1, self.lanes)
        # Rounded, or a session would hear of another size with every new rate.
        return max(_FETCH_BYTES_MIN, 1 << max(0, share.bit_length() - 1))

    def _at_once(self, bytes_per_s: int) -> int:
        if not self._is_smooth:
            return int(bytes_per_s * _FETCH_S)
        most = max(_SMOOTH_BYTES, int(bytes_per_s * _SMOOTH_FETCH_S_MIN))
        return min(int(bytes_per_s * _SMOOTH_FETCH_S), most)

    def _gain(self) -> None:
        at_s = self._clock_s()
        if self._bytes_per_s is not None:
            gained = self._tokens + (at_s - self._at_s) * self._bytes_per_s
            # Little is saved up, or a pause would be followed by a flood.
            self._tokens = min(gained, self._saved_s * self._bytes_per_s)
        self._at_s = at_s
