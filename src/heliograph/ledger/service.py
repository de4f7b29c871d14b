"""The driver's hand on the ledgers: producer, decisions, what is there. Runs on the driver.

Slots never decide anything that the source does not fix. What to do about a loss or a recreated
topic is decided here and written to the ledger, where every slot and every later driver finds it.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from heliograph.acl import AclBinding
from heliograph.broker.cluster import EARLIEST, Cluster, open_cluster
from heliograph.clock import now_ms
from heliograph.config.schema import ClientRole, ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable
from heliograph.ledger.entries import (
    AclEntry,
    AclKey,
    Entry,
    FlowEntry,
    LeaseEntry,
    LossEntry,
    StartEntry,
    Tombstone,
    ledger_topic,
)
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Lane,
    LaneProgress,
    OffsetRange,
    StallReason,
    TopicName,
)

_CALL_S_MAX: Final = 120.0
_LET_GO_S_MAX: Final = 5.0

T = TypeVar("T")


class LedgerService:
    """One event loop on its own thread; the methods block and may be called from any thread."""

    def __init__(self, clusters: Mapping[ClusterAlias, ClusterConfig]) -> None:
        self._configs = clusters
        self._author = uuid.uuid4().hex
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ledger", daemon=True)
        self._thread.start()
        self._clusters: dict[tuple[ClusterAlias, ClientRole], Cluster] = {}
        self._stores: dict[FlowId, LedgerStore] = {}

    def open(self, flow: FlowId, source_cluster_id: str | None) -> FlowEntry:
        """The flow's producer; made now if the ledger names none."""
        return self._call(self._open(flow, source_cluster_id or ""))

    def view(self, flow: FlowId) -> LedgerView:
        """The ledger as it is now. The view belongs to the desk and changes with the next call."""
        return self._call(self._view(flow))

    def ask(self, flow: FlowId, question: Callable[[LedgerView], T]) -> T:
        """What `question` finds in the ledger as it is now; nothing changes while it looks."""
        return self._call(self._ask(flow, question))

    @property
    def author(self) -> str:
        """Tells what this driver writes from what others do."""
        return self._author

    def claim(self, flow: FlowId, entry: LeaseEntry) -> LeaseEntry | None:
        """Take or renew the lease unless another has it; who has it afterwards."""
        return self._call(self._claim(flow, entry))

    def let_go(self, flow: FlowId, entry: LeaseEntry) -> None:
        """End a lease that is ours, or that of a driver which is known to be dead."""
        ended = replace(entry, at_ms=now_ms(), lease_ms=0)
        # It ends by itself before long, so a driver that leaves does not wait for a dead cluster.
        self._call(self._write(flow, [ended]), _LET_GO_S_MAX)

    def skip(self, lane: Lane, progress: LaneProgress, lost: OffsetRange) -> None:
        """Decide that `lost` is given up: counted for ever, and the lane goes on behind it."""
        self._call(self._skip(lane, progress, lost))

    def restart(self, lane: Lane, progress: LaneProgress) -> None:
        """Decide that the lane goes on with the recreated source topic, from its first record."""
        self._call(self._restart(lane, progress))

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
            self._call(self._write(flow, entries))

    def note(self, flow: FlowId, entries: Iterable[Entry | Tombstone]) -> None:
        """Write what others decided, in order; durable when this returns."""
        self._call(self._write(flow, entries))

    def forget_lanes(self, flow: FlowId, topics: Collection[TopicName]) -> None:
        """Forget all lanes of these topics, as if they had never begun. No slot may carry them."""
        self._call(self._forget_lanes(flow, topics))

    def close(self) -> None:
        async def end() -> None:
            for store in self._stores.values():
                await store.close()
            for cluster in self._clusters.values():
                cluster.close()

        if self._thread.is_alive():
            self._call(end())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T], timeout_s: float = _CALL_S_MAX) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        except TimeoutError as exc:
            future.cancel()
            raise BrokerUnreachable(f"the ledger did not answer in {timeout_s:.0f} s") from exc

    def _cluster(self, alias: ClusterAlias, role: ClientRole) -> Cluster:
        """Sources are read as a consumer and targets written as a producer, as slots do it."""
        if (alias, role) not in self._clusters:
            self._clusters[alias, role] = open_cluster(self._configs[alias], role)
        return self._clusters[alias, role]

    def _store(self, flow: FlowId) -> LedgerStore:
        if flow not in self._stores:
            target = self._cluster(flow.target, "producer")
            self._stores[flow] = LedgerStore(target, ledger_topic(flow.source))
        return self._stores[flow]

    async def _view(self, flow: FlowId) -> LedgerView:
        store = self._store(flow)
        await store.catch_up()
        return store.view

    async def _ask(self, flow: FlowId, question: Callable[[LedgerView], T]) -> T:
        return question(await self._view(flow))

    async def _open(self, flow: FlowId, source_cluster_id: str) -> FlowEntry:
        store = self._store(flow)
        await store.catch_up()
        if store.view.flow is None:
            producer_id, epoch = await self._cluster(flow.target, "producer").new_producer_id()
            entry = FlowEntry(
                flow=flow,
                producer_id=producer_id,
                producer_epoch=epoch,
                source_cluster_id=source_cluster_id,
                created_ms=now_ms(),
            )
            await store.write_or_refuse([entry])
            # Another driver may have been first; then its producer counts for both.
            await store.catch_up()
        if store.view.flow is None:
            raise BrokerUnreachable(f"{flow}: the ledger does not show what was written to it")
        return store.view.flow

    async def _claim(self, flow: FlowId, entry: LeaseEntry) -> LeaseEntry | None:
        store = self._store(flow)
        await store.catch_up()
        holder = store.view.holder
        if holder is None or holder.author == entry.author or holder.until_ms < entry.at_ms:
            await store.write_or_refuse([entry])
            # Another driver may have been first; then it leads and we do not.
            await store.catch_up()
        return store.view.holder

    async def _write(self, flow: FlowId, entries: Iterable[Entry | Tombstone]) -> None:
        await self._store(flow).write_or_refuse(entries)

    async def _forget_lanes(self, flow: FlowId, topics: Collection[TopicName]) -> None:
        view = await self._view(flow)
        lanes = [lane for lane in view.lanes if lane.topic in topics]
        # One after the other, in the order the view gives: see `LedgerView.lane_keys`.
        keys = [key for lane in lanes for key in view.lane_keys(lane.topic, lane.partition)]
        await self._write(flow, [Tombstone(key=key) for key in keys])

    async def _skip(self, lane: Lane, progress: LaneProgress, lost: OffsetRange) -> None:
        source = lane.id.source
        loss = LossEntry(
            topic=source.topic,
            partition=source.partition,
            position=progress.position,
            lost=lost,
            reason=StallReason.RETENTION_OVERRUN,
            at_ms=now_ms(),
        )
        await self._store(lane.id.flow).catch_up()
        start = self._start(lane, progress, lost.end)
        await self._write(lane.id.flow, [loss, start])

    async def _restart(self, lane: Lane, progress: LaneProgress) -> None:
        source = self._cluster(lane.id.flow.source, "consumer")
        await source.refresh([lane.id.source.topic])
        first = (await source.list_offsets([lane.id.source], EARLIEST))[lane.id.source]
        if isinstance(first, BrokerError):
            raise first
        topic = source.topic(lane.id.source.topic)
        if topic is None:
            raise BrokerUnreachable(f"cluster {source.alias}: {lane.id.source} is gone again")
        # The lane may still name the topic that is gone; the entry names the one there is.
        renewed = replace(lane, source_topic_id=topic.id)
        await self._store(lane.id.flow).catch_up()
        await self._write(lane.id.flow, [self._start(renewed, progress, first)])

    def _start(self, lane: Lane, progress: LaneProgress, source_offset: int) -> StartEntry:
        store = self._store(lane.id.flow)
        record = store.view.begun_lane(lane.id.source.topic, lane.id.source.partition)
        last = None if record is None else record.starts[-1]
        # The first start at a position counts. Where nothing was mirrored since the last one, this
        # one takes its key: what that one begins with is gone, so nobody can follow it any more.
        replaces = last is not None and last.position == progress.position
        return StartEntry(
            topic=lane.id.source.topic,
            partition=lane.id.source.partition,
            position=progress.position,
            author=last.author if last is not None and replaces else self._author,
            source_offset=source_offset,
            target_offset=progress.target_next_offset,
            source_topic_id=lane.source_topic_id,
            target_topic_id=last.target_topic_id if last is not None else None,
            at_ms=now_ms(),
            adopted=last is not None and replaces and last.adopted,
        )
