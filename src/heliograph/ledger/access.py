"""Ledgers as driver and commands reach them: read, decided on, leased. Runs on the driver.

`LedgerAccess` is for a driver, which keeps many ledgers open; `open_ledger`, `read_ledger` and
`lease_ledger` are for a command that needs one for a moment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.blocking import blocking
from heliograph.broker.cluster import EARLIEST, Cluster, open_cluster
from heliograph.broker.open_clusters import OpenClusters
from heliograph.clock import now_ms
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.errors import (
    BrokerError,
    BrokerUnreachable,
    LeaderMoved,
    MirrorError,
    NoLedger,
)
from heliograph.ledger.entries import (
    Entry,
    FlowEntry,
    LeaseEntry,
    LeaseKey,
    Tombstone,
    ledger_topic,
)
from heliograph.ledger.holder import HolderWatch, is_gone, is_here
from heliograph.ledger.mark import new_flow_producer
from heliograph.ledger.new_starts import NewStart, Overrun, Waiting, decide_starts
from heliograph.ledger.settings import ensure_ledger_topic
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicId, TopicName
from heliograph.processes import new_signature

T = TypeVar("T")
log = logging.getLogger(__name__)

_CALL_S_MAX: Final = 120.0
_LET_GO_S_MAX: Final = 5.0
_LEASE_MS: Final = 300_000
"""Longer than anything is written here; it is let go at the end."""
_WATCHED_MS_MAX: Final = 30_000
"""Of a lease that lasts longer, such as a command's, its own words say whether it is over."""
_WATCH_S: Final = 0.5


class LedgerAccess:
    """The ledgers of all flows on one event loop: connections and views are kept in between.

    Slots never decide anything that the source does not fix. What to do about a loss or a recreated
    topic is decided by the driver and written here, where every slot and later driver finds it.
    Every call is bounded in time and raises `BrokerUnreachable` when it is over. Sources are read
    as a consumer and targets written as a producer, as slots do it.
    """

    def __init__(self, clusters: Mapping[ClusterAlias, ClusterConfig]) -> None:
        self.author: Final = new_signature()
        """Tells what this process writes from what others do."""
        self._clusters = OpenClusters(clusters)
        self._stores: dict[FlowId, LedgerStore] = {}

    async def view(self, flow: FlowId) -> LedgerView:
        """The ledger as it is now. The view changes with the next call."""
        store = self._store(flow)
        await within(store.catch_up(), _CALL_S_MAX, f"ledger of {flow}")
        return store.view

    async def ask(self, flow: FlowId, question: Callable[[LedgerView], T]) -> T:
        """What `question` finds in the ledger as it is now; nothing changes while it looks."""
        return question(await self.view(flow))

    async def ask_recent(
        self, flow: FlowId, question: Callable[[LedgerView], T], age_s_max: float
    ) -> T:
        """As `ask`, without a look of its own where the last one is not too old."""
        if self._store(flow).age_s > age_s_max:
            await self.view(flow)
        return question(self._store(flow).view)

    def age_s(self, flow: FlowId) -> float:
        """How long ago the ledger was last looked at; infinite where it never was."""
        return self._store(flow).age_s

    async def open(self, flow: FlowId, source_cluster_id: str | None) -> FlowEntry:
        """The flow's producer; made now if the ledger names none."""
        await self.view(flow)
        store = self._store(flow)
        if store.view.flow is None:
            target = self._clusters.get(flow.target, "producer")
            producer_id, epoch = await new_flow_producer(target, flow)
            entry = FlowEntry(
                flow=flow,
                producer_id=producer_id,
                producer_epoch=epoch,
                source_cluster_id=source_cluster_id or "",
                created_ms=now_ms(),
            )
            await self.note(flow, [entry])
            # Another driver may have been first; then its producer counts for both.
            await self.view(flow)
        if store.view.flow is None:
            raise BrokerUnreachable(f"{flow}: the ledger does not show what was written to it")
        return store.view.flow

    async def claim(
        self, flow: FlowId, entry: LeaseEntry, over: LeaseEntry | None = None
    ) -> LeaseEntry | None:
        """Take or renew the lease unless another has it; who has it afterwards.

        `over` is a lease of another that is over, by `HolderWatch` or because its holder is dead.
        """
        claimed = claim_lease(self._store(flow), entry, over)
        return await within(claimed, _CALL_S_MAX, f"ledger of {flow}")

    async def renew(self, flow: FlowId, entry: LeaseEntry) -> LeaseEntry | None:
        """As `claim`, for a lease that was ours when the ledger was last read."""
        renewed = _write_lease(self._store(flow), entry)
        return await within(renewed, _CALL_S_MAX, f"ledger of {flow}")

    async def let_go(self, flow: FlowId, entry: LeaseEntry) -> None:
        """End a lease that is ours."""
        ended = replace(entry, at_ms=now_ms(), lease_ms=0)
        # It ends by itself before long, so a driver that leaves does not wait for a dead cluster.
        written = self._store(flow).write_or_refuse([ended])
        await within(written, _LET_GO_S_MAX, f"ledger of {flow}")

    async def note(self, flow: FlowId, entries: Iterable[Entry | Tombstone]) -> None:
        """Write entries in order; they are durable when this returns."""
        await within(self._store(flow).write_or_refuse(entries), _CALL_S_MAX, f"ledger of {flow}")

    async def forget_lanes(self, flow: FlowId, topics: Collection[TopicName]) -> None:
        """Forget all lanes of these topics, as if they had never begun. No slot may carry them."""
        view = await self.view(flow)
        lanes = [lane for lane in view.lanes if lane.topic in topics]
        # One after the other, in the order the view gives: see `LedgerView.lane_keys`.
        keys = [key for lane in lanes for key in view.lane_keys(lane.topic, lane.partition)]
        await self.note(flow, [Tombstone(key=key) for key in keys])

    async def skip(self, flow: FlowId, overrun: Sequence[Overrun]) -> list[BrokerError | None]:
        """Decide what is given up: counted for ever once the lane goes on behind it.

        Of each lane in turn: why it could not be decided on, if so.
        """
        wanted = [
            NewStart(lane=each.lane, at=each.at, source_offset=each.lost.end, lost=each.lost)
            for each in overrun
        ]
        return await self._begin_at(flow, wanted)

    async def restart(self, flow: FlowId, lanes: Sequence[Waiting]) -> list[TopicId | BrokerError]:
        """Decide that lanes go on with the recreated source topics, from their first records.

        Returns those topics' ids: the lanes may still name the ones that are gone.
        """
        source = self._clusters.get(flow.source, "consumer")
        await source.refresh({each.lane.id.source.topic for each in lanes})
        firsts = await source.list_offsets([each.lane.id.source for each in lanes], EARLIEST)
        answers: dict[LaneId, TopicId | BrokerError] = {}
        wanted: list[NewStart] = []
        for each in lanes:
            at, topic = each.lane.id.source, source.topic(each.lane.id.source.topic)
            first = firsts[at]
            if isinstance(first, BrokerError):
                answers[each.lane.id] = first
            elif topic is None:
                gone = BrokerUnreachable(f"cluster {source.alias}: {at} is gone again")
                answers[each.lane.id] = gone
            else:
                lane = replace(each.lane, source_topic_id=topic.id)
                wanted.append(NewStart(lane=lane, at=each.at, source_offset=first))
                answers[lane.id] = topic.id
        for new, begun in zip(wanted, await self._begin_at(flow, wanted), strict=True):
            if isinstance(begun, BrokerError):
                answers[new.lane.id] = begun
        return [answers[each.lane.id] for each in lanes]

    async def _begin_at(self, flow: FlowId, wanted: Sequence[NewStart]) -> list[BrokerError | None]:
        if not wanted:
            return []
        decided = decide_starts(self._store(flow), wanted)
        return await within(decided, _CALL_S_MAX, f"ledger of {flow}")

    async def close(self) -> None:
        for store in self._stores.values():
            await store.close()
        self._clusters.close()

    async def use(self, clusters: Mapping[ClusterAlias, ClusterConfig]) -> None:
        """Reach the clusters so from here on; what is under way is answered first."""
        await asyncio.gather(*self._clusters.use(clusters))

    async def forget(self, flow: FlowId) -> None:
        """Keep nothing open for a flow that ended; one that begins again is read anew."""
        store = self._stores.pop(flow, None)
        if store is not None:
            await store.close()
        self._clusters.drop()

    def _store(self, flow: FlowId) -> LedgerStore:
        if flow not in self._stores:
            target = self._clusters.get(flow.target, "producer")
            self._stores[flow] = LedgerStore(target, ledger_topic(flow.source))
        return self._stores[flow]


@dataclass(frozen=True, slots=True)
class OpenLedger:
    target: Cluster
    store: LedgerStore


@asynccontextmanager
async def open_ledger(config: MirrorConfig, flow: FlowId) -> AsyncIterator[OpenLedger]:
    """To read it; the topic must be there."""
    target = open_cluster(config.target_of(flow), "producer")
    store = LedgerStore(target, ledger_topic(flow.source))
    try:
        yield OpenLedger(target, store)
    finally:
        await store.close()
        target.close()


@asynccontextmanager
async def read_ledger(config: MirrorConfig, flow: FlowId) -> AsyncIterator[OpenLedger]:
    """As `open_ledger`, read to its end. Raises `BrokerError` where nothing was mirrored yet."""
    async with open_ledger(config, flow) as ledger:
        try:
            await ledger.store.catch_up()
        except LeaderMoved as exc:
            require_ledger(ledger.target, flow, exc)
            raise
        yield ledger


def require_ledger(target: Cluster, flow: FlowId, exc: LeaderMoved) -> None:
    """Tells a ledger that was never there from one that has no leader at the moment."""
    if target.topic(ledger_topic(flow.source)) is None:
        raise NoLedger(
            f"cluster {target.alias}: no ledger of {flow}, nothing was mirrored yet"
        ) from exc


@asynccontextmanager
async def lease_ledger(config: MirrorConfig, flow: FlowId) -> AsyncIterator[OpenLedger]:
    """To write it; made if there is none. Raises `MirrorError` while a driver leads the flow."""
    await ensure_ledger(config, flow)
    async with open_ledger(config, flow) as ledger:
        lease = await _claimed(ledger.store, flow)
        try:
            yield ledger
        finally:
            await ledger.store.write([replace(lease, at_ms=now_ms(), lease_ms=0)])


async def ensure_ledger(config: MirrorConfig, flow: FlowId) -> None:
    """Make the ledger's topic unless it is there."""

    def ensure() -> None:
        ensure_ledger_topic(
            ClusterAdmin(config.target_of(flow)),
            ledger_topic(flow.source),
            replication_factor=config.flow(flow).replication_factor,
        )

    await blocking(ensure)


async def _claimed(store: LedgerStore, flow: FlowId) -> LeaseEntry:
    lease = LeaseEntry(
        author=new_signature(),
        host=socket.gethostname(),
        pid=os.getpid(),
        at_ms=now_ms(),
        lease_ms=_LEASE_MS,
        slot_count=0,
    )
    await store.catch_up()
    holder = await claim_lease(store, lease, over=await require_unled(store, flow))
    if holder is None or holder.author != lease.author:
        await require_unled(store, flow)
        raise MirrorError(f"{flow}: the ledger does not show the lease that was written to it")
    return lease


async def claim_lease(
    store: LedgerStore, entry: LeaseEntry, over: LeaseEntry | None = None
) -> LeaseEntry | None:
    """As `LedgerAccess.claim`."""
    await store.catch_up()
    holder = store.view.holder
    if holder is None or holder.author == entry.author:
        return await _write_lease(store, entry)
    if holder != over:
        return holder
    # All readers give the lease to an entry later than the holder's last. Just later: if the
    # holder renews at this very moment, this entry counts for nothing, whatever the clocks say.
    taken = await _write_lease(store, replace(entry, at_ms=holder.until_ms + 1))
    if taken is not None and taken.author == entry.author:
        # The entries of the one before are gone with the next compaction: one from a clock that is
        # ahead would seem to be later than all that follow.
        await store.write_or_refuse([Tombstone(key=LeaseKey(author=over.author)), entry])
        await store.catch_up()
    return store.view.holder


async def _write_lease(store: LedgerStore, entry: LeaseEntry) -> LeaseEntry | None:
    """Who leads once the entry is in the ledger.

    Another process may have been first; then it leads, and this one lets go at once: see
    `LedgerView.holder`.
    """
    await store.write_or_refuse([entry])
    await store.catch_up()
    holder = store.view.holder
    if holder is None or holder.author != entry.author:
        await store.write_or_refuse([replace(entry, lease_ms=0)])
    return holder


async def require_unled(store: LedgerStore, flow: FlowId) -> LeaseEntry | None:
    """Raises `MirrorError` while another process leads the flow; a lease of one that does not.

    A process that cannot be asked is watched until it renews its lease, or does not in time.
    """
    watch = HolderWatch()
    while (holder := store.view.holder) is not None:
        renewed, is_short = watch.see(holder), holder.lease_ms <= _WATCHED_MS_MAX
        left_s = watch.left_s if is_short else (holder.until_ms - now_ms()) / 1000
        if left_s <= 0 or is_gone(holder):
            return holder
        if renewed or not is_short or is_here(holder):
            raise MirrorError(
                f"{flow} is mirrored by {holder.host} (pid {holder.pid}); stop it first. "
                f"If it crashed, its lease expires in {left_s:.0f} s"
            )
        await asyncio.sleep(_WATCH_S)
        await store.catch_up()
    return None


async def within(work: Awaitable[T], timeout_s: float, subject: str) -> T:
    """What `work` gives; raises `BrokerUnreachable` when it takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError as exc:
        raise BrokerUnreachable(f"{subject}: no answer in {timeout_s:g} s") from exc
