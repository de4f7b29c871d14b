"""The source side of a slot: lanes on their leaders' streams, laid out. Runs on executors."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from heliograph.broker.cluster import EARLIEST, LATEST
from heliograph.broker.codes import NONE, broker_error
from heliograph.copy.chunk import PreparedChunk, prepare_chunk
from heliograph.copy.fates import RETRY_S, Fates, source_reason
from heliograph.copy.fetching import FetchStream
from heliograph.copy.lane import FETCH_BYTES_MAX, LANE_BYTES_MAX, CarriedLane, Phase
from heliograph.copy.targets import TargetSide
from heliograph.errors import BrokerError, InvariantError, LeaderMoved, MirrorError
from heliograph.model import FlowId, LaneId, OffsetRange, StallReason
from heliograph.wire.fetch import FetchedPartition

log = logging.getLogger(__name__)

_OFFSET_OUT_OF_RANGE: Final = 1

StreamKey = tuple[FlowId, int, bool]


class SourceSide:
    """Owned by the shuttle, in its event loop."""

    def __init__(self, fates: Fates, targets: TargetSide, room: asyncio.Event) -> None:
        self._fates = fates
        self._targets = targets
        self._room = room
        self._streams: dict[StreamKey, FetchStream] = {}
        self._stream_of: dict[LaneId, FetchStream] = {}

    def attach(self, lane: CarriedLane) -> None:
        """Put the lane on the stream of its leader, as the cluster's metadata names it."""
        cluster, source = lane.flow.source, lane.spec.id.source
        topic, leader = cluster.topic(source.topic), cluster.leader(source)
        if lane.draining:
            return
        if topic is not None and topic.id != lane.spec.source_topic_id:
            detail = f"{source} was deleted and created again"
            self._fates.stall(lane, StallReason.TOPIC_RECREATED, detail, retry_s=None)
            return
        if leader is None:
            self.failed(lane, cluster.no_leader_error(source))
            return
        # A session fetches a partition once, so flows that share a source do not share a stream.
        key = (lane.spec.id.flow, leader.broker, lane.spec.read_committed)
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = FetchStream(
                cluster,
                leader.broker,
                target=lane.spec.id.flow.target,
                read_committed=lane.spec.read_committed,
                limits=lane.flow.limits,
                on_fetched=self._fetched,
                on_failed=self.failed,
                room=self._room,
            )
            self._fates.spawn(stream.run())
        self._stream_of[lane.spec.id] = stream
        stream.add(lane)

    def detach(self, lane: CarriedLane) -> None:
        stream = self._stream_of.pop(lane.spec.id, None)
        if stream is not None:
            stream.remove(lane)

    def changed(self, lane: CarriedLane) -> None:
        stream = self._stream_of.get(lane.spec.id)
        if stream is not None:
            stream.changed(lane)

    def failed(self, lane: CarriedLane, error: MirrorError) -> None:
        """No good answer from the leader. What was fetched still goes out; the rest is fetched
        anew."""
        self.detach(lane)
        lane.stall(source_reason(error), str(error), retrying=True)
        delay_s = lane.backoff_s() if error.retriable else RETRY_S
        self._fates.later(delay_s, lane, self._reattach)

    def _fetched(self, lane: CarriedLane, fetched: FetchedPartition) -> None:
        try:
            self._judge(lane, fetched)
        except Exception as exc:  # our own bug must not take the other lanes along
            log.exception("%s: a bug", lane.spec.id)
            detail = f"{type(exc).__name__}: {exc}"
            self._fates.stall(lane, StallReason.BUG, detail, retry_s=RETRY_S)

    def _judge(self, lane: CarriedLane, fetched: FetchedPartition) -> None:
        if fetched.error_code == _OFFSET_OUT_OF_RANGE:
            self.detach(lane)
            self._fates.spawn(self._out_of_range(lane))
            return
        if fetched.error_code != NONE:
            where = f"cluster {lane.flow.source.alias}: {lane.spec.id.source}"
            permission = f"READ on topic {lane.spec.id.source.topic}"
            self.failed(lane, broker_error(where, fetched.error_code, permission=permission))
            return
        if fetched.diverging_end_offset >= 0:
            self.detach(lane)
            detail = (
                f"{lane.spec.id.source}: the source's log parts from what was mirrored at offset "
                f"{fetched.diverging_end_offset}, before {lane.cursor.next_offset}"
            )
            self._fates.stall(lane, StallReason.LOG_TRUNCATED, detail, retry_s=None)
            return
        lane.unstall()
        lane.source_start_offset = fetched.log_start_offset
        lane.source_end_offset = (
            fetched.last_stable_offset if lane.spec.read_committed else fetched.high_watermark
        )
        if len(fetched.records):
            self._lay_out(lane, fetched)

    def _lay_out(self, lane: CarriedLane, fetched: FetchedPartition) -> None:
        stamp = lane.flow.stamp
        if stamp is None:
            raise InvariantError(f"{lane.spec.id}: fetched before the flow's producer was known")
        layout = prepare_chunk(
            fetched.records,
            lane.cursor,
            stamp,
            aborted=fetched.aborted,
            read_committed=lane.spec.read_committed,
            coalesce=lane.coalesce,
        )
        self._fates.kept(self._targets.take(lane, layout))
        lane.held = lane.buffered_bytes >= LANE_BYTES_MAX
        wait_s = lane.flow.throttle.spend(len(fetched.records))
        if wait_s > 0:
            lane.throttled = True
            self._fates.later(wait_s, lane, self._unthrottle)
        if layout.corrupt is not None:
            self._corrupt(lane, layout)
        elif not layout.whole:
            # Not even one batch fitted.
            lane.fetch_bytes = min(2 * lane.fetch_bytes, FETCH_BYTES_MAX)

    def _corrupt(self, lane: CarriedLane, layout: PreparedChunk) -> None:
        """Fetched again once; a batch that is bad twice is bad on the broker's disk."""
        offset = lane.cursor.next_offset
        if lane.corrupt_offset == offset:
            self.detach(lane)
            detail = f"{lane.spec.id.source}: {layout.corrupt}"
            self._fates.stall(lane, StallReason.CORRUPT_BATCH, detail, retry_s=RETRY_S)
        lane.corrupt_offset = offset

    def _unthrottle(self, lane: CarriedLane) -> None:
        lane.throttled = False
        self.changed(lane)

    def _reattach(self, lane: CarriedLane) -> None:
        self._fates.spawn(self._reattach_now(lane))

    async def _reattach_now(self, lane: CarriedLane) -> None:
        if lane.phase is not Phase.RUNNING or lane.spec.id in self._stream_of:
            return
        generation = lane.generation
        try:
            await lane.flow.source.refresh([lane.spec.id.source.topic])
        except MirrorError as exc:
            if lane.generation == generation:
                self.failed(lane, exc)
            return
        if lane.generation == generation and lane.spec.id not in self._stream_of:
            self.attach(lane)

    async def _out_of_range(self, lane: CarriedLane) -> None:
        """The source does not have the next offset: deleted before it was read, or cut off."""
        source, wanted, generation = lane.spec.id.source, lane.cursor.next_offset, lane.generation
        earliest = (await lane.flow.source.list_offsets([source], EARLIEST))[source]
        latest = (await lane.flow.source.list_offsets([source], LATEST))[source]
        if lane.generation != generation:
            return
        if isinstance(earliest, BrokerError):
            self.failed(lane, earliest)
        elif isinstance(latest, BrokerError):
            self.failed(lane, latest)
        elif wanted < earliest:
            lost = OffsetRange(start=wanted, end=earliest)
            detail = f"{source}: the {lost.count} offsets [{wanted}, {earliest}) are gone"
            self._fates.stall(lane, StallReason.RETENTION_OVERRUN, detail, retry_s=None, lost=lost)
        elif wanted > latest:
            detail = f"{source}: ends at {latest}, but {wanted} was reached: the log was cut off"
            self._fates.stall(lane, StallReason.LOG_TRUNCATED, detail, retry_s=None)
        else:
            self.failed(
                lane, LeaderMoved(f"{source}: offset {wanted} was out of range for a moment")
            )
