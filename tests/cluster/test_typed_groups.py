"""What brokers of Kafka 4.3 do with streams groups (KIP-1071) and share groups (KIP-932)."""

from __future__ import annotations

import pytest

from heliograph.broker.group_view import GroupOffset, GroupState
from heliograph.broker.groups import CommitOutcome, GroupAdmin
from heliograph.errors import BrokerError, GroupActive
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_groups import admin_for, partition
from tests.kit.clusters import TopicNames
from tests.kit.groups import member
from tests.kit.topics import create_topic
from tests.kit.typed_members import Refused, place_share, share_member, share_start, streams_member

Pair = dict[str, LocalCluster]


@pytest.fixture(scope="module")
def groups(pair: Pair) -> GroupAdmin:
    return admin_for(pair["A"])


def test_a_streams_group_is_listed_and_takes_offsets_while_it_has_no_members(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    name, orders = topic("streams"), create_topic(pair["A"], topic("orders"))
    wanted = {partition(orders): GroupOffset(offset=7, metadata="task")}

    with streams_member(pair["A"], name, orders):
        joined = groups.list_groups()[name]
        described = groups.describe([name])[name]
        with pytest.raises(GroupActive, match=f"cluster A: group {name} has members"):
            groups.commit(name, wanted)
    outcome = groups.commit(name, wanted)

    assert (joined.type, joined.is_idle) == (described.type, described.is_idle)
    assert (joined.type, joined.is_idle) == ("streams", False)
    assert outcome == CommitOutcome(written=frozenset(wanted), problems={})
    assert groups.offsets([name]) == {name: wanted}
    left = groups.describe([name])[name]
    assert (left.type, left.state) == ("streams", GroupState.EMPTY)


def test_a_streams_group_goes_on_at_offsets_that_were_committed_before_it_was_there(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    """On the target a mirror commits first; the application comes with the failover."""
    name, orders = topic("streams"), create_topic(pair["A"], topic("orders"))
    wanted = {partition(orders): GroupOffset(offset=9)}
    groups.commit(name, wanted)

    with streams_member(pair["A"], name, orders):
        seen = groups.describe([name])[name]

    assert (seen.type, seen.is_idle) == ("streams", False)
    assert groups.offsets([name]) == {name: wanted}


def test_start_offsets_make_a_share_group_that_was_not_there(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    name, orders = topic("share"), create_topic(pair["A"], topic("orders"), partitions=2)
    at = partition(orders)

    before = groups.offsets([name])
    place_share(groups, name, orders, {0: 5})
    outcome = groups.commit(name, {at: share_start(3)})

    assert before == {name: {}}
    assert outcome == CommitOutcome(written=frozenset({at}), problems={})
    assert groups.offsets([name]) == {name: {at: share_start(3)}}
    seen = groups.list_groups()[name]
    assert seen == groups.describe([name])[name]
    assert (seen.type, seen.state) == ("share", GroupState.EMPTY)


def test_a_share_group_with_members_keeps_its_start_offsets(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    """Partition 1 has no start offset: no member has fetched from it."""
    name, orders = topic("share"), create_topic(pair["A"], topic("orders"), partitions=2)
    place_share(groups, name, orders, {0: 5})

    with share_member(pair["A"], name, orders):
        seen = groups.describe([name])[name]
        with pytest.raises(GroupActive, match=f"cluster A: group {name} has members"):
            groups.commit(name, {partition(orders): share_start(9)})
        found = groups.offsets([name])[name]

    assert (seen.type, seen.state, seen.is_idle) == ("share", GroupState.STABLE, False)
    assert found == {partition(orders): share_start(5)}


def test_a_partition_that_is_not_there_keeps_no_other_start_offset_back(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    name, orders = topic("share"), create_topic(pair["A"], topic("orders"))
    place_share(groups, name, orders, {0: 5})
    there, absent, unknown = partition(orders), partition(orders, 7), partition(topic("none"))

    outcome = groups.commit(
        name, {there: share_start(1), absent: share_start(1), unknown: share_start(1)}
    )

    assert outcome.written == {there}
    assert outcome.problems.keys() == {absent, unknown}
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(outcome.problems[absent])


def test_a_group_id_has_one_type_and_a_sentence_says_so(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    """Why a share group is never committed as a consumer group: its members could not join."""
    consumers, shared = topic("consumers"), topic("share")
    orders = create_topic(pair["A"], topic("orders"))
    at = partition(orders)
    groups.commit(consumers, {at: GroupOffset(offset=2)})
    place_share(groups, shared, orders, {0: 2})

    with pytest.raises(BrokerError, match=f"group {consumers} is no share group there.*exclude"):
        groups.commit(consumers, {at: share_start(4)})
    with pytest.raises(BrokerError, match=f"group {shared} is a share group there.*exclude"):
        groups.commit(shared, {at: GroupOffset(offset=4)})
    with (
        pytest.raises(Refused, match="not a share group"),
        share_member(pair["A"], consumers, orders),
    ):
        pass

    assert groups.offsets([consumers, shared]) == {
        consumers: {at: GroupOffset(offset=2)},
        shared: {at: share_start(2)},
    }


def test_groups_of_every_type_are_asked_about_in_one_go(
    pair: Pair, groups: GroupAdmin, topic: TopicNames
) -> None:
    orders = create_topic(pair["A"], topic("orders"))
    kept, shared, absent = topic("kept"), topic("share"), topic("absent")
    at = partition(orders)
    place_share(groups, shared, orders, {0: 5})

    outcomes = groups.commit_each({kept: {at: GroupOffset(offset=1)}, shared: {at: share_start(1)}})
    with member(pair["A"], topic("consumer"), orders, "consumer"):
        seen = groups.describe([kept, shared, absent])

    done = CommitOutcome(written=frozenset({at}), problems={})
    assert outcomes == {kept: done, shared: done}
    assert {name: (view.type, view.state) for name, view in seen.items()} == {
        kept: ("classic", GroupState.EMPTY),
        shared: ("share", GroupState.EMPTY),
        absent: ("classic", GroupState.DEAD),
    }
    assert groups.offsets([kept, shared, absent]) == {
        kept: {at: GroupOffset(offset=1)},
        shared: {at: share_start(1)},
        absent: {},
    }
