"""The ledger topic: read to its end, written with group commit. Runs on driver and executors.

One partition, compacted, on the target. Whoever writes an entry holds a *ticket*; what needs the
entry waits until its ticket is durable (`writer`). What is read is folded into `view`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.broker.cluster import Cluster
from heliograph.broker.log import read_batches
from heliograph.clock import monotonic_s
from heliograph.errors import BrokerUnreachable, LedgerUnusable, MirrorError, WireError
from heliograph.ledger.entries import Entry, Tombstone, new_author
from heliograph.ledger.entry_codec import newer_version
from heliograph.ledger.topic import LedgerTopic
from heliograph.ledger.view import LedgerView
from heliograph.ledger.writer import LedgerWriter
from heliograph.model import TopicName, TopicPartition
from heliograph.wire.batch import BatchHeader

WRITE_S_MAX: Final = 10.0
"""How long a lane that looks for its place waits for what it writes; longer, and it says so."""
READ_AGAIN_AFTER_S: Final = 600.0
"""Tombstones stay for `delete.retention.ms`, 900 s. Whoever did not look for so long may have
missed one, and reads all of the ledger again."""


class LedgerStore:
    """One flow's ledger in one process. `view` is as new as the last `catch_up`; own writes show
    only then."""

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        author: str = "",
        *,
        lanes: Collection[TopicPartition] | None = None,
    ) -> None:
        """`lanes` are those whose entries are kept, `carry` adds to them; None: all there are."""
        self.view = LedgerView(lanes)
        self.author = author or new_author()
        """What this process's entries are signed with."""
        self._topic = LedgerTopic(cluster, topic)
        self._writer = LedgerWriter(self._topic)
        self._lanes = None if lanes is None else set(lanes)
        self._next_offset = 0
        self._read_at_s = -1.0
        self._foreign = 0
        self._reading = asyncio.Lock()

    # -- reading

    async def catch_up(self) -> None:
        """Read to where the ledger ends at this moment, so that all written before is in `view`.

        Raises `LedgerUnusable` where the ledger is not the one that was read before, not whole, or
        of a newer version: nothing may be concluded from it, or written to it.
        """
        async with self._reading:
            looked_at_s = monotonic_s()
            _, end = await self._topic.bounds()
            self._topic.require_read(self._next_offset, end)
            if self._read_at_s < 0 or looked_at_s - self._read_at_s > READ_AGAIN_AFTER_S:
                fresh = LedgerView(self._lanes)
                self._foreign = 0
                self._next_offset = await self._read(fresh, 0, end)
                self.view = fresh
            else:
                self._next_offset = await self._read(self.view, self._next_offset, end)
                await self._read_added()
            self._read_at_s = looked_at_s

    @property
    def age_s(self) -> float:
        """How long ago the ledger was last looked at; infinite where it never was."""
        return math.inf if self._read_at_s < 0 else monotonic_s() - self._read_at_s

    def carry(self, lanes: Iterable[TopicPartition]) -> None:
        """Keep the entries of these lanes too, from the next `catch_up` on."""
        if self._lanes is not None:
            self._lanes.update(lanes)

    def drop(self, lanes: Iterable[TopicPartition]) -> None:
        """Keep the entries of these lanes no longer."""
        if self._lanes is not None:
            gone = set(lanes)
            self._lanes -= gone
            self.view.drop(gone)

    @property
    def garbage_records(self) -> int:
        """Records in the topic that are not Heliograph's, or could not be decoded."""
        return self._foreign + self.view.unreadable_records

    async def _read(self, view: LedgerView, start: int, end: int) -> int:
        """Fold `[start, end)` into the view; where the next read begins."""
        next_offset = start
        async for header, batch in read_batches(
            self._topic.cluster, self._topic.partition, start, end
        ):
            if not header.is_control:
                self._foreign += self._fold(view, header, batch)
            next_offset = header.next_offset
        return next_offset

    async def _read_added(self) -> None:
        """Lanes that were added since: what was skipped of them is read into a view of its own."""
        added = [lane for lane in self._lanes or () if not self.view.folds(lane)]
        if added:
            theirs, foreign = LedgerView(added), self._foreign
            await self._read(theirs, 0, self._next_offset)
            # Counted when it was read first.
            self._foreign = foreign
            self.view.take(theirs)

    def _fold(self, view: LedgerView, header: BatchHeader, batch: memoryview) -> int:
        """Fold a batch; how many of its records are somebody else's, counted and never trusted."""
        foreign = seen = 0
        try:
            for record in DefaultRecordBatch(bytes(batch)):
                seen += 1
                key, value = record.key or b"", record.value
                try:
                    view.apply_record(key, value)
                except WireError:
                    self._require_readable(key, value)
                    foreign += 1
        except MirrorError:
            raise
        except Exception:  # noqa: BLE001 - aiokafka's many ways to refuse bytes that are not ours
            # We write no headers and every batch whole, so what does not parse is not ours, nor is
            # what comes after it in the batch.
            foreign += max(1, header.record_count - seen)
        return foreign

    def _require_readable(self, key: bytes, value: bytes | None) -> None:
        version = newer_version(key, value)
        if version is not None:
            name = key[:80].decode("ascii", "replace")
            raise LedgerUnusable(
                f"{self._topic}: the ledger has a record of version {version} ({name}), which a "
                "newer Heliograph wrote and this one cannot read: use the newer one"
            )

    # -- writing

    @property
    def durable(self) -> int:
        """Every ticket up to this one is in the ledger."""
        return self._writer.durable

    @property
    def on_durable(self) -> list[Callable[[], None]]:
        return self._writer.on_durable

    @property
    def problem(self) -> MirrorError | None:
        """Why the ledger cannot be written at this moment; None while it can."""
        return self._writer.problem

    @property
    def writing_since_s(self) -> float | None:
        """Since when the batch that is written now waits to be durable."""
        return self._writer.writing_since_s

    @property
    def problem_since_ms(self) -> int:
        """When the problem came up that there is."""
        return self._writer.problem_since_ms

    def write_soon(self, entries: Iterable[Entry | Tombstone]) -> int:
        """Queue entries in order; the ticket returned is durable once all of them are."""
        return self._writer.write_soon(entries)

    async def write(self, entries: Iterable[Entry | Tombstone]) -> None:
        """Write and wait until it is durable, however long the cluster takes."""
        await self._writer.until_durable(self.write_soon(entries))

    async def write_or_refuse(
        self, entries: Iterable[Entry | Tombstone], timeout_s: float | None = None
    ) -> None:
        """As `write`, but raises where only an operator can end the wait (`NotAuthorised`, ...),
        and where it takes too long.

        The entries stay queued and are written once they may be: what is repeated is harmless.
        """
        ticket = self.write_soon(entries)
        durable = self._writer.until_durable(ticket, unless_refused=True)
        await (durable if timeout_s is None else self._in_time(durable, timeout_s))

    async def flush(self, timeout_s: float) -> None:
        """Wait until all that was queued is durable; `MirrorError` if that takes too long."""
        await self._in_time(self._writer.until_durable(self._writer.tickets), timeout_s)

    async def _in_time(self, durable: Awaitable[None], timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await durable
        except TimeoutError as exc:
            raise self.problem or BrokerUnreachable(
                f"{self._topic}: not written in {timeout_s:g} s"
            ) from exc

    async def fail_with_writer(self) -> None:
        """Waits as long as the writer works; raises what ended it, which is a bug of ours."""
        await self._writer.fail_with_writer()

    async def close(self) -> None:
        await self._writer.close()
