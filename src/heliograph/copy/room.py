"""How much a slot keeps in memory, shared out by flow and target broker. Runs on executors.

A share may hold as much as is still free. So one that nobody empties, of a target that hangs, takes
half of the slot and leaves the other half; two of them take a third each. No share is reserved, so
a slot with one flow is not cut into parts that nobody uses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.model import FlowId

FETCH_BYTES_MIN: Final = 256 * 1024
"""What a fetch may bring however little is free: a broker gives at least one batch anyway."""


@dataclass(slots=True, eq=False)
class Share:
    """What is kept for the lanes of one flow that one target broker leads."""

    kept_bytes: int = 0
    is_open: bool = True
    """Whether more may be fetched for these lanes."""
    closed_s: float = 0.0
    """When it was closed last."""


class Room:
    """Used by one event loop; `on_change` hears of each share that was closed or opened."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.kept_bytes = 0
        self._shares: dict[tuple[FlowId, int], Share] = {}
        self._closed: list[Share] = []
        self.streams = 0
        """Fetch streams with lanes: each may have a fetch under way."""
        self.on_change: Callable[[Share], None] = lambda _: None

    def share(self, flow: FlowId, target_broker: int) -> Share:
        return self._shares.setdefault((flow, target_broker), Share())

    def kept(self, share: Share, more_bytes: int) -> None:
        """So many bytes more (or fewer) are kept for the share's lanes."""
        share.kept_bytes += more_bytes
        self.kept_bytes += more_bytes
        if share.is_open and share.kept_bytes >= self._free_bytes:
            share.is_open, share.closed_s = False, monotonic_s()
            self._closed.append(share)
            self.on_change(share)
        for each in tuple(self._closed) if more_bytes < 0 else ():
            # Not at once, or a share at its bound would be opened and closed with every batch.
            if each.kept_bytes < self._free_bytes // 2:
                each.is_open = True
                self._closed.remove(each)
                self.on_change(each)

    @property
    def is_short(self) -> bool:
        """Whether nothing may be fetched for some lanes."""
        return bool(self._closed)

    def fetch_bytes(self, wanted: int) -> int:
        """What one fetch may bring, so that all that are under way find room together."""
        return min(wanted, max(FETCH_BYTES_MIN, self._free_bytes // max(1, self.streams)))

    @property
    def _free_bytes(self) -> int:
        return max(0, self.bytes_max - self.kept_bytes)
