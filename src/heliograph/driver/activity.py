"""What the driver does for each flow at the moment. Runs on the driver's loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Protocol

from heliograph.broker.blocking import Changed, first_of
from heliograph.clock import monotonic_s
from heliograph.errors import LinkError
from heliograph.model import FlowId, LaneId, SlotId, TopicName

_JOBS_S_MAX: Final = 1.0


class Carried(Protocol):
    """What slots carry, as `heliograph.engine.slots.Slots` tells it."""

    @property
    def count(self) -> int:
        """0 until Spark is up."""
        ...

    def current(self) -> Mapping[LaneId, SlotId]: ...


class FlowActivity:
    """Lanes in slots and jobs at work, by flow; leases of fenced flows wait for both to end."""

    def __init__(self, slots: Carried, slots_changed: Changed) -> None:
        self._slots, self._slots_changed = slots, slots_changed
        self._jobs: Counter[FlowId] = Counter()
        self._jobs_changed = Changed()
        self._given_up_s: dict[FlowId, float] = {}
        """Since when it is waited for that a flow's last jobs end."""
        self._left_s: dict[tuple[FlowId, frozenset[TopicName]], float] = {}
        """Since when slots have no lane of these topics."""

    @property
    def slot_count(self) -> int:
        return self._slots.count

    @contextmanager
    def job(self, flow: FlowId) -> Iterator[None]:
        """A job of the flow is at work."""
        self._given_up_s.pop(flow, None)
        self._jobs[flow] += 1
        try:
            yield
        finally:
            self._jobs[flow] -= 1
            self._jobs_changed.notify()

    async def idle(self, flow: FlowId) -> None:
        """Wait until no slot has a lane of the flow and no job of it is at work.

        May be given up and called again; jobs are waited for only so long since the first call.
        """
        given_up_s = self._given_up_s.setdefault(flow, monotonic_s())
        while self._is_carried(flow):
            await self._slots_changed.wait()
        # A job that waits for a dead source fails in the end and has written nothing; a failover
        # does not wait for it.
        while self._jobs[flow] and (left_s := given_up_s + _JOBS_S_MAX - monotonic_s()) > 0:
            await first_of(self._jobs_changed, timeout_s=left_s)

    def has_left(self, flow: FlowId, topics: Collection[TopicName]) -> bool:
        """Whether no slot has a lane of these topics any more, and no job is at work that may have
        begun while one had; as for a whole flow, a job is not waited for longer than a second."""
        key = (flow, frozenset(topics))
        if self._is_carried(flow, key[1]):
            self._left_s.pop(key, None)
            return False
        if self._jobs[flow]:
            return monotonic_s() - self._left_s.setdefault(key, monotonic_s()) >= _JOBS_S_MAX
        self._left_s.pop(key, None)
        return True

    def _is_carried(self, flow: FlowId, topics: frozenset[TopicName] | None = None) -> bool:
        try:
            return any(
                lane.flow == flow and (topics is None or lane.source.topic in topics)
                for lane in self._slots.current()
            )
        except LinkError:
            return False  # the run is ending, and its slots with it
