"""Which driver carries which flow: one leads, the others stand by. Runs on the driver.

The lease saves work, not data: two drivers of one flow cannot lose or repeat a record either way,
since the target's brokers refuse what is out of place. They would only get in each other's way.

A fence (see `fence`) is another matter: a flow that was failed over is carried by nobody, lease or
not, until the fence is lifted.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.blocking import Changed, blocking
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError
from heliograph.ledger.access import LedgerAccess, ensure_ledger
from heliograph.ledger.entries import LeaseEntry, ledger_topic
from heliograph.ledger.fence import Fence, fence_of
from heliograph.model import FlowId
from heliograph.processes import Liveness, liveness, names_one_host

log = logging.getLogger("heliograph")

LEASE_S_DEFAULT: Final = 15.0
_LOOKS_PER_LEASE: Final = 15
_RENEWALS_PER_LEASE: Final = 3
_PATIENCE_S: Final = 10.0
"""A broker that restarts is back within it."""


@dataclass(frozen=True, slots=True)
class Leading:
    """This driver carries the flow."""


@dataclass(frozen=True, slots=True)
class Standby:
    """Another driver carries the flow, or it is not known yet which one does."""

    holder: LeaseEntry | None = None


@dataclass(frozen=True, slots=True)
class Fenced:
    """No driver may carry the flow until the fence is lifted."""

    fence: Fence

    @property
    def why(self) -> str:
        return self.fence.why


Leadership = Leading | Standby | Fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """What keeps a flow from being mirrored, and since when; it is tried again all the while."""

    error: BrokerError
    since_s: float

    @classmethod
    def of(cls, error: BrokerError, before: Trouble | None) -> Trouble:
        return cls(error=error, since_s=monotonic_s() if before is None else before.since_s)

    @property
    def is_final(self) -> bool:
        """Whether a run that is to end does not wait for it any longer."""
        return not self.error.retriable or monotonic_s() - self.since_s >= _PATIENCE_S


class Leaderships:
    """What this driver is to each flow: values that tasks read, and wait for to change."""

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

    def leads(self, flow: FlowId) -> bool:
        return isinstance(self[flow], Leading)

    def why_fenced(self, flow: FlowId) -> str:
        """Nothing where the flow is not fenced."""
        value = self[flow]
        return value.why if isinstance(value, Fenced) else ""

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


class Activity(Protocol):
    """What the driver does for its flows, as far as a lease must know."""

    @property
    def slot_count(self) -> int:
        """Written into leases for `heliograph status`; 0 until Spark is up."""
        ...

    async def idle(self, flow: FlowId) -> None:
        """Wait until nothing is done for the flow: no slot has a lane, no job is at work."""
        ...


class Leases:
    """Claims the lease of every flow and renews it, each in a task of its own.

    A driver that waits for a slow cluster must not lose what it leads, so nothing here waits for
    the driver's other tasks, nor one flow for another. A lease counts as lost only when another
    driver is seen to have it: a target that does not answer can be written by no other driver
    either.

    With `exclusive` off no lease is claimed and every flow is led that has no fence.
    """

    def __init__(
        self,
        config: MirrorConfig,
        ledgers: LedgerAccess,
        activity: Activity,
        *,
        lease_s: float = LEASE_S_DEFAULT,
        host: str | None = None,
        exclusive: bool = True,
    ) -> None:
        self.leaderships: Final = Leaderships(flow.id for flow in config.flows)
        self._flows = [
            _FlowLease(
                flow,
                config,
                ledgers,
                activity,
                self.leaderships,
                lease_s=lease_s,
                host=host or socket.gethostname(),
                exclusive=exclusive,
            )
            for flow in config.flows
        ]

    async def run(self) -> None:
        """Until it is cancelled; then `release`."""
        async with asyncio.TaskGroup() as tasks:
            for flow in self._flows:
                tasks.create_task(flow.run(), name=f"lease {flow.id}")

    async def wait_known(self, timeout_s: float) -> None:
        """Until it is known of every flow who leads it, or the time is over."""
        waits = [asyncio.create_task(flow.known.wait()) for flow in self._flows]
        if waits:
            _, pending = await asyncio.wait(waits, timeout=timeout_s)
            for task in pending:
                task.cancel()

    async def release(self) -> None:
        """Let the next driver take over at once. May be repeated."""
        await asyncio.gather(*(flow.release() for flow in self._flows))


class _FlowLease:
    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        ledgers: LedgerAccess,
        activity: Activity,
        leaderships: Leaderships,
        *,
        lease_s: float,
        host: str,
        exclusive: bool,
    ) -> None:
        self.id: Final = flow.id
        self.known = asyncio.Event()
        self._flow, self._config, self._ledgers = flow, config, ledgers
        self._activity, self._leaderships = activity, leaderships
        self._lease_s, self._host, self._exclusive = lease_s, host, exclusive
        self._held: LeaseEntry | None = None
        """Our lease; a fenced flow keeps it until nothing is under way."""
        self._has_ledger = False
        self._other = HolderWatch()
        """The other driver that leads, or led last."""
        self._renewed_s = 0.0
        self._logged = ""

    async def run(self) -> None:
        while True:
            try:
                await self._look()
            except BrokerError as exc:
                self._failed(exc)
            else:
                self._leaderships.troubles.pop(self.id, None)
                self.known.set()
            if not await self._has_settled():
                await asyncio.sleep(self._lease_s / _LOOKS_PER_LEASE)

    def _failed(self, error: BrokerError) -> None:
        if isinstance(self._leaderships[self.id], Standby):
            troubles = self._leaderships.troubles
            troubles[self.id] = Trouble.of(error, troubles.get(self.id))
            self._log_once(f"{self.id}: not mirrored: {error}; trying again", logging.ERROR)
        else:
            self._log_once(f"lease of {self.id}: {error}")

    async def release(self) -> None:
        held, self._held = self._held, None
        if isinstance(self._leaderships[self.id], Leading):
            self._leaderships[self.id] = Standby()
        if held is None:
            return
        try:
            await self._ledgers.let_go(self.id, held)
        except BrokerError as exc:
            log.warning("lease of %s not released, it expires by itself: %s", self.id, exc)

    async def _has_settled(self) -> bool:
        """Wait, within a look's time, until a fenced flow that is still held has settled."""
        if self._held is None or not isinstance(self._leaderships[self.id], Fenced):
            return False
        try:
            async with asyncio.timeout(self._lease_s / _LOOKS_PER_LEASE):
                await self._activity.idle(self.id)
        except TimeoutError:
            return True  # the look that follows renews the lease where that is due
        await self.release()
        return False

    async def _look(self) -> None:
        if not self._has_ledger:
            await ensure_ledger(self._config, self.id)
            self._has_ledger = True
        fence, holder, is_new = await self._ledgers.ask(
            self.id, lambda view: (fence_of(view), view.holder, view.flow is None)
        )
        if fence is None and is_new:
            fence = await self._failback_first()
        if fence is not None:
            await self._stand_down(fence)
            return
        if isinstance(self._leaderships[self.id], Fenced):
            log.info("fence of %s lifted", self.id)
            self._leaderships[self.id] = Standby() if self._held is None else Leading()
        if not self._exclusive:
            self._leaderships[self.id] = Leading()
        elif self._needs_no_claim(holder):
            await self._observe_holder(holder)
        else:
            await self._claim()

    async def _failback_first(self) -> Fence | None:
        """A way back that begins by itself would copy all that is there behind what is there.

        That is so where topics keep their names and the way there was failed over: clients have
        written to both clusters since, and only a failback finds where their histories part.
        """
        there = FlowId(source=self.id.target, target=self.id.source)
        is_enabled = any(flow.id == there for flow in self._config.flows)
        if not (is_enabled and self._flow.policy.keeps_names):
            return None
        admin, ledger = ClusterAdmin(self._config.target_of(there)), ledger_topic(there.source)
        if ledger not in await blocking(admin.describe_topics, [ledger]):
            return None
        fence = await self._ledgers.ask(there, fence_of)
        if fence is None:
            return None
        why = f"{there} was failed over: `heliograph failback --flow '{there}'` begins this flow"
        return Fence(at_ms=fence.at_ms, why=why)

    def _needs_no_claim(self, holder: LeaseEntry | None) -> bool:
        if self._held is None:
            return self._other.left_s > 0
        is_ours = holder is not None and holder.author == self._ledgers.author
        return is_ours and not self._renewal_is_due

    async def _stand_down(self, fence: Fence) -> None:
        """Nothing is begun any more; the lease is let go once nothing is under way."""
        if not isinstance(self._leaderships[self.id], Fenced):
            log.warning("flow %s is fenced, not mirroring: %s", self.id, fence.why)
        self._leaderships[self.id] = Fenced(fence)
        if self._held is not None and self._renewal_is_due:
            # A failover waits for the flow to stand still and must not take this driver for dead.
            await self._claim()

    @property
    def _renewal_is_due(self) -> bool:
        return monotonic_s() - self._renewed_s >= self._lease_s / _RENEWALS_PER_LEASE

    async def _claim(self) -> None:
        self._renewed_s = monotonic_s()
        await self._observe_holder(await self._ledgers.claim(self.id, self._entry()))

    def _entry(self) -> LeaseEntry:
        return LeaseEntry(
            author=self._ledgers.author,
            host=self._host,
            pid=os.getpid(),
            at_ms=now_ms(),
            lease_ms=int(self._lease_s * 1000),
            slot_count=self._activity.slot_count,
        )

    async def _observe_holder(self, holder: LeaseEntry | None) -> None:
        if holder is not None and holder.author == self._ledgers.author:
            if self._other.holder is not None:
                log.info("flow %s: taken over", self.id)
            self._held, self._other, self._logged = holder, HolderWatch(), ""
            self._become(Leading())
            return
        if self._held is not None and holder is not None:
            log.warning("flow %s: %s pid %d took the lease", self.id, holder.host, holder.pid)
        self._held = None
        self._become(Standby(holder))
        if holder is None:
            # Let go: the next look claims it, and still knows that there was another.
            self._other.expire()
            return
        if self._is_dead(holder):
            log.info("flow %s: %s pid %d is gone", self.id, holder.host, holder.pid)
            await self._ledgers.let_go(self.id, holder)
            self._other.see(holder)
            self._other.expire()
            await self._claim()
            return
        self._other.see(holder)
        self._log_once(f"standby: flow {self.id} is led by {holder.host} pid {holder.pid}")

    def _become(self, value: Leading | Standby) -> None:
        """A fence outweighs the lease, which a fenced flow only renews until it has settled."""
        if not isinstance(self._leaderships[self.id], Fenced):
            self._leaderships[self.id] = value

    def _is_dead(self, holder: LeaseEntry) -> bool:
        # An entry with this process's pid that it did not write is of one before it.
        is_past = holder.pid == os.getpid() and names_one_host(self._host)
        return (is_past and holder.host == self._host) or is_gone(holder, self._host)

    def _log_once(self, text: str, level: int = logging.INFO) -> None:
        if text != self._logged:
            self._logged = text
            log.log(level, "%s", text)


class HolderWatch:
    """How long a lease lasts that another process holds.

    Counted from when it was seen to be renewed, by this process's clock: the holder's may be wrong.
    """

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

    def see(self, holder: LeaseEntry) -> None:
        before, self._holder = self._holder, holder
        if before is None or before.author != holder.author:
            # Seen for the first time: only its own words say how long ago it renewed.
            age_s = max(0.0, (now_ms() - holder.at_ms) / 1000)
        elif before.at_ms != holder.at_ms:
            age_s = 0.0
        else:
            return
        self._ends_s = monotonic_s() - age_s + holder.lease_ms / 1000

    def expire(self) -> None:
        """The holder let go or is dead: what it said last counts no more."""
        self._ends_s = -math.inf


def is_gone(holder: LeaseEntry, host: str | None = None) -> bool:
    """Whether the holder was a process of this machine that is gone: its lease need not end."""
    return liveness(holder.host, holder.pid, here=host) is Liveness.GONE
