"""What brokers answer about groups, active, empty, dead and absent, in both protocols."""

from __future__ import annotations

import socket

import pytest

from heliograph.broker.group_view import GroupOffset, GroupState, GroupView
from heliograph.broker.groups import CommitOutcome, GroupAdmin
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable, GroupActive
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.groups import (
    PROTOCOLS,
    Protocol,
    commit,
    commit_as_member,
    commit_raw,
    committed,
    member,
)
from tests.kit.topics import create_topic, wait_until

Pair = dict[str, LocalCluster]


def partition(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=number)


def admin_for(cluster: LocalCluster, timeout_s: float = 20.0) -> GroupAdmin:
    servers = tuple(cluster.bootstrap.split(","))
    config = ClusterConfig(alias=ClusterAlias(cluster.alias), bootstrap_servers=servers)
    return GroupAdmin(config, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def groups(pair: Pair) -> GroupAdmin:
    return admin_for(pair["A"])


def test_an_absent_group_is_dead_has_no_offsets_and_is_not_listed(
    groups: GroupAdmin, topic: TopicNames
) -> None:
    name = topic("never-seen")

    described = groups.describe([name])

    assert described == {name: GroupView(id=name, state=GroupState.DEAD)}
    assert groups.offsets([name]) == {name: {}}
    assert name not in groups.list_groups()


def test_a_commit_makes_an_absent_group_empty(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    name, orders = topic("group"), create_topic(pair["A"], topic("orders"), partitions=2)
    wanted = {
        partition(orders, 0): GroupOffset(offset=5, metadata="by hand"),
        partition(orders, 1): GroupOffset(offset=0),
    }

    outcome = groups.commit(name, wanted)

    assert outcome == CommitOutcome(written=frozenset(wanted), problems={})
    assert groups.offsets([name]) == {name: wanted}
    assert groups.describe([name])[name].state is GroupState.EMPTY
    assert groups.list_groups()[name].state is GroupState.EMPTY


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_members_takes_offsets_from_nobody_else(
    pair: Pair, groups: GroupAdmin, topic: TopicNames, protocol: Protocol
) -> None:
    """Both protocols answer UNKNOWN_MEMBER_ID."""
    name, orders = topic("group"), create_topic(pair["A"], topic("orders"))
    at = partition(orders)

    with member(pair["A"], name, orders, protocol) as consumer:
        commit_as_member(consumer, orders, 3, metadata="mine")
        seen = groups.describe([name])[name]
        with pytest.raises(GroupActive, match=f"cluster A: group {name} has members"):
            groups.commit(name, {at: GroupOffset(offset=9)})
        found = groups.offsets([name])[name][at]

    assert (seen.state, seen.type, seen.is_idle) == (GroupState.STABLE, protocol, False)
    assert (found.offset, found.metadata) == (3, "mine")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_whose_members_left_takes_offsets_again(
    pair: Pair, groups: GroupAdmin, topic: TopicNames, protocol: Protocol
) -> None:
    name, orders = topic("group"), create_topic(pair["A"], topic("orders"))
    at = partition(orders)
    with member(pair["A"], name, orders, protocol) as consumer:
        commit_as_member(consumer, orders, 3)

    wait_until(lambda: groups.describe([name])[name].is_idle, f"{name} left")
    groups.commit(name, {at: GroupOffset(offset=9)})

    assert groups.describe([name])[name] == GroupView(
        id=name, state=GroupState.EMPTY, type=protocol
    )
    assert groups.offsets([name]) == {name: {at: GroupOffset(offset=9)}}


def test_a_partition_that_is_not_there_keeps_no_other_from_being_written(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    name, orders = topic("group"), create_topic(pair["A"], topic("orders"))
    here, gone = partition(orders), partition(orders, 7)

    outcome = groups.commit(name, {here: GroupOffset(offset=1), gone: GroupOffset(offset=1)})

    assert outcome.written == {here}
    assert isinstance(outcome.problems[gone], BrokerError)
    assert "Unknown topic or partition" in str(outcome.problems[gone])


def test_an_offset_of_minus_one_is_no_offset(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    name, orders = topic("group"), create_topic(pair["A"], topic("orders"))
    commit(pair["A"], name, orders, {0: 4})

    commit_raw(pair["A"], name, orders, -1)

    assert committed(pair["A"], name, orders) != {0: 4}
    assert groups.offsets([name]) == {name: {}}


def test_many_groups_are_asked_about_and_written_together(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    orders = create_topic(pair["A"], topic("orders"))
    names = [topic("group") for _ in range(70)]
    wanted = {
        name: {partition(orders): GroupOffset(offset=number)} for number, name in enumerate(names)
    }

    outcomes = groups.commit_each(wanted)

    assert all(isinstance(outcome, CommitOutcome) for outcome in outcomes.values())
    assert groups.offsets(names) == wanted
    assert {view.state for view in groups.describe(names).values()} == {GroupState.EMPTY}
    assert groups.list_groups().keys() >= set(names)


def test_a_group_with_members_keeps_no_other_from_being_written(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    orders = create_topic(pair["A"], topic("orders"))
    busy, idle = topic("busy"), topic("idle")
    to = {partition(orders): GroupOffset(offset=1)}

    with member(pair["A"], busy, orders):
        outcomes = groups.commit_each({busy: to, idle: to, "nothing": {}})

    assert isinstance(outcomes[busy], GroupActive)
    assert outcomes[idle] == CommitOutcome(written=frozenset(to), problems={})
    assert outcomes["nothing"] == CommitOutcome(written=frozenset(), problems={})


def test_a_cluster_that_does_not_answer_is_told_within_the_time_given() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        config = ClusterConfig(alias=ClusterAlias("gone"), bootstrap_servers=(f"127.0.0.1:{port}",))
        admin = GroupAdmin(config, timeout_s=0.5)

        with pytest.raises(BrokerUnreachable, match="cluster gone: unreachable"):
            admin.list_groups()
        with pytest.raises(BrokerUnreachable, match="cluster gone"):
            admin.offsets_each(["one", "two"])
