"""A failback moves a group whole or not at all, and never one that is in use."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.broker.groups import GroupAdmin
from heliograph.config.schema import ClusterConfig
from heliograph.failback.groups import GroupsBack, move_groups_back
from heliograph.ledger.translate import Exact, Translated
from heliograph.model import ClusterAlias, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.groups import commit, committed, member
from tests.kit.topics import create_topic

Pair = dict[str, LocalCluster]


def admin_for(cluster: LocalCluster) -> GroupAdmin:
    servers = tuple(cluster.bootstrap.split(","))
    return GroupAdmin(
        ClusterConfig(alias=ClusterAlias(cluster.alias), bootstrap_servers=servers), timeout_s=20.0
    )


def moved_back(pair: Pair, group: str) -> GroupsBack:
    """From A, the present primary, to B, the old one; both have the same offsets."""

    def same(at: TopicPartition, offset: int) -> tuple[TopicPartition, Translated]:
        return at, Exact(offset=offset)

    return move_groups_back(admin_for(pair["A"]), admin_for(pair["B"]), {group}.__contains__, same)


def test_a_group_that_the_old_primary_takes_only_in_part_is_put_back(
    pair: Pair, topic: TopicNames
) -> None:
    group, orders = topic("group"), create_topic(pair["A"], topic("orders"), partitions=2)
    create_topic(pair["B"], orders, partitions=1)
    commit(pair["A"], group, orders, {0: 9, 1: 4})
    commit(pair["B"], group, orders, {0: 3})

    back = moved_back(pair, group)

    assert (back.moved, list(back.problems)) == ((), [group])
    assert back.problems[group].endswith("put back")
    assert committed(pair["B"], group, orders) == {0: 3}


def test_a_group_that_is_joined_after_the_look_is_active_and_stays(
    pair: Pair, topic: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, orders = topic("group"), create_topic(pair["A"], topic("orders"))
    create_topic(pair["B"], orders)
    commit(pair["A"], group, orders, {0: 9})
    commit(pair["B"], group, orders, {0: 3})
    commit_each = GroupAdmin.commit_each

    def join_first(self: GroupAdmin, wanted: Any) -> Any:
        with member(pair["B"], group, orders, "classic"):
            return commit_each(self, wanted)

    monkeypatch.setattr(GroupAdmin, "commit_each", join_first)
    back = moved_back(pair, group)

    assert (back.moved, back.active, back.problems) == ((), (group,), {})
    assert committed(pair["B"], group, orders) == {0: 3}


def test_a_group_that_commits_elsewhere_right_after_is_told(
    pair: Pair, topic: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, orders = topic("group"), create_topic(pair["A"], topic("orders"))
    create_topic(pair["B"], orders)
    commit(pair["A"], group, orders, {0: 9})
    commit_each = GroupAdmin.commit_each

    def rewind_after(self: GroupAdmin, wanted: Any) -> Any:
        outcomes = commit_each(self, wanted)
        commit(pair["B"], group, orders, {0: 1})
        return outcomes

    monkeypatch.setattr(GroupAdmin, "commit_each", rewind_after)
    back = moved_back(pair, group)

    assert (back.moved, list(back.problems)) == ((), [group])
    assert "committed at 9 and stands at 1 a moment later" in back.problems[group]
