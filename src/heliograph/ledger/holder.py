"""The process that holds a flow's lease, as another process sees it. Runs on the driver.

No wall clock is compared: that of either side may be wrong, or jump. A lease that others hold lasts
until it was seen unrenewed for its whole time by the clock of whoever looks, which cannot jump.
"""

from __future__ import annotations

import math

from heliograph.clock import monotonic_s
from heliograph.ledger.entries import LeaseEntry
from heliograph.processes import Liveness, liveness_of


class HolderWatch:
    """How long a lease lasts that another process holds, counted from the last renewal seen."""

    def __init__(self) -> None:
        self._holder: LeaseEntry | None = None
        self._ends_s = -math.inf

    @property
    def holder(self) -> LeaseEntry | None:
        """As it was seen last."""
        return self._holder

    @property
    def left_s(self) -> float:
        """Seconds until the lease is over; not above 0 where it is, or where none was seen."""
        return self._ends_s - monotonic_s()

    @property
    def expired(self) -> LeaseEntry | None:
        """The lease that may be taken over; None where none was seen, or while it lasts."""
        return self._holder if self.left_s <= 0 else None

    def see(self, holder: LeaseEntry) -> bool:
        """Whether the holder renewed since it was last seen here; not at the first sight of it."""
        before, self._holder = self._holder, holder
        if before == holder:
            return False
        self._ends_s = monotonic_s() + holder.lease_ms / 1000
        return before is not None and before.author == holder.author

    def expire(self) -> None:
        """The holder let go or is dead: what it said last counts no more."""
        self._ends_s = -math.inf


def is_gone(holder: LeaseEntry) -> bool:
    """Whether the holder was a process of this machine that is gone: its lease need not end."""
    return liveness_of(holder.author, holder.pid) is Liveness.GONE


def is_here(holder: LeaseEntry) -> bool:
    """Whether the holder is a process of this machine that runs."""
    return liveness_of(holder.author, holder.pid) is Liveness.ALIVE
