"""The least permissions of a mirror, and a mirror that does one thing of each."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.topic_changes import PartitionsToGrow, TopicToCreate
from heliograph.clock import now_ms
from heliograph.errors import BrokerError
from heliograph.ledger.entries import LeaseEntry
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.acls import Grant, grant, on
from tests.kit.inside import InsideMirror
from tests.kit.records import (
    numbered,
    produce,
    read_all,
)
from tests.kit.topics import set_topic_config, wait_until

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
FACTORS: Final = ("replication", "checkpoints.topic.replication", "heartbeats.topic.replication")


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
