"""How much of a core a slot's process uses, from what it reports. No I/O; driver."""

from __future__ import annotations

from typing import Final

_WINDOW_S: Final = 5.0
"""Over so long at least; a slot that reports nothing for longer has nothing to do."""


class CpuShare:
    """Of one process: it reports what it has used since it began, a few times a second."""

    def __init__(self) -> None:
        self._from: tuple[float, float] | None = None
        self._share = 0.0
        self._heard_s = 0.0

    def note(self, cpu_s: float, at_s: float) -> None:
        """`cpu_s` never falls, but for another process in the place of the one before."""
        if self._from is None or cpu_s < self._from[0] or at_s - self._heard_s > _WINDOW_S:
            self._from = cpu_s, at_s
        self._heard_s = at_s
        used_s, elapsed_s = cpu_s - self._from[0], at_s - self._from[1]
        if elapsed_s >= _WINDOW_S:
            self._share = used_s / elapsed_s
            self._from = cpu_s, at_s

    def share(self, at_s: float) -> float:
        """Of one core; 0 before the first window is full."""
        return self._share if at_s - self._heard_s <= 2 * _WINDOW_S else 0.0
