"""The target side of a slot: batches wait for ticket, then stream. Runs on executors."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from typing import Final

from heliograph.copy.appending import AppendStream
from heliograph.copy.chunk import PreparedChunk
from heliograph.copy.fates import Fates
from heliograph.copy.lane import LANE_BYTES_MAX, CarriedLane, Phase
from heliograph.errors import MirrorError
from heliograph.model import ClusterAlias, FlowId
from heliograph.wire.batch import is_compressed

APPEND_STREAMS: Final = 2
"""Connections to each target broker: compressed batches are validated on one thread of each."""

StreamKey = tuple[ClusterAlias, int, int]


class TargetSide:
    """Owned by the shuttle, in its event loop."""

    def __init__(self, fates: Fates, on_room: Callable[[CarriedLane], None]) -> None:
        self._fates = fates
        self._on_room = on_room
        """Told when a lane that was held back may be fetched again."""
        self._streams: dict[StreamKey, AppendStream] = {}
        self._gated: defaultdict[FlowId, set[CarriedLane]] = defaultdict(set)
        self._pump_due = False

    def take(self, lane: CarriedLane, layout: PreparedChunk) -> int:
        """Queue what was laid out, its runs to the ledger first; returns the bytes now kept."""
        ticket = 0
        if entries := lane.explain(layout):
            ticket = lane.flow.ledger.write_soon(entries)
            self._gated[lane.spec.id.flow].add(lane)
        kept_bytes = lane.take(layout, ticket)
        if layout.batches:
            self._pump_soon(lane)
        return kept_bytes

    def release(self, flow: FlowId) -> None:
        """The flow's ledger has more on disk: send what waited for it."""
        gated = self._gated[flow]
        for lane in tuple(gated):
            if lane.sendable:
                self._pump_soon(lane)
            if not lane.outgoing or lane.outgoing[-1].ticket <= lane.flow.ledger.durable:
                gated.discard(lane)

    def check_timeouts(self) -> None:
        for stream in self._streams.values():
            stream.check_timeout()

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()

    def _pump_soon(self, lane: CarriedLane) -> None:
        """Offer the lane now; send once for all lanes of this turn, so that requests are packed."""
        stream = self._stream(lane)
        if stream is None:
            self._fates.target_failed(lane, lane.flow.target.no_leader_error(lane.spec.target))
            return
        stream.offer(lane)
        if not self._pump_due:
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_due = False
        for stream in tuple(self._streams.values()):
            stream.pump()

    def _stream(self, lane: CarriedLane) -> AppendStream | None:
        cluster, target = lane.flow.target, lane.spec.target
        leader = cluster.leader(target)
        if leader is None:
            return None
        if lane.append_stream < 0:
            lane.append_stream = _stream_index(lane)
        key = (cluster.alias, leader.broker, lane.append_stream)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = AppendStream(
                cluster, leader.broker, key[2], self._settled, self._trouble
            )
        return stream

    def _settled(self, lane: CarriedLane, freed_bytes: int) -> None:
        self._fates.kept(-freed_bytes)
        if lane.held and lane.buffered_bytes < LANE_BYTES_MAX // 2:
            lane.held = False
            self._on_room(lane)
        if not lane.outgoing and not lane.in_flight:
            self._fates.quiet(lane)

    def _trouble(self, lane: CarriedLane, error: MirrorError | None) -> None:
        if lane.phase is Phase.RUNNING:
            if error is None:
                self._fates.out_of_place(lane)
            else:
                self._fates.target_failed(lane, error)
        elif not lane.in_flight:
            self._fates.quiet(lane)


def _stream_index(lane: CarriedLane) -> int:
    """Plain batches share a connection, where requests are packed best; compressed ones spread."""
    spread = lane.outgoing and is_compressed(lane.outgoing[0].view)
    return lane.spec.target.partition % APPEND_STREAMS if spread else 0
