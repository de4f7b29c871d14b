from __future__ import annotations

from typing import Any

from heliograph.lag.figures import (
    NEVER,
    Behind,
    LaneLag,
    Motion,
    Trend,
    json_seconds,
    seconds_words,
)
from heliograph.lag.folding import badness, lag_report
from tests.unit.lag.facts import FLOW, lane


def lag(partition: int, topic: str = "orders", *, records: int | None = 0, **more: Any) -> LaneLag:
    behind = Behind(
        records=records,
        bytes=None if records is None else records * 10,
        seconds=None if records is None else float(records),
    )
    more.setdefault("motion", Motion.MOVING if records else Motion.IDLE)
    return LaneLag(lane=lane(partition, topic), acknowledged=behind, **more)


def test_topics_and_flows_sum_records_and_take_the_worst_of_seconds() -> None:
    report = lag_report([lag(0, records=3), lag(1, records=4), lag(0, "other", records=5)], 7)

    topic = report.topics[FLOW, lane().source.topic]
    flow = report.flows[FLOW]
    assert topic.acknowledged == Behind(records=7, bytes=70, seconds=4.0)
    assert flow.acknowledged == Behind(records=12, bytes=120, seconds=5.0)
    assert (topic.lanes, flow.lanes, flow.topics, report.at_ms) == (2, 3, 2, 7)


def test_one_unknown_lane_makes_the_sum_unknown() -> None:
    report = lag_report([lag(0, records=3), lag(1, records=None, motion=Motion.UNKNOWN)], 7)

    flow = report.flows[FLOW]
    assert (flow.acknowledged.records, flow.acknowledged.seconds) == (None, None)
    assert flow.motion is Motion.UNKNOWN


def test_the_slowest_lane_says_when_all_are_level_and_the_first_when_records_are_lost() -> None:
    report = lag_report(
        [
            lag(0, records=1, catch_up_s=5.0, overrun_s=NEVER),
            lag(1, records=1, catch_up_s=NEVER, overrun_s=60.0, overrun_by="retention.ms"),
            lag(2, records=1, catch_up_s=9.0, overrun_s=None),
        ],
        0,
    )

    flow = report.flows[FLOW]
    assert (flow.catch_up_s, flow.overrun_s, flow.overrun_by) == (NEVER, 60.0, "retention.ms")


def test_an_overrun_that_is_unknown_for_one_lane_is_not_never() -> None:
    report = lag_report([lag(0, overrun_s=NEVER), lag(1, overrun_s=None)], 0)

    assert report.flows[FLOW].overrun_s is None


def test_the_trend_of_many_is_that_of_their_rates_together() -> None:
    rates: dict[str, Any] = {"records_per_s": 10.0, "source_records_per_s": 100.0}

    report = lag_report([lag(0, records=9_000, **rates), lag(1, records=0, **rates)], 0)

    assert report.flows[FLOW].trend is Trend.GROWING


def test_the_worst_lane_is_the_one_that_needs_somebody_first() -> None:
    lanes = [
        lag(0, records=9),
        lag(1, records=1, motion=Motion.STUCK),
        lag(2, records=1, motion=Motion.STALLED, overrun_s=50.0),
        lag(3, records=5, motion=Motion.STALLED, overrun_s=5.0),
        lag(4),
    ]

    ordered = [each.lane.source.partition for each in sorted(lanes, key=badness)]

    assert ordered == [3, 2, 1, 0, 4]
    assert lag_report(lanes, 0).flows[FLOW].worst == lane(3)
    assert lag_report(lanes, 0).flows[FLOW].motions[Motion.STALLED] == 2


def test_times_in_words_and_in_json() -> None:
    assert [seconds_words(each) for each in (None, NEVER, 0.0, 61.2, 200_000.0)] == [
        "?",
        "never",
        "0:00:00",
        "0:01:02",
        "2 d",
    ]
    assert [json_seconds(each) for each in (None, NEVER, 1.23456)] == [None, "never", 1.235]
