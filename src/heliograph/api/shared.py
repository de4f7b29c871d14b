"""Costly answers, made once for all who ask at the same time or soon after. Driver only."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from heliograph.clock import monotonic_s

T = TypeVar("T")

WORTH_S: Final = 0.05
"""What is made in less is made anew for each who asks."""
COST_SHARE: Final = 0.25
"""Of the time, at most, one answer is being made: one of 150 ms is given for 600 ms."""
_KEPT_MAX: Final = 16


@dataclass(slots=True)
class _Kept(Generic[T]):
    making: asyncio.Lock = field(default_factory=asyncio.Lock)
    until_s: float = 0.0
    answer: T | None = None


class Shared(Generic[T]):
    """Belongs to the driver's loop."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept[T]] = OrderedDict()

    async def get(self, question: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """The answer to `question`, by `make` where none is recent enough."""
        kept = self._kept.setdefault(question, _Kept())
        self._kept.move_to_end(question)
        if len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)
        async with kept.making:
            if kept.answer is not None and monotonic_s() < kept.until_s:
                return kept.answer
            began_s = monotonic_s()
            kept.answer = None
            answer = await make()
            took_s = monotonic_s() - began_s
            if took_s >= WORTH_S:
                kept.answer, kept.until_s = answer, monotonic_s() + took_s / COST_SHARE
            return answer
