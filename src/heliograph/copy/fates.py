"""What may happen to a lane, as the two sides of the shuttle see it. Runs on executors."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from heliograph.copy.lane import CarriedLane
from heliograph.errors import MirrorError, NotAuthorised
from heliograph.model import OffsetRange, StallReason

RETRY_S: Final = 30.0
"""How often a lane that a broker refused is tried again: what was wrong may have changed."""


class Fates(Protocol):
    """Decides over lanes; implemented by the shuttle, used by its source and target sides."""

    def out_of_place(self, lane: CarriedLane) -> None:
        """Its log holds something else than the lane thought: ask the log."""

    def target_failed(self, lane: CarriedLane, error: MirrorError) -> None:
        """The target refused or did not answer: try again later, from the log."""

    def stall(
        self,
        lane: CarriedLane,
        reason: StallReason,
        detail: str,
        *,
        retry_s: float | None,
        lost: OffsetRange | None = None,
    ) -> None:
        """Stop here, visibly, once what was fetched is settled; `retry_s` is None where somebody
        must decide."""

    def quiet(self, lane: CarriedLane) -> None:
        """The lane has nothing on its way any more."""

    def kept(self, more_bytes: int) -> None:
        """The slot keeps this many bytes more (or fewer) for its lanes."""

    def later(self, delay_s: float, lane: CarriedLane, act: Callable[[CarriedLane], None]) -> None:
        """Act on the lane unless its fate has changed by then."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside; if it fails that is our bug, and the slot ends with it."""


def target_reason(error: MirrorError) -> StallReason:
    if isinstance(error, NotAuthorised):
        return StallReason.NOT_AUTHORISED
    return StallReason.TARGET_UNREACHABLE if error.retriable else StallReason.REFUSED_BY_TARGET


def source_reason(error: MirrorError) -> StallReason:
    return (
        StallReason.NOT_AUTHORISED
        if isinstance(error, NotAuthorised)
        else StallReason.SOURCE_UNREACHABLE
    )
