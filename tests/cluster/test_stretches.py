"""Stretches of partitions on a real cluster: where they end, and that reading leaves no trace."""

from __future__ import annotations

import pytest

from heliograph.broker.groups import GroupAdmin
from heliograph.broker.range_reader import GroupReader, read_as_group
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerUnreachable
from heliograph.model import ClusterAlias, OffsetRange, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.groups import commit
from tests.kit.mirror import lasting_topic
from tests.kit.records import NewRec, Transaction, numbered, produce, produce_transactions
from tests.kit.topics import delete_records_before

Pair = dict[str, LocalCluster]
PLENTY = 1 << 20


def cluster_of(pair: Pair) -> ClusterConfig:
    return ClusterConfig(alias=ClusterAlias("A"), bootstrap_servers=(pair["A"].bootstrap,))


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=partition)


def test_a_stretch_ends_at_the_end_of_the_log_and_after_its_bytes(
    pair: Pair, topic: TopicNames
) -> None:
    name = lasting_topic(pair["A"], topic("stretch"), partitions=2)
    heavy = [NewRec(value=b"x" * 1_000, partition=0) for _ in range(50)]
    produce(pair["A"], name, [*heavy, NewRec(value=b"y", headers=(("h", None),), partition=1)])
    whole = OffsetRange(start=0, end=1_000)

    with GroupReader(cluster_of(pair), topic("reading"), read_committed=True) as reader:
        found = reader.read({at(name): whole, at(name, 1): whole}, bytes_max=10_500)
        nothing = reader.read({at(name): OffsetRange(start=7, end=7)}, bytes_max=PLENTY)

    assert (len(found[at(name)].records), found[at(name)].next_offset) == (11, 11)
    (only,) = found[at(name, 1)].records
    assert (found[at(name, 1)].next_offset, only.headers) == (1, (("h", None),))
    assert (nothing[at(name)].records, nothing[at(name)].next_offset) == ((), 7)


def test_aborted_records_are_passed_over_and_deleted_ones_are_not_there(
    pair: Pair, topic: TopicNames
) -> None:
    name = lasting_topic(pair["A"], topic("stretch"))
    produce_transactions(
        pair["A"],
        name,
        [Transaction(records=numbered(5)), Transaction(records=numbered(5), commit=False)],
        transactional_id=name,
    )
    delete_records_before(pair["A"], name, {0: 2})

    with GroupReader(cluster_of(pair), topic("reading"), read_committed=True) as reader:
        found = reader.read({at(name): OffsetRange(start=0, end=100)}, bytes_max=PLENTY)

    assert [rec.offset for rec in found[at(name)].records] == [2, 3, 4]
    assert found[at(name)].next_offset == 12


def test_a_group_is_read_from_its_own_place_and_stays_there(pair: Pair, topic: TopicNames) -> None:
    name, group = lasting_topic(pair["A"], topic("stretch"), partitions=2), topic("reading")
    produce(pair["A"], name, numbered(100, partitions=2))
    commit(pair["A"], group, name, {0: 40})

    found = read_as_group(
        cluster_of(pair),
        group,
        {at(name): 45, at(name, 1): 45},
        bytes_max=PLENTY,
        read_committed=True,
    )

    assert list(found) == [at(name)]
    assert [rec.offset for rec in found[at(name)].records] == [40, 41, 42, 43, 44]
    groups = GroupAdmin(cluster_of(pair))
    assert {where: place.offset for where, place in groups.offsets([group])[group].items()} == {
        at(name): 40
    }
    assert groups.delete_each([group, "absent-group"]) == {}
    assert group not in groups.list_groups()


def test_a_cluster_that_does_not_answer_is_given_up_in_time() -> None:
    dead = ClusterConfig(alias=ClusterAlias("A"), bootstrap_servers=("127.0.0.1:1",))

    with (
        GroupReader(dead, "reading", read_committed=True, timeout_s=1.0) as reader,
        pytest.raises(BrokerUnreachable, match="cluster A"),
    ):
        reader.read({at("orders"): OffsetRange(start=0, end=5)}, bytes_max=PLENTY)
