"""Which driver carries which flow: one leads, the others stand by. Runs on the driver.

The lease saves work, not data: two drivers of one flow cannot lose or repeat a record either way,
since the target's brokers refuse what is out of place. They would only get in each other's way.

A fence (see `fence`) is another matter: a flow that was failed over is carried by nobody, lease or
not, until the fence is lifted. A failover waits for the lease of a driver that it cannot hear, so a
driver that could not renew in that time, and so may have missed a fence, stops by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import socket
from collections.abc import Collection, Mapping
from typing import Final, Protocol

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.blocking import blocking
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerUnreachable, InvariantError, MirrorError
from heliograph.ledger.access import LedgerAccess, ensure_ledger
from heliograph.ledger.entries import LeaseEntry, ledger_topic
from heliograph.ledger.fence import (
    Fence,
    KeptFences,
    are_kept,
    fence_of,
    kept_fences_entry,
    topic_fences,
)
from heliograph.ledger.holder import HolderWatch, is_gone
from heliograph.ledger.leadership import (
    Fenced,
    Lapsed,
    Leaderships,
    Leading,
    Standby,
    Trouble,
)
from heliograph.ledger.standby_note import StandbyDriver, with_standby, without_standby
from heliograph.model import FlowId, TopicName

log = logging.getLogger("heliograph")

_LOOKS_PER_LEASE: Final = 15
_RENEWALS_PER_LEASE: Final = 3
_NOTED_LEASES: Final = 3
"""How long a standby counts as one after it said so, which it does once in a lease."""
_NOTE_S_MAX: Final = 2.0
_CERTAIN_SHARE: Final = 0.875
"""Of the lease, from its last renewal: what is left is for taking the lanes off the slots."""


class Activity(Protocol):
    """What the driver does for its flows, as far as a lease must know."""

    @property
    def slot_count(self) -> int:
        """Written into leases for `heliograph status`; 0 until Spark is up."""
        ...

    async def idle(self, flow: FlowId) -> None:
        """Wait until nothing is done for the flow: no slot has a lane, no job is at work."""
        ...

    def has_left(self, flow: FlowId, topics: Collection[TopicName]) -> bool:
        """Whether no slot has a lane of these topics, and no job of before is at work on them."""
        ...


class Leases:
    """Claims the lease of every flow and renews it, each in a task of its own.

    A driver that waits for a slow cluster must not lose what it leads, so nothing here waits for
    the driver's other tasks, nor one flow for another. Whatever goes wrong in a look is said, and
    the next look is taken; a flow is led only while looks succeed.

    With `exclusive` off no lease is claimed and every flow is led that has no fence.
    """

    def __init__(
        self,
        config: MirrorConfig,
        ledgers: LedgerAccess,
        activity: Activity,
        *,
        exclusive: bool = True,
    ) -> None:
        self.leaderships: Final = Leaderships()
        self._ledgers, self._activity, self._exclusive = ledgers, activity, exclusive
        self._flows: dict[FlowId, _FlowLease] = {}
        self._renewing: dict[FlowId, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        """While it runs."""
        self.use(config)

    async def run(self) -> None:
        """Until it is cancelled; then `release`."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                for flow in self._flows.values():
                    self._renew(flow)
                await asyncio.Event().wait()  # also where there is no flow yet
        finally:
            self._tasks = None

    def use(self, config: MirrorConfig) -> None:
        """Claim what this configuration has more, and heed its settings; `end` ends the others."""
        for flow in config.flows:
            found = self._flows.get(flow.id)
            if found is not None:
                found.use(flow, config)
                continue
            self.leaderships[flow.id] = Standby()
            self._flows[flow.id] = lease = _FlowLease(
                flow,
                config,
                self._ledgers,
                self._activity,
                self.leaderships,
                exclusive=self._exclusive,
            )
            self._renew(lease)

    async def end(self, flow: FlowId) -> None:
        """Of a flow for which nothing is under way any more: another driver may take it."""
        lease, renewing = self._flows.pop(flow, None), self._renewing.pop(flow, None)
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait({renewing})
        if lease is not None:
            await lease.release()
        self.leaderships.forget(flow)

    def _renew(self, lease: _FlowLease) -> None:
        if self._tasks is not None:
            task = self._tasks.create_task(lease.run(), name=f"lease {lease.id}")
            self._renewing[lease.id] = task

    async def wait_known(self, timeout_s: float) -> None:
        """Until it is known of every flow who leads it, or the time is over."""
        waits = [asyncio.create_task(flow.known.wait()) for flow in self._flows.values()]
        if waits:
            _, pending = await asyncio.wait(waits, timeout=timeout_s)
            for task in pending:
                task.cancel()

    async def release(self) -> None:
        """Let the next driver take over at once. May be repeated."""
        await asyncio.gather(*(flow.release() for flow in self._flows.values()))


class _FlowLease:
    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        ledgers: LedgerAccess,
        activity: Activity,
        leaderships: Leaderships,
        *,
        exclusive: bool,
    ) -> None:
        self.id: Final = flow.id
        self.known = asyncio.Event()
        self._flow, self._config, self._ledgers = flow, config, ledgers
        self._activity, self._leaderships = activity, leaderships
        self._lease_s, self._exclusive = config.engine.driver_lease_ms / 1000, exclusive
        self._held: LeaseEntry | None = None
        """Our lease; a fenced flow keeps it until nothing is under way."""
        self._has_ledger = False
        self._other = HolderWatch()
        """The other driver that leads, or led last."""
        self._certain_s = -math.inf
        """When that was begun which last proved that this driver may lead: a renewal that is in the
        ledger, or without leases a look that found no fence."""
        self._noted_s: float | None = None
        """When this driver last noted in the ledger that it stands by; None where it does not."""
        self._fences: Mapping[TopicName, Fence] = {}
        """Topics that were failed over alone, as of the last look."""
        self._error: MirrorError | None = None
        """Why the last look failed; None if it did not."""
        self._logged = ""

    def use(self, flow: FlowConfig, config: MirrorConfig) -> None:
        """From the next look on."""
        self._flow, self._config = flow, config
        self._lease_s = config.engine.driver_lease_ms / 1000

    async def run(self) -> None:
        while True:
            await self._look_in_time()
            if not await self._has_settled():
                await asyncio.sleep(self._look_s)

    @property
    def _look_s(self) -> float:
        """Until the next look; a lease that ends before is looked at when it does."""
        left_s = self._other.left_s
        look_s = self._lease_s / _LOOKS_PER_LEASE
        return min(look_s, left_s) if left_s > 0 else look_s

    async def _look_in_time(self) -> None:
        """A leader's look may take as long as it is certain to lead, and it leads no longer."""
        ends_s = self._certain_s + self._lease_s * _CERTAIN_SHARE
        leads = self._leaderships.leads(self.id)
        try:
            async with asyncio.timeout(max(0.0, ends_s - monotonic_s()) if leads else None):
                await self._look()
        except TimeoutError:
            silent = BrokerUnreachable(
                f"cluster {self.id.target} did not answer within driver.lease.ms "
                f"({self._lease_s * 1000:.0f})"
            )
            self._failed(self._error or silent, ends_s)
        except MirrorError as exc:
            self._failed(exc, ends_s)
        except Exception as exc:  # noqa: BLE001 - said, and the next look is taken all the same
            self._failed(InvariantError(f"a bug: {type(exc).__name__}: {exc}"), ends_s)
        else:
            self._error = None
            self._leaderships.troubles.pop(self.id, None)
            self.known.set()

    def _failed(self, error: MirrorError, certain_until_s: float) -> None:
        self._error = error
        if self._leaderships.leads(self.id) and monotonic_s() >= certain_until_s:
            why = f"the lease of {self.id} could not be renewed, not mirroring: {error}"
            log.warning("%s", why)
            self._leaderships[self.id] = Lapsed(why)
        if isinstance(self._leaderships[self.id], Standby | Lapsed):
            troubles = self._leaderships.troubles
            troubles[self.id] = Trouble.of(error, troubles.get(self.id))
            self._log_once(f"{self.id}: not mirrored: {error}; trying again", logging.ERROR)
        else:
            self._log_once(f"lease of {self.id}: {error}")

    async def release(self) -> None:
        held, self._held = self._held, None
        if isinstance(self._leaderships[self.id], Leading):
            self._leaderships[self.id] = Standby()
        if held is not None:
            try:
                await self._ledgers.let_go(self.id, held)
            except MirrorError as exc:
                log.warning("lease of %s not released, it expires by itself: %s", self.id, exc)
        # The note goes out of date by itself, so a dead cluster does not keep the driver.
        with contextlib.suppress(MirrorError, TimeoutError):
            async with asyncio.timeout(_NOTE_S_MAX):
                await self._stand_by_no_more()

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
        began_s = monotonic_s()
        if not self._has_ledger:
            await ensure_ledger(self._config, self.id)
            self._has_ledger = True
        fence, self._fences, holder, is_new = await self._ledgers.ask(
            self.id,
            lambda view: (fence_of(view), topic_fences(view), view.holder, view.flow is None),
        )
        if fence is None and is_new:
            fence = await self._failback_first()
        if fence is not None:
            await self._stand_down(fence, holder)
            return
        if isinstance(self._leaderships[self.id], Fenced):
            log.info("fence of %s lifted", self.id)
            self._leaderships[self.id] = Standby()
        if not self._exclusive:
            self._certain_s = began_s
            self._leaderships[self.id] = Leading(self._fences)
        elif self._needs_no_claim(holder):
            await self._observe_holder(holder)
        else:
            await self._claim(holder)
        if self._fences and self._leaderships.leads(self.id):
            await self._keep_topic_fences()

    async def _keep_topic_fences(self) -> None:
        """A failover of some topics waits until this says that their lanes are in no slot.

        It is said in the ledger, under the author of the lease: whoever leads next says it anew,
        and who raised a fence trusts nobody else. Lanes are taken off by whom `Leading` woke.
        """
        fences, author = self._fences, self._ledgers.author
        # What this very look has read: a question more would be a round trip more.
        is_said = await self._ledgers.ask_recent(
            self.id, lambda view: are_kept(view, fences.values(), author), self._lease_s
        )
        if is_said:
            return
        if self._activity.has_left(self.id, fences):
            ids = tuple(fence.id for fence in fences.values())
            note = kept_fences_entry(KeptFences(author=author, at_ms=now_ms(), ids=ids))
            await self._ledgers.note(self.id, [note])

    async def _failback_first(self) -> Fence | None:
        """A way back that begins by itself would copy all that is there behind what is there.

        That is so where topics keep their names and the way there was failed over: clients have
        written to both clusters since, and only a failback finds where their histories part.
        """
        there = FlowId(source=self.id.target, target=self.id.source)
        is_enabled = any(flow.id == there for flow in self._config.every_flow)
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
            return holder is not None and self._other.expired != holder
        return self._is_ours(holder) and not self._renewal_is_due

    async def _stand_down(self, fence: Fence, holder: LeaseEntry | None) -> None:
        """Nothing is begun any more; the lease is let go once nothing is under way."""
        if not isinstance(self._leaderships[self.id], Fenced):
            log.warning("flow %s is fenced, not mirroring: %s", self.id, fence.why)
        self._leaderships[self.id] = Fenced(fence)
        if self._held is not None and self._renewal_is_due:
            # A failover waits for the flow to stand still and must not take this driver for dead.
            await self._claim(holder)

    @property
    def _renewal_is_due(self) -> bool:
        return monotonic_s() - self._certain_s >= self._lease_s / _RENEWALS_PER_LEASE

    async def _claim(self, seen: LeaseEntry | None) -> None:
        """Take the lease, or renew what this look has seen to be ours: over a long link every round
        trip counts."""
        began_s = monotonic_s()
        if self._held is not None and self._is_ours(seen):
            holder = await self._ledgers.renew(self.id, self._entry())
        else:
            holder = await self._ledgers.claim(self.id, self._entry(), over=self._other.expired)
        if self._is_ours(holder):
            self._certain_s = began_s
        await self._observe_holder(holder)

    def _is_ours(self, holder: LeaseEntry | None) -> bool:
        return holder is not None and holder.author == self._ledgers.author

    def _entry(self) -> LeaseEntry:
        return LeaseEntry(
            author=self._ledgers.author,
            host=socket.gethostname(),
            pid=os.getpid(),
            at_ms=now_ms(),
            lease_ms=int(self._lease_s * 1000),
            slot_count=self._activity.slot_count,
        )

    async def _observe_holder(self, holder: LeaseEntry | None) -> None:
        if holder is not None and self._is_ours(holder):
            if self._other.holder is not None:
                log.info("flow %s: taken over", self.id)
            self._held, self._other, self._logged = holder, HolderWatch(), ""
            self._become(Leading(self._fences))
            await self._stand_by_no_more()
            return
        if self._held is not None and holder is not None:
            log.warning("flow %s: %s pid %d took the lease", self.id, holder.host, holder.pid)
        self._held = None
        self._become(Standby(holder))
        if holder is None:
            # Let go: the next look claims it, and still knows that there was another.
            self._other.expire()
            return
        self._other.see(holder)
        if is_gone(holder) and self._other.left_s > 0:
            log.info("flow %s: %s pid %d is gone", self.id, holder.host, holder.pid)
            self._other.expire()
            await self._claim(holder)
            return
        self._log_once(f"standby: flow {self.id} is led by {holder.host} pid {holder.pid}")
        await self._note_standby()

    async def _note_standby(self) -> None:
        """For `heliograph status`; who leads next is decided without it."""
        if self._noted_s is not None and monotonic_s() - self._noted_s < self._lease_s:
            return
        me = StandbyDriver(
            author=self._ledgers.author,
            host=socket.gethostname(),
            pid=os.getpid(),
            at_ms=now_ms(),
            lasts_ms=int(_NOTED_LEASES * self._lease_s * 1000),
        )
        note = await self._ledgers.ask(self.id, lambda view: with_standby(view, me))
        await self._ledgers.note(self.id, [note])
        self._noted_s = monotonic_s()

    async def _stand_by_no_more(self) -> None:
        if self._noted_s is None:
            return
        self._noted_s = None
        author = self._ledgers.author
        note = await self._ledgers.ask(
            self.id, lambda view: without_standby(view, author, now_ms())
        )
        await self._ledgers.note(self.id, [note])

    def _become(self, value: Leading | Standby) -> None:
        """A fence outweighs the lease, which a fenced flow only renews until it has settled."""
        if not isinstance(self._leaderships[self.id], Fenced):
            self._leaderships[self.id] = value

    def _log_once(self, text: str, level: int = logging.INFO) -> None:
        if text != self._logged:
            self._logged = text
            log.log(level, "%s", text)
