"""The target side of a slot: batches wait for their ticket, then stream. Runs on executors."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import Final, Protocol

from heliograph.copy.appending import AppendReports, AppendStream
from heliograph.copy.chunk import PreparedChunk
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Running, StreamKey
from heliograph.copy.slot import Slot
from heliograph.errors import InvariantError, MirrorError
from heliograph.letters.lane import refused
from heliograph.model import ClusterAlias, FlowId
from heliograph.probe import RUNS_DURABLE, RUNS_TO_WRITE, probe
from heliograph.wire.batch import is_compressed

log = logging.getLogger(__name__)

APPEND_STREAMS: Final = 2
"""Connections to each target broker: compressed batches are validated on one thread of each, and on
a long way the kernels of both ends bound what one of them has under way."""
SUSPECTS: Final = APPEND_STREAMS
"""One more, for lanes whose batches may be why the target closes connections: one at a time."""
SUSPECT_AFTER: Final = 3
"""Connections in a row that the target closed on a batch of the lane, or of a neighbour."""


class TargetReports(AppendReports, Protocol):
    """Where the target side says what came of what; `LaneMachine` in a slot."""

    def lettered(self, lane: CarriedLane) -> None:
        """The lane's dead letters are no longer on their way."""


class TargetSide:
    """Owned by the lanes' machine, in its event loop."""

    def __init__(self, slot: Slot, reports: TargetReports) -> None:
        self._slot = slot
        self._reports = reports
        self._streams: dict[StreamKey, AppendStream] = {}
        self._gated: defaultdict[FlowId, set[CarriedLane]] = defaultdict(set)
        self._pump_due = False

    def enqueue(self, lane: CarriedLane, running: Running, chunk: PreparedChunk) -> None:
        """Queue the chunk's batches, its runs to the ledger first, its dead letters before those.

        Until the letters are written the lane counts as having something in flight, so nobody takes
        it for settled, and nothing more of it is fetched.
        """
        if chunk.letters:
            running.writes_letters = True
            lane.in_flight += 1
            self._slot.spawn(self._enqueue_behind_letters(lane, running, chunk))
        else:
            self._enqueue(lane, running, chunk)

    async def _enqueue_behind_letters(
        self, lane: CarriedLane, running: Running, chunk: PreparedChunk
    ) -> None:
        flow, topic = lane.flow, lane.flow.limits.letters_topic
        problem: MirrorError | None = None
        try:
            if topic is None:
                raise InvariantError(f"{flow.id}: dead letters, and no topic for them")
            await flow.letter_box.write(lane.spec, topic, running.letters, chunk.letters)
        except MirrorError as exc:
            problem = exc if topic is None else refused(topic, exc)
        except Exception as exc:  # our own bug stalls this lane; the others go on
            log.exception("%s: a bug", lane.spec.id)
            problem = InvariantError(f"{type(exc).__name__}: {exc}")
        lane.in_flight -= 1
        running.writes_letters = False
        lane.unreported = True
        if problem is None:
            if lane.running is running:
                self._enqueue(lane, running, chunk)
                if running.outgoing:
                    self.offer(lane, running)
        elif lane.running is running:
            self._reports.failed(lane, problem)
        self._reports.lettered(lane)

    def _enqueue(self, lane: CarriedLane, running: Running, chunk: PreparedChunk) -> None:
        ticket = 0
        runs, end_position = running.runs_to_write(chunk)
        if runs:
            probe(RUNS_TO_WRITE)
            entries = lane.ledger_entries(running, runs, end_position)
            ticket = lane.flow.ledger.write_soon(entries)
            lane.unmerged_entries += len(entries)
            self._gated[lane.spec.id.flow].add(lane)
        if chunk.skipped:
            # Behind the runs, so that no batch leaves before both are durable.
            ticket = lane.flow.ledger.write_soon(lane.skip_entries(chunk.skipped))
            self._gated[lane.spec.id.flow].add(lane)
        self._slot.room.kept(running.share, lane.enqueue(running, chunk, runs, ticket))
        if chunk.batches:
            self.offer(lane, running)

    def release(self, flow: FlowId) -> None:
        """The flow's ledger has more on disk: send what waited for it."""
        gated = self._gated[flow]
        if gated:
            probe(RUNS_DURABLE)
        for lane in tuple(gated):
            running = lane.running
            if running is not None and lane.sendable:
                self.offer(lane, running)
            waiting = running.outgoing if running is not None else ()
            if not waiting or waiting[-1].ticket <= lane.flow.ledger.durable:
                gated.discard(lane)

    def check_timeouts(self) -> None:
        for stream in self._streams.values():
            stream.check_timeout()

    def overdue(self, at_s: float) -> dict[StreamKey, float]:
        """Connections on which an answer should be there by now, and since when it is not."""
        late = {key: stream.overdue_since_s(at_s) for key, stream in self._streams.items()}
        return {key: since_s for key, since_s in late.items() if since_s is not None}

    def reset(self, cluster: ClusterAlias) -> None:
        """Give up on every answer of that cluster; its lanes then ask the log what arrived."""
        for (alias, _, _), stream in tuple(self._streams.items()):
            if alias == cluster:
                stream.reset()

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()

    def offer(self, lane: CarriedLane, running: Running) -> None:
        """Offer the lane now; send once for all lanes of this turn, so that requests are packed."""
        stream = self._stream(lane, running)
        if stream is None:
            self._reports.failed(lane, lane.flow.target.no_leader_error(lane.spec.target))
            return
        stream.offer(lane)
        if not self._pump_due:
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_due = False
        for stream in tuple(self._streams.values()):
            stream.pump()

    def _stream(self, lane: CarriedLane, running: Running) -> AppendStream | None:
        """That of the leader. While something is in flight it stays the same, whoever leads: on
        another connection a batch could overtake the one in front of it."""
        cluster = lane.flow.target
        if not lane.in_flight or running.append_stream is None:
            leader = cluster.leader(lane.spec.target)
            if leader is None:
                return None
            is_far = cluster.round_trip(leader.broker).is_far
            index = _stream_index(lane, running, is_far=is_far)
            running.append_stream = (cluster.alias, leader.broker, index)
        key = running.append_stream
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = AppendStream(
                cluster, key[1], key[2], self._reports, one_at_a_time=key[2] == SUSPECTS
            )
        return stream


def _stream_index(lane: CarriedLane, running: Running, *, is_far: bool) -> int:
    """Plain batches share a connection, where requests are packed best; compressed ones spread, and
    so do all on a long way."""
    if lane.learned.unanswered >= SUSPECT_AFTER:
        return SUSPECTS
    spread = is_far or (running.outgoing and is_compressed(running.outgoing[0].view))
    return lane.spec.target.partition % APPEND_STREAMS if spread else 0
