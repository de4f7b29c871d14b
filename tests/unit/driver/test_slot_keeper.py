"""The keeper of slots, with Spark, slots and clock played: what is started, opened and moved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from heliograph.decisions.orders import FlowOrders
from heliograph.driver.decided import DecidedFlows
from heliograph.driver.reconcile import Reconciler
from heliograph.driver.slot_count import SETTLE_S
from heliograph.driver.slot_keeper import START_S_MAX, OpenSlots, SlotKeeper, open_slots
from heliograph.driver.stuck import AGAIN_S, LEAVE_S_MAX, STUCK_S
from heliograph.engine.capacity import Capacity
from heliograph.engine.supervisor import SlotHealth, SlotState
from heliograph.model import (
    FlowId,
    Lane,
    LaneId,
    LaneLoad,
    LaneProgress,
    SlotId,
)
from tests.unit.config.texts import config_of
from tests.unit.engine.lanes import lane, progress

FLOW = lane(0).id.flow
FILE = (
    "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
)
FOUR_CORES = Capacity(cores=4, executors=1, room=16, most=16)
S0, S1, S2 = SlotId(0), SlotId(1), SlotId(2)


class PlayedSlots:
    def __init__(self, count: int) -> None:
        self.states = {SlotId(number): SlotState.RUNNING for number in range(count)}
        self.kept: list[frozenset[SlotId]] = []
        self.given_up: list[SlotId] = []
        self.lanes: dict[LaneId, LaneProgress] = {lane(n).id: progress(n) for n in range(8)}
        self.placed = {lane_id: SlotId(n % count) for n, lane_id in enumerate(self.lanes)}

    def keep(self, wanted: frozenset[SlotId]) -> None:
        self.kept.append(wanted)
        self.states = {slot: self.states.get(slot, SlotState.STARTING) for slot in sorted(wanted)}

    def give_up(self, slot: SlotId, why: str) -> None:
        self.given_up.append(slot)

    def health(self) -> Sequence[SlotHealth]:
        return [health(slot, state) for slot, state in self.states.items()]

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        return self.lanes

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        return {}

    def current(self) -> Mapping[LaneId, SlotId]:
        return self.placed

    def apply(
        self,
        assignment: Mapping[SlotId, tuple[Lane, ...]],
        abandoned: frozenset[FlowId],
        stuck: frozenset[LaneId],
    ) -> None: ...

    def resume(self, ids: Iterable[LaneId]) -> None: ...

    def throttle(self, limits: Mapping[str, int]) -> None: ...


class PlayedReconciler:
    led = (FLOW,)
    lane_count = 8

    def __init__(self) -> None:
        self.decided = DecidedFlows({})
        self.used: list[tuple[frozenset[SlotId], Mapping[LaneId, frozenset[SlotId]]]] = []
        self.handed_out = 0

    def use_slots(
        self, slots: frozenset[SlotId], avoided: Mapping[LaneId, frozenset[SlotId]]
    ) -> None:
        self.used.append((slots, avoided))

    async def rebalance(self, slots: object) -> None:
        self.handed_out += 1


class Scene:
    def __init__(self, text: str = FILE, first: Capacity = FOUR_CORES) -> None:
        self.now_s = 1_000.0
        self.keeper = SlotKeeper(config_of(text), first, lambda: self.now_s)
        self.slots = PlayedSlots(self.keeper.count)
        self.reconciler = PlayedReconciler()

    def look(self, seconds: float = 0.0, capacity: Capacity | None = None) -> None:
        self.now_s += seconds
        if capacity is not None:
            self.keeper._capacity = capacity
        asyncio.run(self.keeper.look(cast(Reconciler, self.reconciler), self.slots))


def health(slot: SlotId, state: SlotState) -> SlotHealth:
    return SlotHealth(
        slot=slot,
        state=state,
        generation=1,
        replaced=0,
        attempt="1",
        pid=1,
        lanes=1,
        silent_ms=0,
        detail="",
    )


def test_a_slot_that_is_added_gets_lanes_once_it_runs_and_nothing_happens_before() -> None:
    scene = Scene()
    scene.look(2)
    wider = Capacity(cores=6, executors=2, room=24, most=24)

    scene.look(2, wider)
    scene.look(SETTLE_S, wider)
    before = list(scene.reconciler.used)
    scene.slots.states[S2] = SlotState.RUNNING
    scene.look(2, wider)

    assert scene.slots.kept == [frozenset({S0, S1, S2})]
    assert before == []
    assert scene.reconciler.used == [(frozenset({S0, S1, S2}), {})]
    assert scene.reconciler.handed_out == 1
    assert scene.keeper.why == "3 slots: 6 cores / 2, lag 0"


def test_an_executor_that_is_gone_takes_its_slot_along_and_the_one_that_runs_stays() -> None:
    scene = Scene()
    scene.slots.states[S0] = SlotState.STARTING
    narrower = Capacity(cores=2, executors=1, room=8, most=8)

    scene.look(2, narrower)
    scene.look(SETTLE_S, narrower)

    assert scene.slots.kept == [frozenset({S1})]
    assert scene.reconciler.used == [(frozenset({S1}), {})]


def test_a_slot_drained_for_every_flow_goes_and_does_not_come_back_until_it_may() -> None:
    scene = Scene()
    decided = scene.reconciler.decided
    decided._flows = {FLOW: config_of(FILE).flow(FLOW)}
    decided._orders[FLOW] = FlowOrders(drained=frozenset({S1}))

    for _ in range(20):
        scene.look(5)
    away = list(scene.slots.kept)
    decided._orders[FLOW] = FlowOrders()
    scene.look(5)

    assert away == [frozenset({S0})]
    assert scene.slots.kept[1:] == [frozenset({S0, S1})]


def test_with_a_number_of_slots_a_drained_slot_stays() -> None:
    scene = Scene(FILE + "slots = 2\n")
    scene.reconciler.decided._flows = {FLOW: config_of(FILE).flow(FLOW)}
    scene.reconciler.decided._orders[FLOW] = FlowOrders(drained=frozenset({S1}))

    scene.look(5)

    assert scene.slots.kept == []


def test_a_pinned_slot_that_does_not_exist_is_added_with_one_for_the_others() -> None:
    text = FILE + "critical.topics = pay\ncritical.slots = 3\n"
    scene = Scene(text, Capacity(cores=2, executors=1, room=8, most=8))
    scene.reconciler.decided = DecidedFlows({FLOW: config_of(text).flow(FLOW)})

    scene.look(2)
    scene.look(SETTLE_S)

    assert scene.slots.kept == [frozenset({S0, SlotId(3)})]


def test_a_stuck_lane_avoids_its_slot_and_a_slot_that_keeps_it_is_ended() -> None:
    scene = Scene()
    stuck = lane(0).id

    def others_go_on(step: int) -> None:
        scene.slots.lanes = {
            lane_id: progress(n, records=0 if lane_id == stuck else step, lag_records=9)
            for n, lane_id in enumerate(scene.slots.lanes)
        }

    for step in range(int(STUCK_S / 2) + 2):
        others_go_on(step)
        scene.look(2)
    used = list(scene.reconciler.used)
    for step in range(int(LEAVE_S_MAX / 2) + 2):
        others_go_on(1_000 + step)
        scene.look(2)

    assert used == [(frozenset({S0, S1}), {stuck: frozenset({S0})})]
    assert list(scene.keeper.moved) == [stuck]
    assert scene.slots.given_up == [S0]

    scene.slots.placed[stuck] = S1
    scene.look(AGAIN_S)
    assert scene.reconciler.used[1:] == [(frozenset({S0, S1}), {})], "it may come back"


def test_a_slot_is_waited_for_a_moment_and_others_carry_its_lanes_then() -> None:
    both = frozenset({S0, S1})
    lost = [health(S0, SlotState.RUNNING), health(S1, SlotState.STARTING)]

    soon = open_slots(both, lost, OpenSlots(slots=both), 100.0)
    later = open_slots(both, lost, soon, 100.0 + START_S_MAX)
    back = open_slots(both, [health(s, SlotState.RUNNING) for s in both], later, 200.0)
    gone = [health(s, SlotState.STARTING) for s in both]
    none = open_slots(both, gone, open_slots(both, gone, later, 300.0), 300.0 + START_S_MAX)

    assert soon.slots == both
    assert later.slots == {S0}
    assert back.slots == both
    assert none.slots == both, "without any that runs, lanes wait for all"
