"""Lanes that give way to critical ones: which they are, what slots are told, what is shown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from heliograph.config.schema import FlowConfig
from heliograph.config.sections import LoadConfig
from heliograph.decisions.decision import Verb
from heliograph.driver.critical_first import CriticalFirst
from heliograph.driver.decided import DecidedFlows, limit_name
from heliograph.driver.giving_way import FIRST_BYTES_PER_S, LEAST_BYTES_PER_S
from heliograph.model import GIVES_WAY, LATENCY_BUCKETS_MS, LaneId, LaneProgress
from tests.unit.driver.test_decided import FLOW, decided, lane, made
from tests.unit.engine.lanes import progress

CRITICAL = FlowConfig(
    id=FLOW,
    enabled=True,
    load=LoadConfig(critical_topics=("pay",)),
    critical_latency_ms=5,
)


class PlayedSlots:
    def __init__(self) -> None:
        self.at: dict[LaneId, LaneProgress] = {}
        self.limits: list[Mapping[str, int]] = []

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        return dict(self.at)

    def throttle(self, limits: Mapping[str, int]) -> None:
        self.limits.append(limits)

    def copied(self, pay: tuple[int, ...], logs_bytes: int) -> None:
        for at in (
            replace(progress(0), lane=lane("pay").id, latency_counts=pay),
            replace(progress(0), lane=lane("logs").id, received_bytes=logs_bytes),
        ):
            self.at[at.lane] = at


class Played:
    def __init__(self, flow: FlowConfig) -> None:
        self.flows = {FLOW: flow}
        self.decided = DecidedFlows(self.flows)
        self.decided.learn(FLOW, ())
        self.handed_out = 0
        self.now_s = 0.0
        self.slots: Any = PlayedSlots()
        self.first = CriticalFirst(lambda: self.now_s)

    async def rebalance(self, slots: object) -> None:
        self.handed_out += 1

    def look(self) -> None:
        self.now_s += 1.0
        asyncio.run(self.first.look(self, self.slots))


def test_lanes_without_slots_of_their_own_give_way_and_keep_their_other_limits() -> None:
    limit = made(Verb.THROTTLE, bytes_per_s=5)
    flows = decided(limit, flow=CRITICAL)

    pay, logs = flows.carried([lane("pay"), lane("logs")])

    assert GIVES_WAY not in pay.limits
    assert logs.limits == (limit_name(FLOW, limit), GIVES_WAY)
    assert flows.critical([pay.id, logs.id]) == {pay.id: 5}


def test_lanes_that_an_operator_pinned_are_critical_too() -> None:
    flows = decided(made(Verb.PIN, "logs", slots=(1,)), flow=CRITICAL)

    lanes = flows.carried([lane("pay"), lane("logs"), lane("other")])

    assert [at.limits for at in lanes] == [(), (), (GIVES_WAY,)]


def test_without_the_key_no_lane_gives_way() -> None:
    pinned = LoadConfig(critical_topics=("pay",))
    mirror = Played(FlowConfig(id=FLOW, enabled=True, load=pinned))

    mirror.look()

    assert mirror.decided.carried([lane("logs")]) == [lane("logs")]
    assert (mirror.handed_out, mirror.slots.limits) == (0, [])


def test_others_copy_less_when_critical_records_are_late(caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    mirror = Played(CRITICAL)
    late = [0] * (len(LATENCY_BUCKETS_MS) + 1)
    mirror.slots.copied(tuple(late), 0)
    mirror.look()
    late[LATENCY_BUCKETS_MS.index(50)] = 200
    mirror.slots.copied(tuple(late), 8_000_000)

    mirror.look()

    half = int(FIRST_BYTES_PER_S / 2)
    assert mirror.slots.limits == [{GIVES_WAY: int(FIRST_BYTES_PER_S)}, {GIVES_WAY: half}]
    assert mirror.handed_out == 1
    assert "critical topics were late: all other lanes copy at most 4 MB/s" in caplog.text
    assert mirror.decided.is_limited(lane("logs").id)
    assert not mirror.decided.is_limited(lane("pay").id)
    assert mirror.decided.words()[FLOW] == (
        "other lanes: at most 4 MB/s, to keep critical ones at 5 ms",
    )


def test_without_the_key_after_a_change_of_the_file_nothing_is_held_back() -> None:
    mirror = Played(CRITICAL)
    mirror.slots.copied((0,) * (len(LATENCY_BUCKETS_MS) + 1), 0)
    mirror.look()

    mirror.flows[FLOW] = FlowConfig(id=FLOW, enabled=True)
    mirror.look()

    assert mirror.slots.limits[-1] == {}
    assert mirror.handed_out == 2
    assert mirror.decided.carried([lane("logs")]) == [lane("logs")]


def test_critical_records_that_others_do_not_delay_hold_none_of_them_up(caplog: Any) -> None:
    mirror = Played(CRITICAL)
    late = [0] * (len(LATENCY_BUCKETS_MS) + 1)
    copied = 0
    for _ in range(60):
        late[-1] += 200
        copied += int(mirror.decided.held_back or LEAST_BYTES_PER_S)
        mirror.slots.copied(tuple(late), copied)
        mirror.look()

    assert mirror.decided.held_back is None
    assert "for 10 minutes no lane is held back" in caplog.text
