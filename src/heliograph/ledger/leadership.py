"""What a driver is to each flow: a value that tasks read, and wait for to change. Driver only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from heliograph.broker.blocking import Changed
from heliograph.clock import monotonic_s
from heliograph.errors import MirrorError
from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.fence import Fence
from heliograph.model import FlowId, TopicName

_PATIENCE_S: Final = 10.0
"""A broker that restarts is back within it."""


@dataclass(frozen=True, slots=True)
class Leading:
    """This driver carries the flow."""

    fences: Mapping[TopicName, Fence] = field(default_factory=dict, hash=False)
    """Topics that were failed over alone: it carries the others."""


@dataclass(frozen=True, slots=True)
class Standby:
    """Another driver carries the flow, or it is not known yet which one does."""

    holder: LeaseEntry | None = None


@dataclass(frozen=True, slots=True)
class Lapsed:
    """This driver led the flow and could not renew its lease: another may lead it, or a fence may
    be up, for all it knows."""

    why: str


@dataclass(frozen=True, slots=True)
class Fenced:
    """No driver may carry the flow until the fence is lifted."""

    fence: Fence

    @property
    def why(self) -> str:
        return self.fence.why


Leadership = Leading | Standby | Lapsed | Fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What keeps a flow from being mirrored, and since when; it is tried again all the while."""

    error: MirrorError
    since_s: float

    @classmethod
    def of(cls, error: MirrorError, before: Trouble | None) -> Trouble:
        return cls(error=error, since_s=monotonic_s() if before is None else before.since_s)

    @property
    def is_final(self) -> bool:
        """Whether a run that is to end does not wait for it any longer."""
        return not self.error.retriable or monotonic_s() - self.since_s >= _PATIENCE_S


class Leaderships:
    """By flow. Only the lease's task sets a value."""

    def __init__(self, flows: Iterable[FlowId] = ()) -> None:
        self.changed: Final = Changed()
        self._values: dict[FlowId, Leadership] = {flow: Standby() for flow in flows}
        self.troubles: Final[dict[FlowId, Trouble]] = {}
        """Why it is unknown who leads a flow: its ledger cannot be had."""

    def __getitem__(self, flow: FlowId) -> Leadership:
        """A pair that mirrors nothing has no lease, and is every driver's to look after."""
        return self._values.get(flow, Leading())

    def __setitem__(self, flow: FlowId, value: Leadership) -> None:
        if self._values.get(flow) != value:
            self._values[flow] = value
            self.changed.notify()

    def forget(self, flow: FlowId) -> None:
        """The flow has no lease any more."""
        self._values.pop(flow, None)
        self.troubles.pop(flow, None)

    def leads(self, flow: FlowId) -> bool:
        return isinstance(self[flow], Leading)

    def fenced_topics(self, flow: FlowId) -> Mapping[TopicName, Fence]:
        """Topics of a flow that this driver leads and that it must not carry."""
        value = self[flow]
        return value.fences if isinstance(value, Leading) else {}

    @property
    def led(self) -> tuple[FlowId, ...]:
        """Flows whose lease this driver has."""
        return tuple(flow for flow in self._values if self.leads(flow))

    def abandons(self, flow: FlowId) -> bool:
        """Whether what slots fetched for the flow is dropped: others may write to its target."""
        match self[flow]:
            case Leading():
                return False
            case Fenced(fence=fence):
                return not fence.planned
            case Standby() | Lapsed():
                return True
            case value:
                assert_never(value)

    def why_fenced(self, flow: FlowId) -> str:
        """Nothing where the flow is not fenced."""
        value = self[flow]
        return value.why if isinstance(value, Fenced) else ""

    def why_not(self, flow: FlowId) -> str:
        """Why this driver does not carry a flow that no other driver is known to carry."""
        value = self[flow]
        return value.why if isinstance(value, Fenced | Lapsed) else ""

    @property
    def standing_by(self) -> Mapping[FlowId, str]:
        """Flows that another driver leads, and which one."""
        return {
            flow: f"standby: led by {value.holder.host} (pid {value.holder.pid})"
            for flow, value in self._values.items()
            if isinstance(value, Standby) and value.holder is not None
        }

    async def wait_leading(self, flow: FlowId) -> None:
        while not self.leads(flow):
            await self.changed.wait()
