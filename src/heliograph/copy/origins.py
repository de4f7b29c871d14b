"""Which batches of a source mirrors wrote there, known by their producer. Runs on executors.

Every batch that a flow writes carries a producer id that the cluster gave to it alone, and the
flow's ledger on that cluster lists the id before the first such batch is written. So a batch that
is read and whose id is in no ledger that is read *after* it was written by somebody else: nothing
is guessed. Producers of a flow have an epoch of its own (`ledger.mark`), far above those that
producers of others begin with; so the ledgers are asked again only for an id that is new and has
such an epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from heliograph.broker.cluster import Cluster
from heliograph.errors import LedgerUnusable, NotAuthorised
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.kept import NOTHING_KEPT, is_kept, left_out_until
from heliograph.ledger.mark import LOWEST_MARK, mark_of
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClusterAlias, FlowId, OffsetRange, TopicName, TopicPartition
from heliograph.topics.naming import LEDGER_PREFIX
from heliograph.wire.batch import BatchHeader


class Origin(Enum):
    LOCAL = "local"
    MIRRORED = "mirrored"
    UNKNOWN = "unknown"
    """The ledgers must be asked first."""


class Producer(NamedTuple):
    """As a batch names who wrote it."""

    id: int
    epoch: int


class Origins(NamedTuple):
    """What is known of producers; the sets grow as ledgers are read."""

    mirrored: set[int]
    local: set[int]
    """Of those with an epoch that a flow's producer may have: ledgers were asked, and have none."""

    def of(self, header: BatchHeader, kept: OffsetRange = NOTHING_KEPT) -> Origin:
        """Where a batch is `kept`, nobody need know who wrote it."""
        if left_out_until(header, self.mirrored, kept) == header.next_offset:
            return Origin.MIRRORED
        is_no_flow = header.producer_epoch < LOWEST_MARK or header.is_transactional
        # Java's transactional producers count their epoch up with every start, so theirs do get
        # that high.
        is_local = is_no_flow or header.producer_id in self.local or is_kept(header, kept)
        return Origin.LOCAL if is_local else Origin.UNKNOWN


class SourceOrigins:
    """The ledgers of flows into a source, as one flow out of it asks them."""

    def __init__(
        self, source: Cluster, mirrors: Iterable[ClusterAlias], *, reads_all: bool
    ) -> None:
        """`mirrors` are clusters whose flows into the source are known by name; `reads_all`: those
        of all others too, as the source shows their ledgers."""
        self.known: Final = Origins(set(), set())
        self.is_read = False
        """Whether all that was listed before the first fetch is known."""
        self._source = source
        into = ((alias, FlowId(source=alias, target=source.alias)) for alias in mirrors)
        self._named = {ledger_topic(alias): mark_of(flow) for alias, flow in into}
        self._reads_all = reads_all
        self._stores: dict[TopicName, LedgerStore] = {}
        self._reading = asyncio.Lock()

    async def learn(self, asked: Collection[Producer] = ()) -> None:
        """Read the ledgers to where they end now; `asked` are producers of batches that are there.

        Raises `MirrorError` where a ledger cannot be read: then nothing is known of these batches.
        """
        async with self._reading:
            # Lanes of a slot meet a new producer together, and one look is enough for all.
            known = self.known
            ids = {each.id for each in asked}
            if self.is_read and ids <= known.mirrored | known.local:
                return
            for name in await self._ledgers(asked):
                await self._read(name)
            known.local.update(ids - known.mirrored)
            self.is_read = True

    async def _ledgers(self, asked: Collection[Producer]) -> list[TopicName]:
        """Those that are there. One that is hidden must not pass for one that is not."""
        await self._source.refresh(self._named)
        found: set[TopicName] = set()
        for name, mark in self._named.items():
            if self._source.topic(name) is not None:
                found.add(name)
                continue
            gone = self._source.no_leader_error(TopicPartition(topic=name, partition=0))
            if isinstance(gone, NotAuthorised):
                raise gone
            if any(each.epoch == mark for each in asked):
                raise LedgerUnusable(
                    f"cluster {self._source.alias}: batches have the mark of the flow that "
                    f"{name} belongs to, and that ledger is gone: nothing says which batches a "
                    "mirror wrote. Restore the topic, or say loop.prevention = none"
                )
        if self._reads_all:
            shown: Mapping[TopicName, object] = await self._source.refresh_all()
            found |= {name for name in shown if name.startswith(LEDGER_PREFIX)}
        return sorted(found)

    async def _read(self, name: TopicName) -> None:
        store = self._stores.get(name)
        if store is None:
            store = self._stores[name] = LedgerStore(self._source, name, lanes=())
        await store.catch_up()
        self.known.mirrored.update(each.producer_id for each in store.view.producers)
