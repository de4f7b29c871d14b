"""What has to be asked of clusters, which takes seconds: kept for a while. Driver only.

No request waits for clusters: it gets the last answer, with how old that is, and where it is old
they are asked again meanwhile. Every browser gets the same, so many of them ask no more than one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from heliograph.api.state import ApiState
from heliograph.broker.blocking import blocking
from heliograph.clock import monotonic_s, now_ms
from heliograph.driver.problems import problem_of as problem_of_any
from heliograph.health.reading import read_verdicts
from heliograph.health.verdict import FlowVerdict
from heliograph.inspect.groups import GroupsStatus, read_groups
from heliograph.takeover.pending import pending_adoptions

T = TypeVar("T")

_KEPT_S: Final = 20.0
_COST_SHARE: Final = 0.05
"""Of the time, at most, clusters are asked: more rarely where they answer slowly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    at_ms: int | None = None
    """None before the first answer."""
    found: T | None = None
    problem: str = ""
    """Why there is nothing."""
    is_asking: bool = False


@dataclass(slots=True)
class Slow(Generic[T]):
    """One question to the clusters. Belongs to the driver's loop."""

    state: ApiState
    read: Callable[[ApiState], T]
    """Called on a thread; raises `MirrorError`."""
    turn: asyncio.Lock
    """Of all slow questions of the page, one at a time. Neither the API's threads nor its own turn
    are taken: what operators decide does not wait for clusters that are gone."""
    _last: Answer[T] = field(default_factory=Answer)
    _due_s: float = 0.0
    _asking: asyncio.Task[None] | None = None

    def now(self) -> Answer[T]:
        if self._asking is None and monotonic_s() >= self._due_s:
            self._asking = asyncio.create_task(self._ask(), name="a look at clusters for the page")
        return replace(self._last, is_asking=self._asking is not None)

    async def _ask(self) -> None:
        began_s = monotonic_s()
        try:
            async with self.turn:
                began_s = monotonic_s()
                self._last = Answer(found=await blocking(self.read, self.state), at_ms=now_ms())
        except Exception as exc:  # noqa: BLE001 - who looks is told, and it is asked again
            self._last = Answer(problem=str(problem_of_any(exc)), at_ms=now_ms())
        finally:
            took_s = monotonic_s() - began_s
            self._due_s = monotonic_s() + max(_KEPT_S, took_s / _COST_SHARE)
            self._asking = None


def verdicts(state: ApiState) -> list[FlowVerdict]:
    """Of all flows; with what stands in the way of a cutover."""
    config = state.live.config
    # A loop of its own: the driver's answers beats meanwhile.
    return asyncio.run(read_verdicts(config, pending_adoptions(config)))


def groups(state: ApiState) -> GroupsStatus:
    config = state.live.config
    return asyncio.run(read_groups(config, [flow.id for flow in config.flows], lambda _: True))
