"""How a limit is divided among the slots that carry its lanes. No I/O; driver.

Slots whose lanes have caught up are given little more than they use; what they leave goes to slots
with lanes that are behind, by the number of those. The shares never add up to more than the limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.model import SlotId

_HEADROOM: Final = 1.25
"""A slot that keeps up may take so many times what it took lately."""
_LEAST_SHARE: Final = 0.02
"""Of an even part: enough for a lane that begins to be seen to be behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What the lanes of one limit ask of one slot."""

    lanes: int
    behind: int = 0
    """Lanes with more to copy than a moment's worth."""
    bytes_per_s: float = 0.0


def divide(bytes_per_s: int, demands: Mapping[SlotId, Demand]) -> dict[SlotId, int]:
    """A share for every slot with a lane, of 1 byte a second at least."""
    wanted = {slot: demand for slot, demand in demands.items() if demand.lanes}
    lanes = sum(demand.lanes for demand in wanted.values())
    behind = sum(demand.behind for demand in wanted.values())
    shares: dict[SlotId, float] = {}
    if not behind:
        # Nothing says who needs more: by lanes, as everything else would be a guess.
        shares = {slot: bytes_per_s * demand.lanes / lanes for slot, demand in wanted.items()}
    else:
        left = float(bytes_per_s)
        for slot, demand in wanted.items():
            even = bytes_per_s * demand.lanes / lanes
            if not demand.behind:
                used = max(_HEADROOM * demand.bytes_per_s, _LEAST_SHARE * even)
                shares[slot] = min(used, even)
                left -= shares[slot]
        for slot, demand in wanted.items():
            if demand.behind:
                shares[slot] = left * demand.behind / behind
    return {slot: max(1, int(share)) for slot, share in shares.items()}
