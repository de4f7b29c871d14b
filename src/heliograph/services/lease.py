"""Which driver carries which flow: one leads, the others stand by. Runs on the driver.

The lease saves work, not data: two drivers of one flow cannot lose or repeat a record either way,
since the target's brokers refuse what is out of place. They would only get in each other's way.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from pathlib import Path
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError
from heliograph.ledger.entries import LeaseEntry, ledger_topic
from heliograph.model import FlowId
from heliograph.services.desk import LedgerDesk
from heliograph.services.prepare import LEDGER_PARTITIONS

log = logging.getLogger("heliograph")

LEASE_S_DEFAULT: Final = 15.0
_LOOKS_PER_LEASE: Final = 15
_RENEWALS_PER_LEASE: Final = 3
_JOIN_S_MAX: Final = 1.0


class Leases:
    """Claims the lease of every flow and renews it, each on a thread of its own.

    A driver that waits for a slow cluster must not lose what it leads, so nothing here waits for
    the driver, nor one flow for another. A lease counts as lost only when another is seen to have
    it: a target that does not answer can be written by nobody else either.
    """

    def __init__(
        self,
        config: MirrorConfig,
        desk: LedgerDesk,
        *,
        lease_s: float = LEASE_S_DEFAULT,
        host: str | None = None,
    ) -> None:
        self.slot_count = 0
        """Told to whoever asks; known once Spark is up."""
        self._stop = threading.Event()
        self._flows = {
            flow.id: _FlowLease(
                flow, config, desk, lease_s=lease_s, host=host or socket.gethostname(), owner=self
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
        return self._flows[flow].led is not None

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
        desk: LedgerDesk,
        *,
        lease_s: float,
        host: str,
        owner: Leases,
    ) -> None:
        self.id: Final = flow.id
        self.led: LeaseEntry | None = None
        self.known = threading.Event()
        self.ended = threading.Event()
        self._flow, self._config, self._desk, self._owner = flow, config, desk, owner
        self._lease_s, self._host = lease_s, host
        self._has_ledger = False
        self._other: tuple[LeaseEntry, float] | None = None
        """Who else leads, and when it was last seen to renew."""
        self._told = ""

    def keep(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                try:
                    self._claim()
                except BrokerError as exc:
                    self._tell(f"lease of {self.id}: {exc}")
                else:
                    self.known.set()
                # A holder that lets go should not be waited for longer than it takes to look.
                parts = _LOOKS_PER_LEASE if self.led is None else _RENEWALS_PER_LEASE
                stop.wait(self._lease_s / parts)
        finally:
            self.ended.set()

    def release(self) -> None:
        led, self.led = self.led, None
        if led is None:
            return
        try:
            self._desk.let_go(self.id, led)
        except BrokerError as exc:
            log.warning("lease of %s: not released, it ends by itself: %s", self.id, exc)

    def _claim(self) -> None:
        if not self._has_ledger:
            target = ClusterAdmin(self._config.target_of(self.id))
            target.ensure_compacted_topic(
                ledger_topic(self.id.source),
                partitions=LEDGER_PARTITIONS,
                replication_factor=self._flow.replication_factor,
            )
            self._has_ledger = True
        if self.led is None and self._other is not None and self._renews(*self._other):
            self._note(self._desk.view(self.id).holder)
        else:
            self._note(self._desk.claim(self.id, self._entry()))

    def _entry(self) -> LeaseEntry:
        return LeaseEntry(
            author=self._desk.author,
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
        if holder is not None and holder.author == self._desk.author:
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
            self._desk.let_go(self.id, holder)
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
        """Whether the holder was a process of this machine that is gone, so nobody need wait."""
        if holder.host != self._host or self._host.startswith("localhost"):
            return False
        return holder.pid == os.getpid() or not _is_running(holder.pid)

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            log.info("%s", text)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    stat = Path(f"/proc/{pid}/stat")
    # One that was killed and not yet buried still has its number.
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")
