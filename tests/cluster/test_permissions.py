"""The least a mirror must be allowed, role by role: it works with that, and says what is missing.

The grants below are those of `docs/guides/permissions.md`, for a flow `A->B` with the topic
`orders` and the group `billing`.
"""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.range_reader import TIMEOUT_S_DEFAULT, read_as_group
from heliograph.broker.topic_changes import PartitionsToGrow, TopicToCreate
from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.ledger.entries import LeaseEntry
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.model import TopicPartition as Partition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.acls import Grant, grant, is_granted, on, revoke, without
from tests.kit.guarded import guarded_clusters, role_lines
from tests.kit.inside import InsideMirror
from tests.kit.records import (
    Transaction,
    assert_same_records,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.runs import running_mirror
from tests.kit.topics import create_topic, set_topic_config, topic_config, wait_until

A, B = ClusterAlias("A"), ClusterAlias("B")
FLOW: Final = FlowId(source=A, target=B)
BACK: Final = FlowId(source=B, target=A)
SYNCS, LEDGER = "mm2-offset-syncs.B.internal", "heliograph-ledger.A.internal"
CHECKPOINTS: Final = "A.checkpoints.internal"


SOURCE: Final = [
    *on("consumer", "topic", "orders", "READ"),
    *on("consumer", "topic", "heartbeats", "READ"),
    *on("admin", "topic", "orders", "DESCRIBE", "DESCRIBE_CONFIGS"),
    *on("admin", "topic", "heartbeats", "DESCRIBE", "DESCRIBE_CONFIGS", "CREATE"),
    *on("admin", "topic", SYNCS, "DESCRIBE", "CREATE"),
    *on("admin", "group", "billing", "DESCRIBE"),
    Grant(user="admin", kind="cluster", operation="DESCRIBE"),
    *on("producer", "topic", "heartbeats", "WRITE"),
    *on("producer", "topic", SYNCS, "WRITE"),
]
TARGET: Final = [
    *on("producer", "topic", "A.orders", "READ", "WRITE"),
    *on("producer", "topic", "A.heartbeats", "READ", "WRITE"),
    *on("producer", "topic", LEDGER, "READ", "WRITE"),
    *on("producer", "topic", CHECKPOINTS, "WRITE"),
    *on("producer", "topic", "heartbeats", "WRITE"),
    *on("consumer", "topic", CHECKPOINTS, "READ"),
    *on("admin", "topic", "A.", "CREATE", "ALTER", "ALTER_CONFIGS", "READ", prefixed=True),
    *on("admin", "topic", LEDGER, "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS"),
    *on("admin", "topic", "heartbeats", "CREATE", "DESCRIBE"),
    *on("admin", "group", "billing", "READ"),
    Grant(user="admin", kind="cluster", operation="ALTER"),
]
INTERVALS: Final = (
    "refresh.topics.interval.seconds",
    "refresh.groups.interval.seconds",
    "sync.topic.configs.interval.seconds",
    "sync.topic.acls.interval.seconds",
    "sync.group.offsets.interval.seconds",
    "emit.checkpoints.interval.seconds",
    "emit.heartbeats.interval.seconds",
)
GUIDE_ROW: Final = re.compile(
    r"^\| (\w+) \| ([A-Z_]+) \| (topics?|group|cluster)(?: `([^`]+)`)? \|", re.MULTILINE
)
FACTORS: Final = ("replication", "checkpoints.topic.replication", "heartbeats.topic.replication")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalCluster]]:
    """A and B, where each role of each is a user that may do what is listed and no more."""
    with guarded_clusters(tmp_path_factory.mktemp("guarded"), "reader") as clusters:
        grant(clusters["A"], [*SOURCE, *on("reader", "topic", "orders", "READ")])
        grant(clusters["B"], TARGET)
        create_topic(clusters["A"], "orders", config={"retention.ms": "-1"})
        produce(clusters["A"], "orders", numbered(200))
        commit(clusters["A"], "billing", "orders", 150)
        yield clusters


@pytest.fixture(scope="module")
def config(guarded: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [
        "clusters = A, B",
        "A->B.enabled = true",
        "A->B.topics = orders",
        "A->B.groups = billing",
        "A->B.sync.group.offsets.enabled = true",
        "offset.lag.max = 0",
        "master = local[1]",
        "slots = 1",
        "offset-syncs.topic.replication.factor = 1",
        *(f"{name}.factor = 1" for name in FACTORS),
        *(f"{name} = 1" for name in INTERVALS),
    ]
    lines += role_lines(guarded)
    path = tmp_path_factory.mktemp("permissions") / "mm2.properties"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def commit(cluster: LocalCluster, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({**cluster.librdkafka_config, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(cluster: LocalCluster, group: str, topic: str) -> int:
    consumer = Consumer({**cluster.librdkafka_config, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
    consumer.close()
    offset: int = found.offset
    return offset


def test_a_run_with_the_least_permissions_does_everything(
    guarded: dict[str, LocalCluster], config: Path
) -> None:
    source, target = guarded["A"], guarded["B"]
    with running_mirror(config) as mirror:
        set_topic_config(source, "orders", {"retention.bytes": "12345678"})

        wait_until(lambda: arrived(target, "A.orders") == 200, "records on B", timeout_s=120)
        assert_same_records(source, target, "orders", "A.orders")
        for cluster, topic in (
            (target, "heartbeats"),
            (target, "A.heartbeats"),
            (target, CHECKPOINTS),
            (source, SYNCS),
        ):
            wait_until(
                lambda cluster=cluster, topic=topic: arrived(cluster, topic) > 0,  # type: ignore[misc]
                f"records in {topic} on {cluster.alias}",
                timeout_s=60,
            )
        wait_until(
            lambda: committed(target, "billing", "A.orders") == 150, "billing on B", timeout_s=60
        )
        wait_until(
            lambda: topic_config(target, "A.orders")["retention.bytes"] == "12345678",
            "the setting on B",
            timeout_s=60,
        )
        (reader,) = on("reader", "topic", "A.orders", "READ")
        wait_until(lambda: is_granted(target, reader), "the reader's ACL on B", timeout_s=60)

    assert mirror.complaints == []


def arrived(cluster: LocalCluster, topic: str) -> int:
    return sum(map(len, read_all(cluster, topic).values()))


class Inside(InsideMirror):
    """The whole mirror in this process, step by step."""

    def __init__(self, config: Path, clusters: dict[str, LocalCluster]) -> None:
        super().__init__(config)
        self.clusters = clusters

    def stall(self) -> None:
        """Raises what stalls a lane, which must come."""
        self.reconcile()
        wait_until(lambda: bool(self.stalls), "a stalled lane", timeout_s=60)
        raise BrokerError(self.stalls[0])

    def stall_writing(self) -> None:
        produce(self.clusters["A"], "orders", numbered(5))
        self.stall()

    def beat(self) -> None:
        self.step("heartbeats", FLOW)

    def beat_back(self) -> None:
        self.step("heartbeats", BACK)

    def sync_offsets(self) -> None:
        self.catch_up()
        self.step("offset syncs", FLOW)

    def checkpoint(self) -> None:
        self._move_on()
        self.step("checkpoints", FLOW)

    def plan_group_offsets(self) -> None:
        self._move_on()
        self.step("group offsets", FLOW)

    def follow_configs(self) -> None:
        bytes_max = str(1_000_000 + next(_numbers))
        set_topic_config(self.clusters["A"], "orders", {"max.message.bytes": bytes_max})
        self.step("topic configs", FLOW)

    def follow_acls(self) -> None:
        user = f"reader-{next(_numbers)}"
        grant(self.clusters["A"], on(user, "topic", "orders", "READ"))
        self.step("acls", FLOW)

    def claim(self) -> None:
        later_ms = now_ms() + 60_000 + next(_numbers)
        entry = LeaseEntry(
            author=self.ledgers.author, host="here", pid=1, at_ms=later_ms, lease_ms=0, slot_count=1
        )
        holder = self.ledgers.ask(FLOW, lambda view: view.holder)
        self.ledgers.claim(FLOW, entry, over=holder)

    def create(self, alias: ClusterAlias, name: str) -> None:
        wanted = TopicToCreate(
            source=TopicName(name),
            name=TopicName(name),
            partitions=1,
            replication_factor=1,
            configs={},
        )
        self._require(self._admin(alias).create_topics([wanted])[wanted.name])

    def grow(self) -> None:
        wanted = PartitionsToGrow(name=TopicName("A.orders"), partitions_before=1, partitions=2)
        self._require(self._admin(B).grow_partitions([wanted])[wanted.name])

    def delete(self) -> None:
        name = TopicName("A.orders")
        self._require(self._admin(B).delete_topics([name])[name])

    def _admin(self, alias: ClusterAlias) -> ClusterAdmin:
        return self.clients.admin(self.config.clusters[alias])

    def _require(self, outcome: object) -> None:
        if isinstance(outcome, BrokerError):
            raise outcome

    def _move_on(self) -> None:
        """The group goes on at the source, so that there is news of it."""
        self.catch_up()
        commit(self.clusters["A"], "billing", "orders", 150 + next(_numbers) % 50)


_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def mirrored(config: Path, guarded: dict[str, LocalCluster]) -> Path:
    """Everything is there and was done once, with all permissions."""
    with closing(Inside(config, guarded)) as inside:
        inside.beat()
        inside.beat_back()
        inside.sync_offsets()
        inside.checkpoint()
        inside.plan_group_offsets()
        inside.follow_configs()
        inside.follow_acls()
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One permission taken away, and what then must tell so."""

    alias: ClusterAlias
    missing: Grant
    act: Callable[[Inside], None]
    left: Grant | None = None
    """What `missing` implied and another ACL may still allow."""

    @property
    def sentence(self) -> re.Pattern[str]:
        of = self.missing
        where = "the cluster" if of.kind == "cluster" else f"{of.kind} {self._resource}"
        return re.compile(
            rf"cluster {self.alias}\b.* missing permission .*{of.operation}\b.* on {where}\b"
        )

    @property
    def _resource(self) -> str:
        return r"A\.\w+" if self.missing.prefixed else re.escape(self.missing.name)

    def __str__(self) -> str:
        return f"{self.alias} {self.missing}"


def creating(alias: ClusterAlias, name: str) -> Callable[[Inside], None]:
    return lambda inside: inside.create(alias, name)


def topic_grant(user: str, name: str, operation: str) -> Grant:
    return Grant(user=user, kind="topic", name=name, operation=operation)


def prefix_grant(operation: str) -> Grant:
    return Grant(user="admin", kind="topic", name="A.", operation=operation, prefixed=True)


def group_grant(operation: str) -> Grant:
    return Grant(user="admin", kind="group", name="billing", operation=operation)


def cluster_grant(operation: str) -> Grant:
    return Grant(user="admin", kind="cluster", operation=operation)


def case(
    alias: ClusterAlias,
    missing: Grant,
    act: Callable[[Inside], None],
    left: Grant | None = None,
) -> Case:
    return Case(alias=alias, missing=missing, act=act, left=left)


CASES: Final = [
    case(A, topic_grant("consumer", "orders", "READ"), Inside.stall),
    case(A, topic_grant("consumer", "heartbeats", "READ"), Inside.stall),
    case(A, topic_grant("admin", "orders", "DESCRIBE"), Inside.reconcile),
    case(A, topic_grant("admin", "orders", "DESCRIBE_CONFIGS"), Inside.follow_configs),
    case(A, topic_grant("admin", "heartbeats", "DESCRIBE"), Inside.beat_back),
    case(A, topic_grant("admin", "heartbeats", "DESCRIBE_CONFIGS"), Inside.follow_configs),
    case(A, topic_grant("admin", "heartbeats", "CREATE"), creating(A, "heartbeats")),
    case(A, topic_grant("admin", SYNCS, "DESCRIBE"), Inside.sync_offsets),
    case(A, topic_grant("admin", SYNCS, "CREATE"), creating(A, SYNCS)),
    case(A, group_grant("DESCRIBE"), Inside.checkpoint),
    case(A, cluster_grant("DESCRIBE"), Inside.follow_acls),
    case(A, topic_grant("producer", "heartbeats", "WRITE"), Inside.beat_back),
    case(A, topic_grant("producer", SYNCS, "WRITE"), Inside.sync_offsets),
    case(B, topic_grant("producer", "A.orders", "READ"), Inside.stall),
    case(B, topic_grant("producer", "A.orders", "WRITE"), Inside.stall_writing),
    case(B, topic_grant("producer", "A.heartbeats", "READ"), Inside.stall),
    case(B, topic_grant("producer", LEDGER, "READ"), Inside.claim),
    case(B, topic_grant("producer", LEDGER, "WRITE"), Inside.claim),
    case(B, topic_grant("producer", CHECKPOINTS, "WRITE"), Inside.checkpoint),
    case(B, topic_grant("producer", "heartbeats", "WRITE"), Inside.beat),
    case(B, topic_grant("consumer", CHECKPOINTS, "READ"), Inside.checkpoint),
    case(B, prefix_grant("CREATE"), creating(B, "A.new")),
    case(B, prefix_grant("ALTER"), Inside.grow),
    case(B, prefix_grant("ALTER_CONFIGS"), Inside.follow_configs, prefix_grant("DESCRIBE_CONFIGS")),
    case(B, prefix_grant("READ"), Inside.plan_group_offsets),
    case(B, topic_grant("admin", LEDGER, "CREATE"), creating(B, LEDGER)),
    case(B, topic_grant("admin", LEDGER, "DESCRIBE"), Inside.reconcile),
    case(B, topic_grant("admin", LEDGER, "DESCRIBE_CONFIGS"), Inside.reconcile),
    case(B, topic_grant("admin", "heartbeats", "CREATE"), creating(B, "heartbeats")),
    case(B, topic_grant("admin", "heartbeats", "DESCRIBE"), Inside.beat),
    case(B, group_grant("READ"), Inside.plan_group_offsets, group_grant("DESCRIBE")),
    case(B, cluster_grant("ALTER"), Inside.follow_acls, cluster_grant("DESCRIBE")),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_missing_permission_is_named_with_its_cluster_and_resource(
    case: Case,
    mirrored: Path,
    guarded: dict[str, LocalCluster],
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = guarded[case.alias]
    with ExitStack() as stack:
        inside = stack.enter_context(closing(Inside(mirrored, guarded)))
        if case.left is not None:
            grant(cluster, [case.left])
            stack.callback(revoke, cluster, [case.left])
        stack.enter_context(without(cluster, case.missing))
        caplog.set_level(logging.INFO)

        told = said(case.act, inside) + caplog.text

        assert any(case.sentence.search(line) for line in told.splitlines()), told


def test_a_ledger_that_may_not_be_written_stalls_a_lane_with_gaps_until_it_may(
    mirrored: Path, guarded: dict[str, LocalCluster]
) -> None:
    """Such a lane said that it was copying, for ever."""
    source, target = guarded["A"], guarded["B"]
    gaps = [Transaction(records=numbered(3), commit=number % 2 == 0) for number in range(4)]
    (writing,) = on("producer", "topic", LEDGER, "WRITE")
    with closing(Inside(mirrored, guarded)) as inside:
        inside.catch_up()

        with without(target, writing):
            produce_transactions(source, "orders", gaps, transactional_id="gaps")
            wait_until(lambda: bool(inside.stalls), "a stalled lane", timeout_s=60)
            stalls = inside.stalls
        inside.catch_up()

    assert any(
        f"the ledger cannot be written: cluster B: {LEDGER}-0: missing permission WRITE on topic"
        in stall
        for stall in stalls
    ), stalls
    assert_same_records(source, target, "orders", "A.orders")


def test_a_group_asked_for_by_name_is_missed_though_no_list_shows_it(
    mirrored: Path, guarded: dict[str, LocalCluster]
) -> None:
    hidden = without(guarded["A"], group_grant("DESCRIBE"), cluster_grant("DESCRIBE"))
    with closing(Inside(mirrored, guarded)) as inside, hidden:
        told = said(Inside.checkpoint, inside)

    assert "cluster A: missing permission DESCRIBE on group billing" in told


def test_a_shadow_group_that_may_not_be_read_is_named_before_any_timeout(
    mirrored: Path, guarded: dict[str, LocalCluster]
) -> None:
    """Brokers refuse to say who coordinates it, and a client asks them again and again."""
    place = Partition(topic=TopicName("A.orders"), partition=0)
    began_s = time.monotonic()

    with pytest.raises(NotAuthorised) as told:
        read_as_group(
            load_config(mirrored).target_of(FLOW),
            "heliograph-drill.billing",
            {place: 1},
            bytes_max=1_000,
            read_committed=True,
        )

    assert str(told.value) == (
        "cluster B: missing permission READ on group heliograph-drill.billing"
    )
    assert time.monotonic() - began_s < TIMEOUT_S_DEFAULT / 2


def said(act: Callable[[Inside], None], inside: Inside) -> str:
    try:
        act(inside)
    except BrokerError as exc:
        return f"{exc}\n"
    return ""


def test_every_permission_of_the_list_has_been_taken_away_once() -> None:
    tried = {(case.alias, case.missing) for case in CASES}
    # Heartbeats of the source are written like any other topic, which `A.orders` stands for.
    alike = {(B, topic_grant("producer", "A.heartbeats", "WRITE"))}

    listed = {(A, each) for each in SOURCE} | {(B, each) for each in TARGET}

    assert listed - tried - alike == set()


@pytest.mark.parametrize(("side", "grants"), [("source", SOURCE), ("target", TARGET)])
def test_the_guide_lists_exactly_these_permissions(side: str, grants: list[Grant]) -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/permissions.md").read_text(encoding="utf-8")
    section = guide.partition(f"\n## On the {side}\n")[2].partition("\n## ")[0]

    rows = GUIDE_ROW.findall(section)
    listed = {
        Grant(
            user=user,
            operation=operation,
            kind="topic" if kind == "topics" else kind,
            name=name.removesuffix("*") or "kafka-cluster",
            prefixed=kind == "topics",
        )
        for user, operation, kind, name in rows
    }

    assert len(rows) == len(grants)
    assert listed == set(grants)


def test_deleting_topics_is_not_among_the_least(
    mirrored: Path, guarded: dict[str, LocalCluster]
) -> None:
    with closing(Inside(mirrored, guarded)) as inside:
        told = said(Inside.delete, inside)

    assert told == "cluster B: missing permission DELETE on topic A.orders\n"
