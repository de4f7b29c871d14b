"""Which groups of a cluster are asked about, and what is done with refusals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from heliograph.broker.group_view import GroupOffset, GroupState, GroupView
from heliograph.broker.groups import GroupAdmin
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.groups.reading import list_groups, read_followed, read_offsets, read_states
from heliograph.model import TopicName, TopicPartition

ORDERS = TopicPartition(topic=TopicName("orders"), partition=0)
OTHER = TopicPartition(topic=TopicName("other"), partition=0)
HIDDEN = NotAuthorised("missing DESCRIBE on group b")
OFFSETS: Mapping[str, Mapping[TopicPartition, GroupOffset] | BrokerError] = {
    "c": {ORDERS: GroupOffset(offset=7), OTHER: GroupOffset(offset=1)},
    "a": {OTHER: GroupOffset(offset=2)},
    "b": HIDDEN,
    "d": {},
    "x": {ORDERS: GroupOffset(offset=9)},
}


class Groups:
    """One cluster's groups; notes whose offsets were asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def list_groups(self) -> Mapping[str, GroupView]:
        return {group: view(group) for group in OFFSETS}

    def describe_each(self, ids: Iterable[str]) -> Mapping[str, GroupView | BrokerError]:
        return {group: HIDDEN if group == "b" else view(group) for group in ids}

    def offsets_each(
        self, ids: Iterable[str]
    ) -> Mapping[str, Mapping[TopicPartition, GroupOffset] | BrokerError]:
        self.asked = list(ids)
        return {group: OFFSETS[group] for group in self.asked}

    @property
    def admin(self) -> GroupAdmin:
        return cast(GroupAdmin, self)


def view(group: str) -> GroupView:
    return GroupView(id=group, state=GroupState.EMPTY)


def follows(group: str) -> bool:
    return group != "x"


def test_offsets_are_asked_only_of_groups_that_are_followed_and_wanted() -> None:
    groups = Groups()

    found = read_followed(groups.admin, follows, lambda group: group != "a")

    assert list(found.listed) == ["a", "b", "c", "d"]
    assert groups.asked == ["b", "c", "d"]
    assert found.offsets.keys() == {"c", "d"}


def test_a_group_that_is_hidden_keeps_no_other_from_being_read() -> None:
    found = read_followed(Groups().admin, follows)

    assert found.hidden == {"b": HIDDEN}
    assert found.offsets == {group: OFFSETS[group] for group in ("a", "c", "d")}


def test_groups_that_stand_on_no_partition_that_counts_are_left_out() -> None:
    found = read_followed(Groups().admin, follows)

    assert found.offsets_on(lambda at: at == ORDERS) == {"c": {ORDERS: GroupOffset(offset=7)}}


def test_groups_are_listed_without_asking_for_offsets() -> None:
    groups = Groups()

    assert list(list_groups(groups.admin, follows)) == ["a", "b", "c", "d"]
    assert groups.asked == []


def test_states_and_offsets_of_named_groups_come_apart_from_refusals() -> None:
    groups = Groups().admin

    assert read_states(groups, ["b", "x"]) == ({"x": view("x")}, {"b": HIDDEN})
    assert read_offsets(groups, ["b", "d"]) == ({"d": {}}, {"b": HIDDEN})
