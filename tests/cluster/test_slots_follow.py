"""Slots that come and go under a mirror, and a lane that its slot does not carry.

Real brokers and real slots, which are processes; what Spark says is played.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from heliograph.broker.clients import Clients
from heliograph.config.load import load_config
from heliograph.copy.flow import fetch_limits
from heliograph.copy.lane import CarriedLane
from heliograph.driver import slot_keeper, stuck
from heliograph.driver.reconcile import Reconciler
from heliograph.driver.slot_keeper import SlotKeeper
from heliograph.engine.capacity import Capacity
from heliograph.engine.slots import Slots
from heliograph.engine.task import SlotOrder, make_shuttle
from heliograph.ledger.service import LedgerService
from heliograph.model import Idle, LaneId, SlotId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.process_slots import NoSpark, slots_as_processes
from tests.kit.records import numbered, produce

_PARTITIONS: Final = 6
_ROUND: Final = 600
_WAIT_S: Final = 60.0
_STUCK_S: Final = 3.0
S0, S1, S2 = SlotId(0), SlotId(1), SlotId(2)


def hold_back_a_lane(order: SlotOrder) -> None:
    """In the process of slot 1: what comes for its first lane stays there, and nobody is told."""
    if order.slot != 1:
        return
    sendable: Any = vars(CarriedLane)["sendable"]
    first: list[LaneId] = []

    def held(lane: CarriedLane) -> bool:
        if lane.running is not None and lane.running.outgoing and not first:
            first.append(lane.spec.id)
        return lane.spec.id not in first and bool(sendable.fget(lane))

    CarriedLane.sendable = property(held)  # type: ignore[method-assign,assignment]


class Played:
    """What Spark has, as the test says."""

    def __init__(self, cores: int) -> None:
        self.cores = cores

    def __call__(self) -> Capacity:
        room = 4 * self.cores
        return Capacity(cores=self.cores, executors=1, room=room, most=room)


class Mirror:
    """A driver without Spark and leases, whose slots are processes."""

    def __init__(self, file: Path, spark: Played) -> None:
        self.config = load_config(file)
        self.spark = spark
        self.keeper = SlotKeeper(self.config, spark())
        self.clients = Clients(self.config)
        self.ledgers = LedgerService(self.config.clusters)
        self.reconciler = Reconciler(self.config, self.ledgers, self.clients, self.keeper.count)
        carrier = partial(make_shuttle, limits=fetch_limits(self.config))
        self.slots = Slots(
            clusters=self.config.clusters, engine=self.config.engine, carrier=carrier
        )

    async def run(self, work: Callable[[], Any]) -> None:
        context: Any = NoSpark()
        await self.slots.start(context, self.keeper.count)
        keeping = asyncio.create_task(self.keeper.run(self.reconciler, self.slots, self.spark))
        try:
            await self.reconciler.reconcile(self.slots)
            await work()
            assert not keeping.done()
        finally:
            keeping.cancel()
            await self.slots.stop()
            self.clients.close()
            self.ledgers.close()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(_WAIT_S):
                while not condition():
                    await asyncio.sleep(0.1)
        except TimeoutError:
            seen = {str(lane.source): at.state for lane, at in self.slots.progress().items()}
            pytest.fail(f"{what}: {seen} {self.slots.current()} {self.slots.health()}")

    def running(self) -> set[SlotId]:
        return {each.slot for each in self.slots.health() if each.state == "running"}

    def copied(self, records: int) -> bool:
        """Whether every lane has as many records and is idle."""
        found = self.slots.progress().values()
        return len(found) == _PARTITIONS and all(
            isinstance(at.state, Idle) and at.position == records for at in found
        )

    def in_slots(self, *slots: SlotId) -> bool:
        return set(self.slots.current().values()) == set(slots)

    def since_taken(self) -> dict[LaneId, int]:
        """Records that each lane's slot has copied since it took the lane, or resumed it anew."""
        return {lane: at.records for lane, at in self.slots.progress().items()}


def test_slots_come_and_go_with_cores_and_only_the_lanes_that_move_begin_anew(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stuck, "STUCK_S", _STUCK_S)
    monkeypatch.setattr(slot_keeper, "LOOK_S", 0.3)
    source, target = pair["A"], pair["B"]
    name = lasting_topic(source, topic("follow"), partitions=_PARTITIONS)
    config = write_config(
        tmp_path / "mm2.properties", {"el": source, "to": target}, {"el->to": {"topics": name}}
    )
    way = route(config, ("el", source), ("to", target))
    spark = Played(cores=2)
    mirror = Mirror(config, spark)
    rounds = 0

    def write() -> int:
        nonlocal rounds
        start = rounds * _ROUND
        produce(source, name, numbered(_ROUND, partitions=_PARTITIONS, start=start))
        rounds += 1
        return rounds * _ROUND // _PARTITIONS

    async def grow_and_shrink() -> None:
        first = write()
        await mirror.until(lambda: mirror.copied(first), "all copied by one slot")

        spark.cores = 6
        await mirror.until(lambda: mirror.running() == {S0, S1, S2}, "three slots")
        await mirror.until(lambda: mirror.in_slots(S0, S1, S2), "lanes in all of them")
        stayed = {lane for lane, slot in mirror.slots.current().items() if slot == S0}
        assert mirror.keeper.why.startswith("3 slots: 6 cores / 2")
        assert len(stayed) == 2
        in_slot_1 = {lane for lane, slot in mirror.slots.current().items() if slot == S1}

        for _ in range(200):
            second = write()
            if mirror.keeper.moved:
                break
            await asyncio.sleep(0.1)
        await mirror.until(lambda: mirror.copied(second), "all copied by three slots")
        (held,) = mirror.keeper.moved
        assert held in in_slot_1
        assert "no progress in slot 1" in mirror.keeper.moved[held]
        assert mirror.slots.current()[held] != S1
        copied = mirror.since_taken()
        assert {lane: copied[lane] for lane in stayed} == dict.fromkeys(stayed, second)
        assert [each.replaced for each in mirror.slots.health()] == [0, 0, 0]

        spark.cores = 2
        await mirror.until(lambda: len(mirror.slots.health()) == 1, "one slot")
        third = write()
        await mirror.until(lambda: mirror.copied(third), "all copied by one slot again")
        assert {mirror.since_taken()[lane] for lane in stayed} == {third}

    with slots_as_processes(hold_back_a_lane):
        asyncio.run(mirror.run(grow_and_shrink))

    assert way.assert_arrives(name) == rounds * _ROUND
    way.assert_exact_map(name)
