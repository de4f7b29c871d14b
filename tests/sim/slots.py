"""Slots and the driver as processes of the simulation: the real shuttle, ledger and clusters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from heliograph.broker.cluster import Cluster
from heliograph.clock import now_ms
from heliograph.config.schema import ClientRole
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import CarriedLane
from heliograph.copy.phases import Closed
from heliograph.copy.shuttle import Shuttle
from heliograph.driver.policies import DECIDED_S
from heliograph.errors import MirrorError
from heliograph.ledger.entries import FlowEntry
from heliograph.ledger.mark import new_flow_producer
from heliograph.ledger.new_starts import NewStart, decide_starts
from heliograph.ledger.store import LedgerStore
from heliograph.model import (
    ClusterAlias,
    Lane,
    LaneId,
    Stalled,
    StallReason,
    TopicId,
    TopicPartition,
)
from tests.sim.loop import Process, VirtualLoop
from tests.sim.world import FLOW, LEDGER, TOPIC, World

HEAD_INTERVAL_S: Final = 5.0
_RETRY_S: Final = 0.2


class SimClusters:
    """In place of `OpenClusters`: clusters whose connections are of the simulation."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.opened: dict[tuple[ClusterAlias, ClientRole], Cluster] = {}
        self.configs: Mapping[ClusterAlias, Any] = {}

    def get(self, alias: ClusterAlias, role: ClientRole) -> Cluster:
        if (alias, role) not in self.opened:
            hosts = [f"{alias.lower()}{number}:9092" for number in (1, 2)]
            self.opened[alias, role] = Cluster(alias, hosts, {"process": self._process})
        return self.opened[alias, role]

    def close(self) -> None:
        for cluster in self.opened.values():
            cluster.close()


class SimSlot:
    def __init__(self, loop: VirtualLoop, name: str, partition_bytes: int) -> None:
        self.process = Process(loop, name)
        self.shuttle: Shuttle = self.process.run(self._open, partition_bytes)
        self._running = self.process.start(self.shuttle.run())

    def _open(self, partition_bytes: int) -> Shuttle:
        limits = FetchLimits(partition_bytes_max=partition_bytes)
        shuttle = Shuttle({}, limits={FLOW: limits}, head_interval_s=HEAD_INTERVAL_S)
        shuttle._clusters = SimClusters(self.process)  # type: ignore[assignment]
        return shuttle

    @property
    def name(self) -> str:
        return self.process.name

    @property
    def is_frozen(self) -> bool:
        return self.process.is_frozen

    @property
    def lanes(self) -> dict[LaneId, CarriedLane]:
        return self.shuttle._lanes

    def carries(self, partition: int) -> bool:
        return _lane_id(partition) in self.lanes

    def lane(self, partition: int) -> CarriedLane:
        return self.lanes[_lane_id(partition)]

    def add(self, lane: Lane) -> None:
        self.process.run(self.shuttle.add, [lane])

    def resume(self, partition: int) -> None:
        self.process.run(self.shuttle.resume, [_lane_id(partition)])

    def pause(self, partition: int) -> None:
        self.process.run(self.shuttle.pause, [_lane_id(partition)])

    def let_go(self, partition: int) -> None:
        """As the driver takes a lane away: what is on its way is settled, the head is written."""
        self.process.start(self.shuttle.remove([_lane_id(partition)]))

    def kill(self) -> None:
        self.process.kill()

    @property
    def bug(self) -> BaseException | None:
        return self.shuttle._slot.bug


def _lane_id(partition: int) -> LaneId:
    return LaneId(flow=FLOW, source=TopicPartition(topic=TOPIC, partition=partition))


class SimDriver:
    """Opens the flow, and decides what only a driver may: losses, topics created again."""

    def __init__(self, loop: VirtualLoop, world: World) -> None:
        self._world, self._loop = world, loop
        self.process = Process(loop, "driver")
        self._clusters = SimClusters(self.process)
        self._target = self._clusters.get(FLOW.target, "producer")
        self._store: LedgerStore = self.process.run(LedgerStore, self._target, LEDGER)
        self._deciding = world.deciding
        self._decided: dict[int, tuple[tuple[object, ...], float]] = {}
        """The last stall that was decided on, and when: a report of it may come late."""
        self._begin = self.process.start(self._open())
        self.is_open = False
        self.topic_id: TopicId = world.source.id_of(TOPIC)
        """As the driver last saw it."""

    async def _open(self) -> None:
        while True:
            try:
                await self._store.catch_up()
                if self._store.view.flow is None:
                    producer_id, epoch = await new_flow_producer(self._target, FLOW)
                    entry = FlowEntry(
                        flow=FLOW,
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        source_cluster_id="there",
                        created_ms=now_ms(),
                    )
                    await self._store.write_or_refuse([entry])
                self.is_open = True
                return
            except MirrorError:
                await asyncio.sleep(_RETRY_S)

    def spec(self, partition: int) -> Lane:
        return Lane(
            id=_lane_id(partition),
            target=TopicPartition(topic=TOPIC, partition=partition),
            source_topic_id=self.topic_id,
        )

    def may_decide(self, lane: CarriedLane) -> bool:
        """Whether the lane waits for a decision that is made here, or is being made."""
        state, partition = lane.state(), lane.spec.id.source.partition
        if partition in self._deciding:
            return True
        stall, decided_s = self._decided.get(partition, ((), 0.0))
        if stall == _stall(lane) and self._loop.now_s - decided_s < DECIDED_S:
            return False
        return isinstance(state, Stalled) and (
            (state.reason is StallReason.RETENTION_OVERRUN and state.lost is not None)
            or state.reason is StallReason.TOPIC_RECREATED
        )

    def look(self) -> None:
        """At the topics: lanes of one that was created again are told its id."""
        self.topic_id = self._world.source.id_of(TOPIC)

    def decide(self, slot: SimSlot, partition: int) -> None:
        """What a lane that is stalled waits for, by the policies skip and restart."""
        lane = slot.lane(partition)
        if lane.spec.source_topic_id != self.topic_id and partition not in self._deciding:
            slot.add(self.spec(partition))
            return
        state = lane.state()
        if not self.may_decide(lane) or partition in self._deciding:
            return
        assert isinstance(state, Stalled)
        if state.reason is StallReason.RETENTION_OVERRUN and state.lost is not None:
            new = NewStart(
                lane=lane.spec,
                at=lane.progress(),
                source_offset=state.lost.end,
                lost=state.lost,
            )
        elif state.reason is StallReason.TOPIC_RECREATED:
            log = self._world.source_log(partition)
            spec = replace(lane.spec, source_topic_id=self.topic_id)
            new = NewStart(lane=spec, at=lane.progress(), source_offset=log.start)
        else:
            return
        self._deciding.add(partition)
        stall = _stall(lane)
        self.process.start(self._begin_at(slot, partition, new, stall))

    async def _begin_at(
        self, slot: SimSlot, partition: int, new: NewStart, stall: tuple[object, ...]
    ) -> None:
        try:
            (problem,) = await decide_starts(self._store, [new])
        except MirrorError:
            return
        finally:
            self._deciding.discard(partition)
        if problem is not None:
            return
        self._decided[partition] = stall, self._loop.now_s
        if slot.process.is_dead:
            return
        if slot.carries(partition) and not isinstance(slot.lane(partition).phase, Closed):
            slot.add(new.lane)
            slot.resume(partition)


def _stall(lane: CarriedLane) -> tuple[object, ...]:
    """What tells one stall of a lane from another, as `driver.policies` has it."""
    state = lane.state()
    if not isinstance(state, Stalled):
        return ()
    # Here two stalls may be of the same millisecond, so the lane itself tells them apart.
    return lane.reached.position, state.since_ms, state.lost, id(lane)
