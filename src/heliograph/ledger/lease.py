"""Which driver carries which flow: one leads, the others stand by. Runs on the driver.

The lease saves work, not data: two drivers of one flow cannot lose or repeat a record either way,
since the target's brokers refuse what is out of place. They would only get in each other's way.

A fence (see `fence`) is another matter: a flow that was failed over is carried by nobody, lease or
not, until the fence is lifted.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Final, Protocol

from heliograph.broker.admin import ClusterAdmin
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError
from heliograph.ledger.entries import LEDGER_PARTITIONS, LeaseEntry, ledger_topic
from heliograph.ledger.fence import Fence, fence_of
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId
from heliograph.processes import is_alive

log = logging.getLogger("heliograph")

LEASE_S_DEFAULT: Final = 15.0
_LOOKS_PER_LEASE: Final = 15
_RENEWALS_PER_LEASE: Final = 3
_GIVING_UP_PARTS: Final = 150
_JOIN_S_MAX: Final = 1.0


class Carrying(Protocol):
    """What the driver does for the flows it leads; called from the threads of the leases."""

    def give_up(self, flow: FlowId) -> None:
        """Take the flow's lanes off the slots; `leads` says no by then. Does not wait for them."""
        ...

    def carries(self, flow: FlowId) -> bool:
        """Whether anything is still done for the flow: a slot has a lane, a loop is at work."""
        ...


class Leases:
    """Claims the lease of every flow and renews it, each on a thread of its own.

    A driver that waits for a slow cluster must not lose what it leads, so nothing here waits for
    the driver, nor one flow for another. A lease counts as lost only when another is seen to have
    it: a target that does not answer can be written by nobody else either.

    With `exclusive` off no lease is claimed and every flow is led that has no fence.
    """

    def __init__(
        self,
        config: MirrorConfig,
        ledgers: LedgerService,
        *,
        lease_s: float = LEASE_S_DEFAULT,
        host: str | None = None,
        exclusive: bool = True,
    ) -> None:
        self.slot_count = 0
        """Told to whoever asks; known once Spark is up."""
        self.carrying: Carrying | None = None
        """Who must have let a flow go before its lease is; None while nothing is carried yet."""
        self.exclusive: Final = exclusive
        self._stop = threading.Event()
        self._flows = {
            flow.id: _FlowLease(
                flow,
                config,
                ledgers,
                lease_s=lease_s,
                host=host or socket.gethostname(),
                owner=self,
            )
            for flow in config.flows
        }

    def start(self) -> None:
        for flow in self._flows.values():
            threading.Thread(
                target=flow.keep, args=(self._stop,), name=f"lease {flow.id}", daemon=True
            ).start()

    def wait_known(self, timeout_s: float) -> None:
        """Until it is known of every flow who leads it, or the time is over."""
        deadline_s = monotonic_s() + timeout_s
        for flow in self._flows.values():
            flow.known.wait(max(0.0, deadline_s - monotonic_s()))

    def leads(self, flow: FlowId) -> bool:
        return self._flows[flow].leads

    def fence(self, flow: FlowId) -> Fence | None:
        """What keeps everybody from carrying the flow, as last seen."""
        return self._flows[flow].fence

    def release(self) -> None:
        """Let the next driver take over at once. May be repeated."""
        self._stop.set()
        for flow in self._flows.values():
            flow.ended.wait(_JOIN_S_MAX)
            flow.release()


class _FlowLease:
    def __init__(
        self,
        flow: FlowConfig,
        config: MirrorConfig,
        ledgers: LedgerService,
        *,
        lease_s: float,
        host: str,
        owner: Leases,
    ) -> None:
        self.id: Final = flow.id
        self.led: LeaseEntry | None = None
        self.fence: Fence | None = None
        self.known = threading.Event()
        self.ended = threading.Event()
        self._flow, self._config, self._ledgers, self._owner = flow, config, ledgers, owner
        self._lease_s, self._host = lease_s, host
        self._has_ledger = False
        self._other: tuple[LeaseEntry, float] | None = None
        """Who else leads, and when it was last seen to renew."""
        self._renewed_s = 0.0
        self._told = ""

    @property
    def leads(self) -> bool:
        # Before the first look at the ledger nobody knows whether there is a fence.
        is_ours = self.led is not None if self._owner.exclusive else self.known.is_set()
        return is_ours and self.fence is None

    def keep(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                try:
                    self._look()
                except BrokerError as exc:
                    self._tell(f"lease of {self.id}: {exc}")
                else:
                    self.known.set()
                # Neither a holder that lets go nor a fence should wait longer than a look takes.
                giving_up = self.fence is not None and self.led is not None
                stop.wait(self._lease_s / (_GIVING_UP_PARTS if giving_up else _LOOKS_PER_LEASE))
        finally:
            self.ended.set()

    def release(self) -> None:
        led, self.led = self.led, None
        if led is None:
            return
        try:
            self._ledgers.let_go(self.id, led)
        except BrokerError as exc:
            log.warning("lease of %s: not released, it ends by itself: %s", self.id, exc)

    def _look(self) -> None:
        if not self._has_ledger:
            target = ClusterAdmin(self._config.target_of(self.id))
            target.ensure_compacted_topic(
                ledger_topic(self.id.source),
                partitions=LEDGER_PARTITIONS,
                replication_factor=self._flow.replication_factor,
            )
            self._has_ledger = True
        fence, holder, is_new = self._ledgers.ask(
            self.id, lambda view: (fence_of(view), view.holder, view.flow is None)
        )
        if fence is None and is_new:
            fence = self._failback_first()
        if fence is not None:
            self._stand_down(fence)
            return
        if self.fence is not None:
            log.info("flow %s: its fence is gone", self.id)
            self.fence = None
        if not self._owner.exclusive:
            return
        if self._needs_no_claim(holder):
            self._note(holder)
        else:
            self._claim()

    def _failback_first(self) -> Fence | None:
        """A way back that begins by itself would copy all that is there behind what is there.

        That is so where topics keep their names and the way there was failed over: clients have
        written to both clusters since, and only a failback finds where their histories part.
        """
        there = FlowId(source=self.id.target, target=self.id.source)
        is_enabled = any(flow.id == there for flow in self._config.flows)
        if not (is_enabled and self._flow.policy.keeps_names):
            return None
        ledger = ledger_topic(there.source)
        if ledger not in ClusterAdmin(self._config.target_of(there)).describe_topics([ledger]):
            return None
        fence = self._ledgers.ask(there, fence_of)
        if fence is None:
            return None
        why = f"{there} was failed over: `heliograph failback --flow '{there}'` begins this flow"
        return Fence(at_ms=fence.at_ms, why=why)

    def _needs_no_claim(self, holder: LeaseEntry | None) -> bool:
        if self.led is None:
            return self._other is not None and self._renews(*self._other)
        is_ours = holder is not None and holder.author == self._ledgers.author
        return is_ours and not self._renewal_is_due

    def _stand_down(self, fence: Fence) -> None:
        """Nothing is begun any more; the lease is let go once nothing is under way."""
        if self.fence is None:
            log.warning("flow %s stands still: %s", self.id, fence.why)
        self.fence = fence
        carrying = self._owner.carrying
        if carrying is None or not carrying.carries(self.id):
            self.release()
            return
        carrying.give_up(self.id)
        if self.led is not None and self._renewal_is_due:
            # Whoever waits for the flow to stand still must not take us for dead.
            self._claim()

    @property
    def _renewal_is_due(self) -> bool:
        return monotonic_s() - self._renewed_s >= self._lease_s / _RENEWALS_PER_LEASE

    def _claim(self) -> None:
        self._renewed_s = monotonic_s()
        self._note(self._ledgers.claim(self.id, self._entry()))

    def _entry(self) -> LeaseEntry:
        return LeaseEntry(
            author=self._ledgers.author,
            host=self._host,
            pid=os.getpid(),
            at_ms=now_ms(),
            lease_ms=int(self._lease_s * 1000),
            slot_count=self._owner.slot_count,
        )

    def _renews(self, holder: LeaseEntry, seen_s: float) -> bool:
        """Whether it was seen to renew within its lease, whatever its clock says."""
        return monotonic_s() - seen_s < holder.lease_ms / 1000

    def _note(self, holder: LeaseEntry | None) -> None:
        if holder is not None and holder.author == self._ledgers.author:
            if self._other is not None:
                log.info("flow %s: taken over", self.id)
            self.led, self._other, self._told = holder, None, ""
            return
        if self.led is not None and holder is not None:
            log.warning("flow %s: %s pid %d took the lease", self.id, holder.host, holder.pid)
        self.led = None
        if holder is None:
            # Let go: the next look claims it, and still knows that there was another.
            self._other = None if self._other is None else (self._other[0], 0.0)
            return
        if self._is_dead(holder):
            log.info("flow %s: %s pid %d is gone", self.id, holder.host, holder.pid)
            self._ledgers.let_go(self.id, holder)
            self._other = (holder, 0.0)
            self._claim()
            return
        if self._other is None or self._other[0].author != holder.author:
            # Seen for the first time: only its own words say how long ago it renewed.
            age_s = max(0.0, (now_ms() - holder.at_ms) / 1000)
            self._other = (holder, monotonic_s() - age_s)
        elif self._other[0].at_ms != holder.at_ms:
            self._other = (holder, monotonic_s())
        self._tell(f"standby: flow {self.id} is led by {holder.host} pid {holder.pid}")

    def _is_dead(self, holder: LeaseEntry) -> bool:
        own_past = holder.pid == os.getpid() and _is_same_host(holder, self._host)
        return own_past or is_gone(holder, self._host)

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            log.info("%s", text)


def is_gone(holder: LeaseEntry, host: str) -> bool:
    """Whether the holder was a process of this machine that is gone, so nobody need wait."""
    return _is_same_host(holder, host) and not is_alive(holder.pid)


def _is_same_host(holder: LeaseEntry, host: str) -> bool:
    # Any number of machines call themselves that.
    return holder.host == host and not host.startswith("localhost")
