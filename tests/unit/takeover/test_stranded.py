"""Groups that an adoption would leave without a place on the target are named before it."""

from __future__ import annotations

from heliograph.broker.group_view import GroupOffset
from heliograph.ledger.runs import Run
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition
from heliograph.takeover.stranded import notes_on_stranded
from heliograph.takeover.verdict import LaneFinding, Verdict
from heliograph.takeover.walk import WalkFrom

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


def at(partition: int) -> TopicPartition:
    return TopicPartition(topic=TopicName("orders"), partition=partition)


def adopted(
    partition: int, *, mapped_from: int, resumed_position: int | None = None
) -> LaneFinding:
    return LaneFinding(
        lane=LaneId(flow=FLOW, source=at(partition)),
        target=TopicPartition(topic=TopicName("A.orders"), partition=partition),
        verdict=Verdict.ADOPT,
        next_source_offset=11_000,
        runs=(Run(position=0, source_offset=mapped_from, target_offset=mapped_from),),
        resumed_position=resumed_position,
    )


GROUPS = {
    "billing": {at(0): GroupOffset(offset=4_473), at(1): GroupOffset(offset=10_999)},
    "reports": {at(0): GroupOffset(offset=10_999)},
}


def test_a_group_before_the_map_is_named_with_its_offset_and_what_helps() -> None:
    lanes = [adopted(0, mapped_from=10_999), adopted(1, mapped_from=10_999)]

    (note,) = notes_on_stranded(GROUPS, lanes, WalkFrom.SYNC)

    assert note == (
        "group billing: 1 committed offset would have no place on the target (orders-0 at 4,473, "
        "mapped from 10,999); `--from earliest` compares, and maps, all that both clusters still "
        "have"
    )


def test_comparing_all_there_is_is_not_advised_twice() -> None:
    (note,) = notes_on_stranded(GROUPS, [adopted(0, mapped_from=5_000)], WalkFrom.EARLIEST)

    assert "--from earliest" not in note


def test_groups_within_the_map_or_with_an_older_one_are_not_named() -> None:
    lanes = [
        adopted(0, mapped_from=10_999, resumed_position=7),
        adopted(1, mapped_from=10_999),
    ]

    assert list(notes_on_stranded(GROUPS, lanes, WalkFrom.SYNC)) == []
