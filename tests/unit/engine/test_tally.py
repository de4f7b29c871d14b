from __future__ import annotations

from dataclasses import replace

import pytest

import heliograph.engine.tally as module
from heliograph.engine.tally import LANE_COUNTERS, LaneTally, SlotTally
from heliograph.model import ClusterAlias, FlowFigures, LinkFigures, SlotFigures, SlotId
from tests.unit.metrics.looks import AB, at

A = ClusterAlias("A")


def figures(requests: int, *, failed: int = 0, in_flight: int = 0) -> SlotFigures:
    link = LinkFigures(
        cluster=A, way="from", requests=requests, failed=failed, requests_in_flight=in_flight
    )
    flow = FlowFigures(flow=AB, lookups=requests, stalls={"bug": requests})
    return SlotFigures(elapsed_s=float(requests), links=(link,), flows=(flow,))


def test_counters_go_on_when_a_slot_is_started_anew() -> None:
    tally = SlotTally()

    tally.heard(SlotId(0), 1, figures(10))
    tally.heard(SlotId(0), 1, figures(15))
    tally.heard(SlotId(0), 2, figures(4))
    tally.heard(SlotId(1), 1, figures(1, in_flight=3))

    link = tally.links[A, "from"]
    assert link.counters["requests"] == 20
    assert link.requests_in_flight == 3
    assert tally.flows[AB]["lookups"] == 20
    assert tally.stalls[AB]["bug"] == 20


def test_the_share_of_a_second_is_that_of_the_last_one() -> None:
    tally = SlotTally()

    tally.heard(SlotId(0), 1, SlotFigures(elapsed_s=10.0, user_s=10.0, system_s=0.0))
    tally.heard(SlotId(0), 1, SlotFigures(elapsed_s=11.0, user_s=10.25, system_s=0.25))

    shares = tally.shares[SlotId(0)]
    assert (shares.io, shares.io_wait) == (0.25, 0.5)


def test_a_clock_is_known_by_the_quickest_of_the_last_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ms, now_s, tally = [1_000_000], [50.0], SlotTally()
    monkeypatch.setattr(module, "now_ms", lambda: now_ms[0])
    monkeypatch.setattr(module, "monotonic_s", lambda: now_s[0])

    for slot, ahead_ms, took_ms in ((0, 0, 900), (0, 0, 2), (1, 7_000, 5), (2, -7_000, 0)):
        told = SlotFigures(at_ms=now_ms[0] + ahead_ms - took_ms)
        tally.heard(SlotId(slot), 1, told)
    tally.heard(SlotId(3), 1, SlotFigures())
    clocks = tally.clocks_s()
    tally.heard(SlotId(1), 2, SlotFigures(at_ms=now_ms[0]))
    anew = tally.clocks_s()[SlotId(1)]
    now_s[0] += 31.0

    assert clocks == {0: -0.002, 1: 6.995, 2: -7.0}
    assert anew == 0.0
    assert tally.clocks_s() == {}


def records(tally: LaneTally) -> int:
    ((_, total),) = tally.totals().topics().items()
    return total.counts[LANE_COUNTERS.index("records")]


def test_a_lane_that_moves_to_another_slot_keeps_what_was_counted() -> None:
    tally, lane = LaneTally(), at(0)

    tally.sample({lane.lane: lane})
    tally.sample({lane.lane: replace(lane, records=15, bytes=1_500)})
    tally.sample({lane.lane: replace(lane, records=2, bytes=200, latency_counts=())})

    assert records(tally) == 17


def test_lanes_that_left_stay_in_the_counters_of_their_topic() -> None:
    tally, first, second = LaneTally(), at(0), at(1)

    tally.sample({first.lane: first, second.lane: second})
    tally.sample({second.lane: second})
    tally.sample({first.lane: first, second.lane: second})

    assert records(tally) == 30
    assert sum(tally.totals().topics()[AB, first.lane.source.topic].latency) == 12


def test_a_lane_is_told_with_all_that_slots_before_counted_of_it() -> None:
    tally, lane = LaneTally(), at(0)

    for count in (10, 4, 6, 1):
        tally.sample({lane.lane: replace(lane, records=count, bytes=count)})

    told = tally.totals().lane(lane.lane)
    assert told is not None
    assert told.counts[LANE_COUNTERS.index("records")] == 10 + 6 + 1
    assert sum(told.latency) == 3 * sum(lane.latency_counts)
    assert tally.totals().lane(at(1).lane) is None
