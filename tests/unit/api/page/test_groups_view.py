"""Ten thousand partitions of a group are one row, and its worst partitions are named."""

from __future__ import annotations

from heliograph.api.page.groups_view import PARTITIONS_MAX, groups_view
from heliograph.broker.group_view import GroupState
from heliograph.inspect.groups import FlowGroups, GroupRow, GroupsStatus, Verdict
from heliograph.model import TopicName, TopicPartition
from tests.unit.api.pretend import AB, BA


def row(group: str, partition: int, verdict: Verdict, committed: int | None = 5) -> GroupRow:
    place = TopicPartition(topic=TopicName("orders"), partition=partition)
    return GroupRow(
        group=group,
        type="consumer",
        source=place,
        target=place,
        source_offset=7,
        translated=None,
        committed_offset=committed,
        target_end_offset=8,
        source_state=GroupState.STABLE,
        target_state=None,
        verdict=verdict,
    )


def test_a_large_group_is_one_row_with_its_worst_partitions() -> None:
    rows = [row("billing", number, Verdict.IN_STEP) for number in range(9_999)]
    rows.append(row("billing", 9_999, Verdict.NOT_TRANSLATABLE, committed=None))
    rows.append(row("well", 0, Verdict.IN_STEP))
    found = GroupsStatus(
        at_ms=1,
        flows=(
            FlowGroups(flow=AB, writes_offsets=True, rows=tuple(rows)),
            FlowGroups(flow=BA, writes_offsets=True, problems=("cluster A: no answer in time",)),
        ),
    )

    seen, hidden = groups_view(found, {AB, BA}), groups_view(found, {BA})

    first, second = seen.groups
    assert (first.group, first.partitions, first.is_well) == ("billing", 10_000, False)
    assert dict(first.verdicts) == {"in step": 9_999, "not translatable": 1}
    assert first.lag_records is None, "that of one partition is not known"
    assert first.worst[0].source.partition == 9_999
    assert len(first.worst) == PARTITIONS_MAX
    assert (second.group, second.lag_records, second.is_well) == ("well", 3, True)
    assert seen.problems == (("B->A", "cluster A: no answer in time"),)
    assert hidden.groups == ()
