"""The ledgers for code that blocks: jobs and planning behind the seam. Runs on the driver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar

from heliograph.acl import AclBinding
from heliograph.broker.blocking import end_other_tasks
from heliograph.clock import now_ms
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, InvariantError
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.entries import AclEntry, AclKey, Entry, FlowEntry, LeaseEntry, Tombstone
from heliograph.ledger.new_starts import Overrun, Waiting
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, TopicId, TopicName

T = TypeVar("T")


class LedgerService:
    """`LedgerAccess` for threads: each method waits for the loop that owns it."""

    def __init__(self, clusters: Mapping[ClusterAlias, ClusterConfig]) -> None:
        """With a loop of its own, for code that has none."""
        self._loop = asyncio.new_event_loop()
        self._thread: threading.Thread | None = threading.Thread(
            target=self._loop.run_forever, name="ledger", daemon=True
        )
        self._thread.start()
        self._access = LedgerAccess(clusters)

    @classmethod
    def of(cls, access: LedgerAccess) -> Self:
        """For the threads of a driver whose running loop owns `access`; not closed with this."""
        made = cls.__new__(cls)
        made._loop, made._thread, made._access = asyncio.get_running_loop(), None, access
        return made

    def open(self, flow: FlowId, source_cluster_id: str | None) -> FlowEntry:
        """The flow's producer; made now if the ledger names none."""
        return self._call(self._access.open(flow, source_cluster_id))

    def view(self, flow: FlowId) -> LedgerView:
        """The ledger as it is now. The view changes with the next call."""
        return self._call(self._access.view(flow))

    def ask(self, flow: FlowId, question: Callable[[LedgerView], T]) -> T:
        """What `question` finds in the ledger as it is now; nothing changes while it looks."""
        return self._call(self._access.ask(flow, question))

    def ask_recent(self, flow: FlowId, question: Callable[[LedgerView], T], age_s_max: float) -> T:
        """As `LedgerAccess.ask_recent`."""
        return self._call(self._access.ask_recent(flow, question, age_s_max))

    @property
    def author(self) -> str:
        """Tells what this process writes from what others do."""
        return self._access.author

    def claim(
        self, flow: FlowId, entry: LeaseEntry, over: LeaseEntry | None = None
    ) -> LeaseEntry | None:
        """As `LedgerAccess.claim`."""
        return self._call(self._access.claim(flow, entry, over))

    def skip(self, flow: FlowId, overrun: Sequence[Overrun]) -> list[BrokerError | None]:
        """As `LedgerAccess.skip`."""
        return self._call(self._access.skip(flow, overrun))

    def restart(self, flow: FlowId, lanes: Sequence[Waiting]) -> list[TopicId | BrokerError]:
        """As `LedgerAccess.restart`."""
        return self._call(self._access.restart(flow, lanes))

    def acls(self, flow: FlowId) -> frozenset[AclBinding]:
        """What the flow created on the target and did not take back."""
        return self.ask(flow, lambda view: view.acls)

    def note_acls(
        self,
        flow: FlowId,
        *,
        added: Iterable[AclBinding] = (),
        removed: Iterable[AclBinding] = (),
    ) -> None:
        """Remember ACLs before they are created, forget them after they were removed."""
        at_ms = now_ms()
        entries: list[Entry | Tombstone] = [
            *(AclEntry(binding=binding, at_ms=at_ms) for binding in added),
            *(Tombstone(key=AclKey(binding=binding)) for binding in removed),
        ]
        if entries:
            self.note(flow, entries)

    def note(self, flow: FlowId, entries: Iterable[Entry | Tombstone]) -> None:
        """Write entries in order; they are durable when this returns."""
        self._call(self._access.note(flow, entries))

    def forget_lanes(self, flow: FlowId, topics: Collection[TopicName]) -> None:
        """Forget all lanes of these topics, as if they had never begun. No slot may carry them."""
        self._call(self._access.forget_lanes(flow, topics))

    def close(self) -> None:
        if self._thread is not None:
            self._call(self._end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._thread = None
            self._loop.close()

    async def _end(self) -> None:
        await self._access.close()
        await end_other_tasks()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio._get_running_loop() is self._loop:
            work.close()
            raise InvariantError("the ledger's own loop cannot wait for itself")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
