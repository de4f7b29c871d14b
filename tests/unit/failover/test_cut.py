"""Where a cut lies in each log, and when it says nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph.errors import RecoveryRefused
from heliograph.failover.cut import CutPoint, cut_points, require_before
from heliograph.groups.placement import GroupMove, GroupPlan, Strategy
from heliograph.groups.snapshot import FlowSnapshot
from heliograph.model import TopicName, TopicPartition

SOURCE = TopicPartition(topic=TopicName("orders"), partition=0)
TARGET = TopicPartition(topic=TopicName("A.orders"), partition=0)


def point(offset: int, start: int = 0, end: int = 50) -> CutPoint:
    known = SimpleNamespace(target_starts={TARGET: start}, target_ends={TARGET: end})
    (found,) = cut_points(cast(FlowSnapshot, known), {SOURCE: TARGET}, {TARGET: offset})
    return found


@pytest.mark.parametrize(
    ("found", "offset", "later", "is_gone"),
    [
        (point(30), 30, 20, False),
        (point(-1), 50, 0, False),
        (point(0), 0, 50, False),
        (point(10, start=10), 10, 40, True),
        (point(11, start=10), 11, 39, False),
        (point(-1, start=50), 50, 0, False),
    ],
)
def test_what_lies_behind_the_cut_is_counted(
    found: CutPoint, offset: int, later: int, is_gone: bool
) -> None:
    assert (found.offset, found.later_records, found.is_gone) == (offset, later, is_gone)


def plan(target_offset: int) -> GroupPlan:
    more: dict[str, Any] = dict.fromkeys(
        ("source_offset", "exact_offset", "clamped", "repeated_records", "skipped_records")
    )
    move = GroupMove(
        group="billing",
        source=SOURCE,
        target=TARGET,
        target_offset=target_offset,
        lag_records=0,
        **more,
    )
    return GroupPlan(strategy=Strategy.MAP, moves=(move,))


def test_a_cut_before_what_is_left_of_a_log_is_refused_only_where_a_group_is_set_back_to_it() -> (
    None
):
    gone = point(10, start=10)

    with pytest.raises(
        RecoveryRefused, match=r"before the first record that is left of A\.orders-0"
    ):
        require_before(plan(20), plan(10), [gone], 1_000)
    require_before(plan(10), plan(10), [gone], 1_000)
    require_before(plan(20), plan(11), [point(11, start=10)], 1_000)
