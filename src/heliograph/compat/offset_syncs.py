"""Write MirrorMaker 2's offset syncs, with exact offsets. Runs on the driver.

Heliograph needs none of them: its map is the ledger. They are for MirrorMaker 2, which translates
by them when it gets the flow back, and for the tools that read its topics.
"""

from __future__ import annotations

from typing import Final

from heliograph.broker.clients import Clients
from heliograph.broker.records import Record
from heliograph.clock import monotonic_s
from heliograph.compat.internal_topics import InternalTopic
from heliograph.compat.offset_sync_plan import SyncQueue
from heliograph.compat.own_topics import offset_syncs_of
from heliograph.config.schema import FlowConfig
from heliograph.ledger.flow_map import FlowMap, Progress
from heliograph.model import FlowId
from heliograph.wire.mirror_records import encode_offset_sync

INTERVAL_S: Final = 1.0


class OffsetSyncsJob:
    """What was not acknowledged is tried again with the next step, unless newer by then."""

    what: Final = "offset syncs"
    interval_s: Final = INTERVAL_S

    def __init__(self, flow: FlowConfig, clients: Clients, flow_map: FlowMap) -> None:
        self.flow: Final[FlowId] = flow.id
        self._flow_map = flow_map
        self._queue = SyncQueue(lag_max=flow.offset_syncs.lag_max)
        self._topic = InternalTopic(clients, clients.offset_syncs(flow.id), offset_syncs_of(flow))
        worker = clients.target(flow.id).worker
        self._flush_interval_s = worker.offset_flush_interval_ms / 1000
        self._next_flush_s = monotonic_s() + self._flush_interval_s
        self._seen: Progress = {}

    def step(self) -> None:
        self._topic.ensure()
        is_flush_due = monotonic_s() >= self._next_flush_s
        # All lanes with each flush: what the ledger says of one may change without the lane.
        lanes, self._seen = self._flow_map.moved({} if is_flush_due else self._seen)
        for source, lane in lanes.items():
            if lane.last_source_offset is None or lane.last_target_offset is None:
                continue
            self._queue.observe(
                source,
                upstream_offset=lane.last_source_offset,
                downstream_offset=lane.last_target_offset,
                position=lane.position,
            )
        if is_flush_due:
            self._next_flush_s = monotonic_s() + self._flush_interval_s
            self._queue.promote_delayed()
        self._write_pending()

    def finish(self) -> None:
        """A last step; tells the delayed ones too, as MirrorMaker 2 does when it is stopped."""
        self._next_flush_s = 0.0
        self.step()

    def _write_pending(self) -> None:
        pending = self._queue.pending
        if not pending:
            return
        pairs = [encode_offset_sync(sync) for sync in pending.values()]
        self._topic.write([Record(key=key, value=value) for key, value in pairs])
        self._queue.written(pending)
