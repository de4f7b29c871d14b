"""The source side of a slot: lanes on their leaders' streams. Runs on executors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, Leader
from heliograph.broker.codes import NONE, broker_error
from heliograph.copy.chunk import MakeWriter, PreparedChunk, TransformWait, prepare_chunk
from heliograph.copy.events import (
    SourceAnswered,
    SourceBlocked,
    SourceEvent,
    SourceFailed,
    SourceRefreshed,
    Throttled,
)
from heliograph.copy.fetch_streams import FetchStreams, fetch_pace
from heliograph.copy.fetching import FetchStream
from heliograph.copy.flow import Flow
from heliograph.copy.lane import CarriedLane
from heliograph.copy.origins import Producer
from heliograph.copy.phases import RETRY_S, Running, Stop, log_parted, source_recreated
from heliograph.copy.room import Share
from heliograph.copy.slot import Slot
from heliograph.copy.targets import TargetSide
from heliograph.copy.transforming import Fates, TransformingWriter
from heliograph.errors import (
    BrokerError,
    InvariantError,
    LeaderMoved,
    MirrorError,
    TransformUnusable,
)
from heliograph.ledger.kept import kept_of
from heliograph.model import FlowId, LaneId, OffsetRange, StallReason
from heliograph.transform.lane import LaneTransform
from heliograph.wire.fetch import FetchedPartition

log = logging.getLogger(__name__)

FETCH_BYTES_MAX: Final = 128 * 1024 * 1024
_PINNED_PARTS_MAX: Final = 8
"""Records that are a smaller part of their answer than one in so many do not keep all of it."""
_OFFSET_OUT_OF_RANGE: Final = 1
_ASK_AGAIN_S: Final = 0.05
WAIT_HIDDEN_S: Final = 3.0
"""A shorter wait for what a transform asks for is none worth showing."""
WAIT_RETRY_S: Final = 5.0

StreamKey = tuple[FlowId, int, bool]


@dataclass(frozen=True, slots=True)
class _Attached:
    lane: CarriedLane
    running: Running
    streams: FetchStreams
    leader: Leader
    """Whom the lane reads from; another epoch of it is another leader."""


class SourceSide:
    """Owned by the lanes' machine, in its event loop."""

    def __init__(
        self,
        slot: Slot,
        report: Callable[[CarriedLane, SourceEvent], None],
        targets: TargetSide,
    ) -> None:
        self._slot = slot
        self._report = report
        self._targets = targets
        self._streams: dict[StreamKey, FetchStreams] = {}
        self._attached: dict[LaneId, _Attached] = {}
        self._nearer: dict[LaneId, int] = {}
        """Replicas that leaders named for readers of our rack (KIP-392), each until it fails or the
        metadata is looked at again: one that lags behind for ever would not say so."""
        self._refreshing: dict[Cluster, dict[LaneId, tuple[CarriedLane, Running]]] = {}
        """Lanes that wait for the next look at their source's metadata."""
        slot.room.on_change = self._room_changed

    def attach(self, lane: CarriedLane, running: Running) -> None:
        """Put the lane on the stream of its leader, as the cluster's metadata names it."""
        if lane.retiring:
            return
        if lane.flow.origins is not None and not lane.flow.origins.is_read:
            self._slot.spawn(self._learn_origins(lane, running, ()))
            return
        with self._guarded(lane, running):
            self._attach(lane, running)

    def _attach(self, lane: CarriedLane, running: Running) -> None:
        cluster, source = lane.flow.source, lane.spec.id.source
        topic, leader = cluster.topic(source.topic), _read_from(lane)
        if topic is not None and topic.id != lane.spec.source_topic_id:
            detail = source_recreated(source)
            self._blocked(lane, running, StallReason.TOPIC_RECREATED, detail)
            return
        if leader is None:
            self._report(lane, SourceFailed(running=running, error=cluster.no_leader_error(source)))
            return
        if lane.flow.origins is not None and topic is not None:
            running.kept = kept_of(lane.flow.ledger.view, source, topic.id)
        # A session fetches a partition once, so flows that share a source do not share a stream.
        broker = self._nearer.get(lane.spec.id, leader.broker)
        key = (lane.spec.id.flow, broker, lane.spec.read_committed)
        streams = self._streams.get(key)
        if streams is None:
            streams = self._streams[key] = self._open_streams(lane, broker)
        self._attached[lane.spec.id] = _Attached(lane, running, streams, leader)
        streams.add(lane, leader.epoch)

    def _open_streams(self, lane: CarriedLane, broker: int) -> FetchStreams:
        flow, read_committed = lane.flow, lane.spec.read_committed

        def make(index: int, group: FetchStreams) -> FetchStream:
            return FetchStream(
                flow.source,
                broker,
                index=index,
                group=group,
                target=flow.id.target,
                read_committed=read_committed,
                limits=flow.limits,
                reports=self,
                room=self._slot.room,
            )

        pace = fetch_pace(flow.source.round_trip(broker), flow.limits)
        return FetchStreams(pace, flow.limits, make, self._slot.spawn)

    def detach(self, lane: CarriedLane) -> None:
        attached = self._attached.pop(lane.spec.id, None)
        if attached is not None:
            attached.streams.remove(lane)

    def renew(self, flow: Flow) -> None:
        """Go on with the flow's limits as they are now: its lanes are fetched by other streams.

        What the old ones have under way is for no lane any more, and fetched again.
        """
        for key in [key for key in self._streams if key[0] == flow.id]:
            del self._streams[key]
        for each in [each for each in self._attached.values() if each.lane.flow is flow]:
            self.detach(each.lane)
            each.lane.learned.fetch_bytes = flow.limits.partition_bytes
            self.attach(each.lane, each.running)

    def changed(self, lane: CarriedLane) -> None:
        """The lane may be fetched again."""
        attached = self._attached.get(lane.spec.id)
        if attached is not None:
            attached.streams.changed(lane)

    def reattach(self, lane: CarriedLane, running: Running) -> None:
        """Refresh the metadata and report it, so that the lane may be attached.

        All lanes of a source that come while one look is under way share the next.
        """
        cluster = lane.flow.source
        if cluster not in self._refreshing:
            self._refreshing[cluster] = {}
            self._slot.spawn(self._refresh(cluster))
        self._refreshing[cluster][lane.spec.id] = (lane, running)

    def _room_changed(self, share: Share) -> None:
        for each in self._attached.values():
            if each.running.share is share:
                each.streams.changed(each.lane)

    async def _refresh(self, cluster: Cluster) -> None:
        while due := self._refreshing[cluster]:
            self._refreshing[cluster] = {}
            problem: MirrorError | None = None
            try:
                await cluster.refresh({lane.spec.id.source.topic for lane, _ in due.values()})
            except MirrorError as exc:
                problem = exc
            for lane, running in due.values():
                if problem is None:
                    self._report(lane, SourceRefreshed(running=running))
                else:
                    self._report(lane, SourceFailed(running=running, error=problem))
        del self._refreshing[cluster]

    async def follow_leaders(self, flow: Flow) -> None:
        """Look at the source's metadata now and then, and move lanes whose leader is another.

        A leader that was cut off from the others goes on answering as if it were one; no answer of
        its own says so.
        """
        while True:
            await asyncio.sleep(flow.limits.metadata_ms_max / 1000)
            of_flow = [each for each in self._attached.values() if each.lane.flow is flow]
            try:
                await flow.source.refresh({each.lane.spec.id.source.topic for each in of_flow})
            except MirrorError:
                # Lanes that a source does not answer say so themselves.
                continue
            for each in of_flow:
                is_here = self._attached.get(each.lane.spec.id) is each
                was_sent = self._nearer.pop(each.lane.spec.id, None) is not None
                if is_here and (was_sent or _read_from(each.lane) != each.leader):
                    self.detach(each.lane)
                    self.attach(each.lane, each.running)

    def overdue(self, at_s: float) -> dict[CarriedLane, float]:
        """Lanes whose fetch should have been answered by now, and since when it is under way."""
        return dict(late for streams in self._streams.values() for late in streams.overdue(at_s))

    # -- what streams report

    def failed(self, lane: CarriedLane, error: MirrorError) -> None:
        """No good answer from the leader."""
        self._nearer.pop(lane.spec.id, None)
        self._report(lane, SourceFailed(running=lane.running, error=error))

    def fetched(self, lane: CarriedLane, running: Running, answer: FetchedPartition) -> None:
        """What the leader answered of this lane, from where its cursor stands."""
        lane.unreported, lane.waiting = True, None
        with self._guarded(lane, running):
            self._judge(lane, running, answer)

    @contextmanager
    def _guarded(self, lane: CarriedLane, running: Running) -> Iterator[None]:
        """Our own bug, or a broker's odd answer, must not take the other lanes along."""
        try:
            yield
        except Exception as exc:
            if isinstance(exc, TransformUnusable):
                reason = StallReason.TRANSFORM_FAILED
                self._blocked(lane, running, reason, str(exc), retry_s=RETRY_S)
                return
            if isinstance(exc, MirrorError) and not isinstance(exc, InvariantError):
                self._report(lane, SourceFailed(running=running, error=exc))
                return
            log.exception("%s: a bug", lane.spec.id)
            detail = f"{type(exc).__name__}: {exc}"
            self._blocked(lane, running, StallReason.BUG, detail, retry_s=RETRY_S)

    def _judge(self, lane: CarriedLane, running: Running, answer: FetchedPartition) -> None:
        if answer.error_code != NONE and self._nearer.pop(lane.spec.id, None) is not None:
            # Only the leader's word counts.
            self._move(lane, running)
            return
        if answer.read_replica >= 0 and answer.error_code == NONE:
            self._nearer[lane.spec.id] = answer.read_replica
            self._move(lane, running)
            return
        if answer.error_code == _OFFSET_OUT_OF_RANGE:
            self.detach(lane)
            self._slot.spawn(self._look_out_of_range(lane, running))
            return
        if answer.error_code != NONE:
            where = f"cluster {lane.flow.source.alias}: {lane.spec.id.source}"
            permission = f"READ on topic {lane.spec.id.source.topic}"
            error = broker_error(where, answer.error_code, permission=permission)
            self._report(lane, SourceFailed(running=running, error=error))
            return
        parted_at, next_offset = answer.diverging_end_offset, running.cursor.next_offset
        if 0 <= parted_at < next_offset:
            detail = log_parted(lane.spec.id.source, parted_at, next_offset)
            self._blocked(lane, running, StallReason.LOG_TRUNCATED, detail)
            return
        if parted_at >= 0:
            # The leader only does not know the epoch any more: compaction took all of its records.
            running.cursor.leader_epoch = -1
            self.changed(lane)
            return
        lane.source_seen.start_offset = answer.log_start_offset
        lane.source_seen.end_offset = (
            answer.last_stable_offset if lane.spec.read_committed else answer.high_watermark
        )
        if lane.trouble is not None or lane.learned.failures:
            self._report(lane, SourceAnswered(running=running))
        if len(answer.records):
            self._prepare(lane, running, answer)

    def _move(self, lane: CarriedLane, running: Running) -> None:
        self.detach(lane)
        self.attach(lane, running)

    def _prepare(self, lane: CarriedLane, running: Running, answer: FetchedPartition) -> None:
        stamp = lane.flow.stamp
        lane.learned.passed(lane.reached.source_next_offset)
        if stamp is None:
            raise InvariantError(f"{lane.spec.id}: fetched before the flow's producer was known")
        chunk = prepare_chunk(
            answer.records if lane.is_drained else _unpinned(answer.records),
            running.cursor,
            stamp,
            aborted=answer.aborted,
            read_committed=lane.spec.read_committed,
            coalesce=lane.learned.coalesce,
            make_writer=_writer_of(lane, running) if _looks_in(lane, running) else None,
            origins=None if lane.flow.origins is None else lane.flow.origins.known,
            kept=running.kept,
        )
        if chunk.unknown is not None:
            # Before what it brought is reported: the lane may leave for another reason.
            self.detach(lane)
            self._slot.spawn(self._learn_origins(lane, running, (chunk.unknown,)))
        lane.counted.unknown_control_records += chunk.unknown_control_records
        self._targets.enqueue(lane, running, chunk)
        if lane.throttles:
            self._throttle(lane, running, len(answer.records), chunk)
        if chunk.failed is not None:
            detail = f"{lane.spec.id.source}: offset {chunk.failed.offset}: {chunk.failed.why}"
            self._blocked(lane, running, chunk.failed.reason, detail, retry_s=RETRY_S)
        elif chunk.waits is not None:
            self._wait(lane, running, chunk.waits)
        elif chunk.corrupt is not None:
            self._corrupt(lane, running, chunk)
        elif not chunk.whole:
            # Not even one batch fitted.
            lane.learned.fetch_bytes = min(2 * lane.learned.fetch_bytes, FETCH_BYTES_MAX)

    async def _learn_origins(
        self, lane: CarriedLane, running: Running, asked: Collection[Producer]
    ) -> None:
        """The lane is on no stream; it is put back once it is known who wrote what comes next."""
        origins = lane.flow.origins
        with self._guarded(lane, running):
            if origins is not None:
                await origins.learn(asked)
            if lane.phase is running:
                self.attach(lane, running)

    def _throttle(
        self, lane: CarriedLane, running: Running, read_bytes: int, chunk: PreparedChunk
    ) -> None:
        written_bytes = sum(len(batch.view) for batch in chunk.batches)
        wait_s = max(
            throttle.spend(written_bytes if throttle.counts_written else read_bytes)
            for throttle in lane.throttles
        )
        if wait_s > 0:
            self._report(lane, Throttled(running=running, wait_s=wait_s))

    def _wait(self, lane: CarriedLane, running: Running, waits: TransformWait) -> None:
        """Fetched again in a moment; the other lanes go on, and this one says why it does not."""
        if waits.waited_s < WAIT_HIDDEN_S:
            self._report(lane, Throttled(running=running, wait_s=_ASK_AGAIN_S))
            return
        detail = f"{lane.spec.id.source}: offset {waits.offset}: {waits.why}"
        self._blocked(lane, running, StallReason.TRANSFORM_FAILED, detail, retry_s=WAIT_RETRY_S)

    def _corrupt(self, lane: CarriedLane, running: Running, chunk: PreparedChunk) -> None:
        """Fetched again once; a batch that is bad twice is bad on the broker's disk."""
        offset = running.cursor.next_offset
        if lane.learned.corrupt_offset == offset:
            detail = f"{lane.spec.id.source}: {chunk.corrupt}"
            self._blocked(lane, running, StallReason.CORRUPT_BATCH, detail, retry_s=RETRY_S)
        lane.learned.corrupt_offset = offset

    async def _look_out_of_range(self, lane: CarriedLane, running: Running) -> None:
        with self._guarded(lane, running):
            await self._out_of_range(lane, running)

    async def _out_of_range(self, lane: CarriedLane, running: Running) -> None:
        """The source does not have the next offset: deleted before it was read, or cut off."""
        source, wanted = lane.spec.id.source, running.cursor.next_offset
        earliest = (await lane.flow.source.list_offsets([source], EARLIEST))[source]
        latest = (await lane.flow.source.list_offsets([source], LATEST))[source]
        if isinstance(earliest, BrokerError):
            self._report(lane, SourceFailed(running=running, error=earliest))
        elif isinstance(latest, BrokerError):
            self._report(lane, SourceFailed(running=running, error=latest))
        elif wanted < earliest:
            lost = OffsetRange(start=wanted, end=earliest)
            detail = f"{source}: the {lost.count} offsets [{wanted}, {earliest}) are gone"
            self._blocked(lane, running, StallReason.RETENTION_OVERRUN, detail, lost=lost)
        elif wanted > latest:
            detail = f"{source}: ends at {latest}, but {wanted} was reached: the log was cut off"
            self._blocked(lane, running, StallReason.LOG_TRUNCATED, detail)
        else:
            # A leader that cannot tell where the epoch ends that was read last says so this way:
            # with the same epoch it would for ever.
            running.cursor.leader_epoch = -1
            error = LeaderMoved(f"{source}: offset {wanted} was out of range for a moment")
            self._report(lane, SourceFailed(running=running, error=error))

    def _blocked(
        self,
        lane: CarriedLane,
        running: Running,
        reason: StallReason,
        detail: str,
        *,
        retry_s: float | None = None,
        lost: OffsetRange | None = None,
    ) -> None:
        stop = Stop(reason=reason, detail=detail, retry_s=retry_s, lost=lost)
        self._report(lane, SourceBlocked(running=running, stop=stop))


def _read_from(lane: CarriedLane) -> Leader | None:
    """The broker a lane is read from, as the metadata has it now."""
    return lane.flow.source.leader(lane.spec.id.source)


def _looks_in(lane: CarriedLane, running: Running) -> bool:
    """Whether records may have to be looked into: of most lanes never."""
    learned, decided = lane.learned, running.letters.decided
    if decided and max(decided) < running.cursor.next_offset:
        decided.clear()
    known = learned.suspects or learned.unwritable or learned.size_bytes_max or decided
    return bool(lane.flow.limits.transforms or known)


def _writer_of(lane: CarriedLane, running: Running) -> MakeWriter | None:
    """What puts the lane's records through its transforms, or leaves out what the target refuses;
    None where there is neither."""
    transform, limits, learned = lane.flow.transform_of(lane.spec), lane.flow.limits, lane.learned
    if limits.on_unwritable == "stall":
        learned.suspects = None
        learned.unwritable.clear()
    size_bytes_max = None if limits.on_unwritable == "stall" else learned.size_bytes_max
    fates = Fates(
        on_transform_error=limits.on_transform_error,
        on_unwritable=limits.on_unwritable,
        decided=running.letters.decided,
        unwritable=learned.unwritable,
        suspects=learned.suspects,
        batch_bytes_max=size_bytes_max,
    )
    if transform is None:
        if not (fates.decided or fates.unwritable or fates.suspects or size_bytes_max):
            return None
        transform = LaneTransform.nothing(lane.flow.where(lane.spec))
    return partial(
        TransformingWriter,
        transform=transform,
        fates=fates,
        ahead=running.replay_guard.ahead,
    )


def _unpinned(records: memoryview) -> memoryview:
    """The records of a lane that has others waiting, without the answer of all lanes around them.

    A lane that keeps up lets go of an answer as soon as the others do; one that does not would hold
    an answer of megabytes for each batch of a few bytes, and nobody would count them.
    """
    is_small = len(records) * _PINNED_PARTS_MAX < len(records.obj)  # type: ignore[arg-type]
    return memoryview(bytearray(records)) if is_small else records
