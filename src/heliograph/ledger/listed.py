"""Records appended beside a flow, by a producer its ledger lists. Runs on the driver.

What a repair or a replay puts into a mirrored topic came from the source as well. The flow the
other way must not send it back, and knows what a mirror wrote by the producers in the ledger alone.
So this one is listed there, behind the flow's own, before it writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from heliograph.broker.cluster import Cluster
from heliograph.broker.seed import append_batch
from heliograph.clock import monotonic_s, now_ms
from heliograph.errors import BrokerError, NoLedger
from heliograph.ledger.entries import FlowEntry
from heliograph.ledger.mark import new_flow_producer
from heliograph.ledger.positions import sequence_of
from heliograph.ledger.store import LedgerStore
from heliograph.model import FlowId, TopicPartition
from heliograph.wire.batch import Stamp, restamp
from heliograph.wire.opened import Content
from heliograph.wire.rows import encode_records

_BATCH_BYTES_MAX: Final = 512 * 1024
_GIVE_UP_S: Final = 60.0
_RETRY_S: Final = 0.2
_PLAIN: Final = 0


async def list_producer(target: Cluster, ledger: LedgerStore, flow: FlowId) -> Stamp:
    """A new producer, in the ledger when this returns. Raises `MirrorError`."""
    await ledger.catch_up()
    own = ledger.view.flow
    if own is None:
        # The first one in a ledger is the flow's own.
        raise NoLedger(f"the ledger of {flow} names no producer: nothing was mirrored yet")
    producer_id, epoch = await new_flow_producer(target, flow)
    listed = FlowEntry(
        flow=flow,
        producer_id=producer_id,
        producer_epoch=epoch,
        source_cluster_id=own.source_cluster_id,
        created_ms=now_ms(),
    )
    await ledger.write_or_refuse([listed])
    return Stamp(producer_id, epoch)


class ListedWriter:
    """Appends to partitions of one cluster, each of them from this writer alone."""

    def __init__(self, target: Cluster, stamp: Stamp) -> None:
        self._target, self._stamp = target, stamp
        self._positions: dict[TopicPartition, int] = {}

    async def append(self, at: TopicPartition, contents: Sequence[Content]) -> None:
        """Once, also where an answer is lost. Raises `BrokerError`; some are then there."""
        offsets = range(len(contents))
        for batch in encode_records(offsets, contents, _PLAIN, bytes_max=_BATCH_BYTES_MAX):
            position = self._positions.get(at, 0)
            restamp(
                memoryview(batch.batch),
                producer_id=self._stamp.producer_id,
                producer_epoch=self._stamp.producer_epoch,
                sequence=sequence_of(position),
            )
            await self._append(at, batch.batch)
            self._positions[at] = position + batch.record_count

    async def _append(self, at: TopicPartition, batch: bytearray) -> None:
        give_up_s = monotonic_s() + _GIVE_UP_S
        while True:
            try:
                if self._target.leader(at) is None:
                    await self._target.refresh([at.topic])
                await append_batch(self._target, at, batch)
            except BrokerError as exc:
                # The same batch again: a broker that has it says so.
                if not exc.retriable or monotonic_s() > give_up_s:
                    raise
                await asyncio.sleep(_RETRY_S)
                await self._target.refresh([at.topic])
            else:
                return
