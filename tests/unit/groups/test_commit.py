"""What happens between the look at a group and its commit, which no broker does on demand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from heliograph.broker.group_view import SHARE_METADATA
from heliograph.broker.groups import CommitOutcome, GroupAdmin, GroupOffset, GroupState, GroupView
from heliograph.errors import BrokerError, GroupActive, NotAuthorised
from heliograph.groups.commit import CommitReport, commit_moves
from heliograph.groups.placement import GroupMove
from heliograph.model import TopicName, TopicPartition

HERE = TopicPartition(topic=TopicName("A.orders"), partition=0)
Offsets = Mapping[TopicPartition, GroupOffset]


@dataclass(slots=True)
class Coordinator:
    """Groups of a cluster where somebody else is at work too."""

    hidden: frozenset[str] = frozenset()
    joined_since: frozenset[str] = frozenset()
    moved_on: Mapping[str, int] = field(default_factory=dict)
    written: dict[str, Offsets] = field(default_factory=dict)

    def describe_each(self, ids: Iterable[str]) -> dict[str, GroupView | BrokerError]:
        return {
            id: NotAuthorised(f"group {id}: DESCRIBE is missing")
            if id in self.hidden
            else GroupView(id=id, state=GroupState.EMPTY)
            for id in ids
        }

    def commit_each(self, wanted: Mapping[str, Offsets]) -> dict[str, CommitOutcome | BrokerError]:
        outcomes: dict[str, CommitOutcome | BrokerError] = {}
        for group, offsets in wanted.items():
            if group in self.joined_since:
                outcomes[group] = GroupActive(f"group {group} has members")
                continue
            self.written[group] = offsets
            outcomes[group] = CommitOutcome(written=frozenset(offsets), problems={})
        return outcomes

    def offsets_each(self, ids: Iterable[str]) -> dict[str, Offsets]:
        return {
            id: {HERE: GroupOffset(offset=self.moved_on[id])}
            if id in self.moved_on
            else self.written[id]
            for id in ids
        }


def moves(count: int, *, committed_offset: int | None = None) -> list[GroupMove]:
    return [
        GroupMove(
            group=f"g{number}",
            source=HERE,
            target=HERE,
            source_offset=5,
            target_offset=7,
            exact_offset=7,
            clamped=None,
            lag_records=0,
            repeated_records=0,
            skipped_records=0,
            committed_offset=committed_offset,
            metadata="m",
        )
        for number in range(count)
    ]


def done(on: Coordinator, wanted: list[GroupMove], *, skip_active: bool = False) -> CommitReport:
    return asyncio.run(commit_moves(cast("GroupAdmin", on), wanted, skip_active=skip_active))


def test_a_group_that_is_joined_after_the_look_is_refused_and_the_others_are_written() -> None:
    on = Coordinator(joined_since=frozenset({"g1"}))

    report = done(on, moves(3))

    assert (report.committed, report.active) == (("g0", "g2"), ("g1",))
    assert not report.is_refused
    assert not report.is_complete
    assert on.written["g0"] == {HERE: GroupOffset(offset=7, metadata="m")}


def test_a_share_group_stays_one_on_partitions_where_it_never_stood() -> None:
    """`--to earliest` gives it an offset there too; committed as an ordinary one it would be
    refused, or make a consumer group of it."""
    (stood,) = moves(1)
    there = TopicPartition(topic=HERE.topic, partition=1)
    wanted = [
        replace(stood, metadata=SHARE_METADATA),
        replace(stood, source=there, target=there, metadata=""),
    ]
    on = Coordinator()

    report = done(on, wanted)

    assert report.committed == ("g0",)
    assert on.written["g0"].keys() == {HERE, there}
    assert all(offset.is_share for offset in on.written["g0"].values())


def test_a_group_that_is_not_shown_keeps_all_from_being_written() -> None:
    on = Coordinator(hidden=frozenset({"g1"}))

    report = done(on, moves(3))
    skipping = done(on, moves(3), skip_active=True)

    assert (report.is_refused, report.committed) == (True, ())
    assert report.problems == {"g1": "group g1: DESCRIBE is missing"}
    assert skipping.committed == ("g0", "g2")
    assert skipping.problems == report.problems


def test_a_group_that_stands_elsewhere_a_moment_later_is_told() -> None:
    report = done(Coordinator(moved_on={"g0": 9}), moves(2))

    assert report.committed == ("g1",)
    assert report.problems["g0"] == (
        "A.orders-0 was committed at 7 and stands at 9 a moment later: "
        "another client commits in this group"
    )


def test_groups_that_stand_there_are_neither_looked_at_nor_written() -> None:
    on = Coordinator(hidden=frozenset({"g0"}))

    report = done(on, moves(1, committed_offset=7))

    assert (report.unchanged, report.is_complete, on.written) == (("g0",), True, {})
