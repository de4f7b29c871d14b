"""What is made of lanes as slots report them and as they are read from clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph.config.schema import FlowConfig
from heliograph.config.sections import IDENTITY_POLICY, NamingPolicyConfig
from heliograph.health.sight import (
    facts_of,
    groups_sight,
    lane_of_progress,
    lane_of_status,
    own_topics,
    why_idle,
)
from heliograph.inspect.flow_status import FlowStatus, LaneStatus
from heliograph.inspect.groups import FlowGroups, GroupRow, Verdict
from heliograph.ledger.entries import LossEntry
from heliograph.ledger.fence import Fence
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    Copying,
    Idle,
    LaneId,
    LaneProgress,
    OffsetRange,
    Stalled,
    StallReason,
    Starting,
    TopicName,
    TopicPartition,
)
from tests.unit.health.sights import AB, FLOW

NOW_MS = 100_000
ORDERS = TopicPartition(topic=TopicName("orders"), partition=0)
LANE = LaneId(flow=AB, source=ORDERS)


def progress(state: Any, *, lag: int = 0, behind_ms: int = -1) -> LaneProgress:
    return LaneProgress(
        lane=LANE,
        state=state,
        position=1,
        source_next_offset=5,
        source_end_offset=5 + lag,
        source_start_offset=0,
        target_next_offset=5,
        behind_since_ms=behind_ms,
        last_timestamp_ms=77,
    )


STALLED = Stalled(reason=StallReason.BUG, detail="x", since_ms=9, retrying=True)


@pytest.mark.parametrize(
    ("at", "state", "lag_records", "lag_s"),
    [
        (progress(Idle()), "idle", 0, 0.0),
        (progress(Idle(), behind_ms=1), "idle", 0, 0.0),
        (progress(Copying(), lag=3, behind_ms=70_000), "copying", 3, 30.0),
        (progress(Copying(), lag=3), "copying", 3, None),
        (progress(Starting()), "starting", None, None),
        (progress(STALLED, lag=3, behind_ms=70_000), "stalled", None, 30.0),
        (progress(Copying(), lag=3, behind_ms=200_000), "copying", 3, 0.0),
    ],
)
def test_a_lane_as_its_slot_reports_it(
    at: LaneProgress, state: str, lag_records: int | None, lag_s: float | None
) -> None:
    found = lane_of_progress(at, frozenset(), NOW_MS)

    assert (found.state, found.lag_records, found.lag_s) == (state, lag_records, lag_s)
    assert found.newest_ms == 77


def test_a_stall_keeps_its_reason() -> None:
    found = lane_of_progress(progress(STALLED), frozenset(), NOW_MS)

    assert (found.reason, found.since_ms, found.retrying) == ("bug", 9, True)


STATUS = LaneStatus(
    lane=LANE,
    target=ORDERS,
    state="stalled: corrupt batch",
    detail="bad CRC",
    position=1,
    position_is_exact=True,
    source_start_offset=0,
    source_next_offset=5,
    source_end_offset=9,
    target_next_offset=5,
    lag_records=4,
    lag_s=2.0,
    mapped_because="",
    lost_records=0,
    foreign_records=0,
    noted_ms=50,
)


def test_a_lane_as_the_clusters_tell_it() -> None:
    before = replace(STATUS, source_end_offset=7)

    found = lane_of_status(STATUS, frozenset({ORDERS.topic}), before, 99)

    assert (found.state, found.reason, found.since_ms) == ("stalled", "corrupt batch", 50)
    assert (found.is_own, found.grew, found.newest_ms) == (True, True, 99)


@pytest.mark.parametrize(
    ("end", "before", "grew"), [(9, None, None), (9, 9, False), (None, 9, None), (12, 9, True)]
)
def test_whether_a_log_grew_is_known_only_by_two_looks(
    end: int | None, before: int | None, grew: bool | None
) -> None:
    earlier = None if before is None else replace(STATUS, source_end_offset=before)

    found = lane_of_status(replace(STATUS, source_end_offset=end), frozenset(), earlier)

    assert found.grew is grew


@pytest.mark.parametrize(
    "policy", [NamingPolicyConfig(), NamingPolicyConfig(class_path=IDENTITY_POLICY)]
)
def test_heartbeats_and_canaries_are_known_by_their_names(policy: NamingPolicyConfig) -> None:
    flow: FlowConfig = FLOW.model_copy(update={"policy": policy})
    names = {TopicName(name) for name in ("heartbeats", "heliograph-canary-A", "orders")}

    assert own_topics(flow, names) == {"heartbeats", "heliograph-canary-A"}


def test_the_ledger_counts_what_was_lost_by_topic() -> None:
    view = LedgerView()
    for partition, at_ms in ((0, 5), (1, 9)):
        view.apply(
            LossEntry(
                topic=ORDERS.topic,
                partition=partition,
                position=1,
                lost=OffsetRange(start=2, end=4),
                reason=StallReason.RETENTION_OVERRUN,
                at_ms=at_ms,
            )
        )

    (losses,) = facts_of(view, NOW_MS).losses.values()

    assert (losses.records, losses.last_ms) == (4, 9)


def test_why_a_flow_is_not_mirrored_at_all() -> None:
    read = FlowStatus(flow=AB, producer=None, holder=None, lanes=(replace(STATUS, state="idle"),))

    assert why_idle(read) == "no driver mirrors it"
    assert why_idle(replace(read, fence=Fence(at_ms=1, why="failed over"))) == "fenced: failed over"


def test_groups_are_sorted_by_what_a_failover_can_do_for_them() -> None:
    row = GroupRow(
        group="billing",
        type=None,  # type: ignore[arg-type]
        source=ORDERS,
        target=ORDERS,
        source_offset=1,
        translated=None,
        committed_offset=None,
        target_end_offset=None,
        source_state=None,
        target_state=None,
        verdict=Verdict.NOT_TRANSLATABLE,
    )
    rows = [row]
    rows += [replace(row, group=each.name, verdict=each) for each in Verdict]

    found = groups_sight(
        FlowGroups(flow=AB, writes_offsets=True, rows=tuple(rows), problems=("no answer",))
    )

    many = [replace(row, source=replace(ORDERS, partition=n)) for n in range(10_000)]
    wide = groups_sight(FlowGroups(flow=AB, writes_offsets=True, rows=tuple(many), problems=()))

    assert wide.untranslated == ("billing",), "a group of 10,000 partitions is named once"
    assert found.untranslated == ("NOT_TRANSLATABLE", "billing")
    assert found.unknown == ("no answer", "UNKNOWN")
    assert found.behind == ("BEHIND", "NOT_WRITTEN")
