"""The ledger's topic on its cluster: the same one all the time, and whole. Driver and executors."""

from __future__ import annotations

import asyncio
from typing import Final

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.errors import BrokerError, InvariantError, LeaderMoved, LedgerUnusable
from heliograph.model import TopicId, TopicName, TopicPartition
from heliograph.wire.fetch import topic_key

_RETRY_PAUSE_S: Final = 0.1
_BOUND_TRIES: Final = 20


class LedgerTopic:
    """One partition, compacted. Refuses a topic that took the place of the one it saw first."""

    def __init__(self, cluster: Cluster, name: TopicName) -> None:
        self.cluster = cluster
        self.partition = TopicPartition(topic=name, partition=0)
        self._id: TopicId | None = None

    def __str__(self) -> str:
        return f"cluster {self.cluster.alias}: {self.partition}"

    @property
    def key(self) -> bytes:
        """Its id in the wire's form; the cluster was asked before."""
        if self._id is None:
            raise InvariantError(f"{self}: its id is not known yet")
        return topic_key(self._id)

    async def refresh(self) -> None:
        """Ask the cluster who leads it, and whether it is still the same."""
        await self.cluster.refresh([self.partition.topic])
        self.require_same()

    def require_same(self) -> None:
        """By what the cluster said last. Raises `LedgerUnusable`."""
        topic = self.cluster.topic(self.partition.topic)
        if topic is None:
            return
        if self._id is None:
            self._id = topic.id
        elif topic.id != self._id:
            raise LedgerUnusable(
                f"{self}: the ledger was deleted and created again while it was in use: nothing is "
                "mirrored by what is left of it. Restart Heliograph to go on with the new one; "
                "lanes then begin again where on.existing allows it"
            )

    async def bounds(self) -> tuple[int, int]:
        """The first offset and the end. Raises `LedgerUnusable` where the beginning is gone.

        One round trip where the leader is known: leases are renewed by reading, over long links
        too. The end is asked for and not taken from a Fetch, since a leader that was just elected
        answers a Fetch with an end that it knows to be too early (KIP-207).
        """
        if self.cluster.leader(self.partition) is None:
            await self.refresh()
        for tries_left in reversed(range(_BOUND_TRIES)):
            _, start, end = await asyncio.gather(
                self.refresh(), self._offset_at(EARLIEST), self._offset_at(LATEST)
            )
            if isinstance(start, int) and isinstance(end, int):
                self._require_whole(start)
                return start, end
            broken = next(each for each in (start, end) if isinstance(each, BrokerError))
            # A broker shows a ledger that was just created a moment before it leads it.
            if not (isinstance(broken, LeaderMoved) and tries_left):
                raise broken
            await asyncio.sleep(_RETRY_PAUSE_S)
        raise InvariantError("the ledger was not asked where it begins and ends")

    async def _offset_at(self, time: int) -> int | BrokerError:
        return (await self.cluster.list_offsets([self.partition], time))[self.partition]

    def require_read(self, read_until: int, end: int) -> None:
        """Raises `LedgerUnusable` where less is there than was read before."""
        if end < read_until:
            raise LedgerUnusable(
                f"{self}: the ledger ends at offset {end}, but {read_until} was read before: it "
                "lost records (an unclean leader election?), and nothing is mirrored by what is "
                "left of it"
            )

    def _require_whole(self, start: int) -> None:
        # Compaction never moves the start: only DeleteRecords and cleanup.policy=delete do.
        if start > 0:
            raise LedgerUnusable(
                f"{self}: the records before offset {start} were deleted, so the ledger is not "
                "whole: lanes without their beginning would be mirrored again from the start. "
                "Restore the topic, or delete it to begin anew"
            )
