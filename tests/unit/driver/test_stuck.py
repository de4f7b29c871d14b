"""Which lanes are moved because they make no progress, and which are not."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from heliograph.driver.stuck import AGAIN_S, LEAVE_S_MAX, STUCK_S, THROTTLED_S, Moved, StuckLanes
from heliograph.model import (
    ClusterAlias,
    Copying,
    FlowId,
    Idle,
    LaneId,
    LaneProgress,
    LaneState,
    Paused,
    SlotId,
    Stalled,
    StallReason,
    Starting,
    TopicName,
    TopicPartition,
)

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
S0, S1 = SlotId(0), SlotId(1)
BOTH = frozenset({S0, S1})


def lane(number: int, flow: FlowId = FLOW) -> LaneId:
    return LaneId(flow=flow, source=TopicPartition(topic=TopicName("t"), partition=number))


def stalled(reason: StallReason, *, retrying: bool = True) -> Stalled:
    return Stalled(reason=reason, detail="so it is", since_ms=0, retrying=retrying)


def at(
    number: int, position: int, state: LaneState | None = None, end: int = 1_000
) -> LaneProgress:
    return LaneProgress(
        lane=lane(number),
        state=state or Copying(),
        position=position,
        source_next_offset=position,
        source_end_offset=end,
        source_start_offset=0,
        target_next_offset=position,
    )


class Scene:
    """Lane 0 in slot 0 is watched; lanes 1 and 2 are its neighbours in both slots."""

    def __init__(self) -> None:
        self.stuck = StuckLanes()
        self.now_s = 1_000.0
        self.placed = {lane(0): S0, lane(1): S0, lane(2): S1}
        self.open = BOTH
        self.others = 0

    def wait(
        self,
        seconds: float,
        watched: LaneProgress,
        *,
        others_move: bool = True,
        others: LaneState | None = None,
        throttled: bool = False,
    ) -> list[LaneId]:
        """Every lane that was to be moved meanwhile."""
        found = []
        for _ in range(int(seconds / 2)):
            self.now_s += 2
            self.others += others_move
            progress = [watched, at(1, self.others, others), at(2, self.others, others)]
            moves = self.stuck.look(
                {each.lane: each for each in progress},
                self.placed,
                self.open,
                self.now_s,
                lambda _: throttled,
            )
            found += [each.lane for each in moves]
        return found


@pytest.mark.parametrize("state", [Copying(), Starting()])
def test_a_lane_that_stands_while_others_go_on_is_moved_once(state: LaneState) -> None:
    scene = Scene()

    soon = scene.wait(STUCK_S - 4, at(0, 7, state))
    then = scene.wait(20, at(0, 7, state))

    assert soon == []
    assert then == [lane(0)]
    assert scene.stuck.avoided(scene.now_s) == {lane(0): frozenset({S0})}
    (why,) = scene.stuck.shown(scene.now_s).values()
    assert why == "no progress in slot 0 for 1 min, while other lanes of A->B went on"


@pytest.mark.parametrize(
    "watched",
    [
        at(0, 7, Idle(), end=7),
        at(0, 7, Idle()),
        at(0, 7, Paused()),
        at(0, 7, Copying(), end=7),
        at(0, 7, stalled(StallReason.CORRUPT_BATCH)),
        at(0, 7, stalled(StallReason.REFUSED_BY_TARGET)),
        at(0, 7, stalled(StallReason.NOT_AUTHORISED)),
        at(0, 7, stalled(StallReason.RETENTION_OVERRUN, retrying=False)),
        at(0, 7, stalled(StallReason.SOURCE_UNREACHABLE, retrying=False)),
    ],
)
def test_a_lane_with_nothing_to_do_or_a_reason_of_its_own_is_left_alone(
    watched: LaneProgress,
) -> None:
    assert Scene().wait(10 * STUCK_S, watched) == []


def test_nothing_is_moved_while_no_lane_of_the_flow_goes_on() -> None:
    assert Scene().wait(10 * STUCK_S, at(0, 7), others_move=False) == []


def test_nothing_is_moved_where_no_other_slot_is_open() -> None:
    scene = Scene()
    scene.open = frozenset({S0})

    assert scene.wait(10 * STUCK_S, at(0, 7)) == []


def test_a_lane_that_goes_on_now_and_then_is_left_alone() -> None:
    scene = Scene()

    found = [scene.wait(STUCK_S - 10, at(0, position)) for position in range(20)]

    assert found == [[]] * 20


@pytest.mark.parametrize("reason", [StallReason.SOURCE_UNREACHABLE, StallReason.TARGET_UNREACHABLE])
def test_a_cluster_that_only_this_slot_does_not_reach_moves_the_lane(reason: StallReason) -> None:
    scene, watched = Scene(), at(0, 7, stalled(reason))

    everywhere = scene.wait(3 * STUCK_S, watched, others_move=False, others=stalled(reason))
    here = scene.wait(4, watched, others_move=False, others=Idle())

    assert everywhere == []
    assert here == [lane(0)]
    assert "slot 1 reaches the" in scene.stuck.shown(scene.now_s)[lane(0)]


def test_a_throttled_lane_may_wait_long_for_its_turn() -> None:
    scene = Scene()

    assert scene.wait(THROTTLED_S - 4, at(0, 7), throttled=True) == []
    assert scene.wait(8, at(0, 7), throttled=True) == [lane(0)]


def test_a_slow_link_where_lanes_of_all_slots_wait_moves_none() -> None:
    stuck, slow = StuckLanes(), [at(number, 7) for number in range(8)]
    placed = {lane(number): SlotId(number % 2) for number in range(10)}
    found: list[Moved] = []
    for step in range(200):
        some = [*slow, at(8, step), at(9, step)]
        found += stuck.look({each.lane: each for each in some}, placed, BOTH, 2.0 * step)

    assert found == []


def test_all_lanes_of_one_slot_are_moved_together() -> None:
    stuck, slow = StuckLanes(), [at(number, 7) for number in range(0, 8, 2)]
    placed = {lane(number): SlotId(number % 2) for number in range(8)}
    found: list[Moved] = []
    for step in range(40):
        some = [*slow, *(at(number, step) for number in range(1, 8, 2))]
        found += stuck.look({each.lane: each for each in some}, placed, BOTH, 2.0 * step)

    assert [each.lane for each in found] == [each.lane for each in slow]


def test_a_lane_that_no_slot_helps_is_moved_less_and_less_often() -> None:
    scene, times = Scene(), []
    for _ in range(int(4 * 3_600 / 2)):
        if scene.wait(2, at(0, 7)):
            times.append(scene.now_s)
            scene.placed[lane(0)] = S1 if scene.placed[lane(0)] == S0 else S0

    between = [later - before for before, later in itertools.pairwise(times)]
    assert between[:3] == pytest.approx([AGAIN_S, 2 * AGAIN_S, 4 * AGAIN_S], abs=3)
    assert len(times) <= 8


def test_a_slot_that_does_not_let_go_is_named_once() -> None:
    scene = Scene()
    scene.wait(STUCK_S + 4, at(0, 7))
    held, gone = dict(scene.placed), {**scene.placed, lane(0): S1}
    late_s = scene.now_s + LEAVE_S_MAX

    assert scene.stuck.unwilling(held, scene.now_s) == {}
    assert scene.stuck.unwilling(gone, late_s) == {}
    assert scene.stuck.unwilling(held, late_s) == {S0: lane(0)}
    assert scene.stuck.unwilling(held, late_s + 10) == {}


def test_lanes_of_another_flow_do_not_speak_for_this_one() -> None:
    scene = Scene()
    other = FlowId(source=ClusterAlias("C"), target=ClusterAlias("B"))
    found: list[Moved] = []
    for step in range(200):
        elsewhere = replace(at(1, step), lane=lane(1, other))
        some = {lane(0): at(0, 7), elsewhere.lane: elsewhere}
        found += scene.stuck.look(some, {lane(0): S0, elsewhere.lane: S1}, BOTH, 2.0 * step)

    assert found == []
