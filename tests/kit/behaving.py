"""Four variants of a flow, for what MirrorMaker 2's own integration tests ask."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, TopicPartition

from heliograph.compat.mirror_client import MirrorClient
from heliograph.config.load import load_config
from heliograph.model import ClusterAlias
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.records import (
    Transaction,
    end_offsets,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.runs import MirrorRun
from tests.kit.topics import (
    admin_of,
    wait_until,
)

PARTITIONS: Final = 4
RECORDS: Final = 100
SECONDS: Final = 90.0
EXCLUDED, INCLUDED = "delete.retention.ms", "retention.bytes"
TOP: Final = {
    "emit.heartbeats.enabled": "false",
    "heartbeats.topic.replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "emit.checkpoints.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "sync.topic.configs.interval.seconds": "1",
    "config.properties.exclude": r"delete\\.retention\\..*",
    "offset.lag.max": "10",
    # Six flows and their jobs in one process: on a machine full of other work it is late at times.
    "driver.lease.ms": "30000",
}
_HEARTBEATS: Final = {"emit.heartbeats.enabled": "true"}
_NO_HEARTBEATS: Final = {"heartbeats.replication.enabled": "false"}
_SYNCS: Final = {"offset-syncs.topic.replication.factor": "1"}
IDENTITY: Final = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One variant: two clusters, the names their topics get, and the mirror between them."""

    name: str
    primary: LocalCluster
    backup: LocalCluster
    primary_alias: str
    backup_alias: str
    identity: bool
    transactional: bool
    config: Path
    run: MirrorRun

    def topic(self, name: str) -> str:
        return f"{self.name}-{name}"

    def remote(self, topic: str) -> str:
        return topic if self.identity else f"{self.primary_alias}.{topic}"

    def group(self, name: str) -> str:
        return f"{self.name}-{name}"

    def write(self, topic: str, count: int = RECORDS, *, start: int = 0) -> None:
        records = numbered(count, partitions=PARTITIONS, start=start)
        if not self.transactional:
            produce(self.primary, topic, records)
            return
        tenths = [records[at : at + count // 10] for at in range(0, count, count // 10)]
        # The aborted ones and all markers take offsets that have no record on the target.
        transactions = [
            Transaction(records=some, commit=commit) for some in tenths for commit in (False, True)
        ]
        produce_transactions(self.primary, topic, transactions, transactional_id=f"{topic}-{start}")

    def await_mirrored(self, topic: str) -> None:
        wanted = sum(map(len, read_all(self.primary, topic, read_committed=True).values()))

        def arrived() -> bool:
            found = admin_of(self.backup).list_topics(timeout=10).topics
            return self.remote(topic) in found and wanted == sum(
                map(len, read_all(self.backup, self.remote(topic), read_committed=True).values())
            )

        wait_until(arrived, f"{wanted} records of {topic}", timeout_s=SECONDS, poll_s=0.2)

    def checkpoints(self, group: str) -> dict[tuple[str, int], int]:
        """What MirrorClient says on the backup: the group's place in each remote partition."""
        with MirrorClient.of(load_config(self.config), ClusterAlias(self.backup_alias)) as client:
            found = client.remote_consumer_offsets(group, ClusterAlias(self.primary_alias), 10.0)
        return {(at.topic, at.partition): place.offset for at, place in found.items()}


def flows() -> dict[str, dict[str, str]]:
    return {
        "primary->backup": {"topics": "plain-.*", "groups": "plain-.*", **_HEARTBEATS, **_SYNCS},
        "backup->primary": {"topics": "back-.*", "groups": "plain-.*", **_HEARTBEATS, **_SYNCS},
        "sprimary->sbackup": {
            "topics": "tls-.*",
            "groups": "tls-.*",
            "use.defaults.from": "source",
            **_HEARTBEATS,
            **_SYNCS,
        },
        "sbackup->sprimary": {"topics": "back-.*", "groups": "tls-.*", **_HEARTBEATS, **_SYNCS},
        "tprimary->tbackup": {
            "topics": "txn-.*",
            "groups": "txn-.*",
            "offset-syncs.topic.location": "target",
            "on.topic.deleted": "delete",
            **_NO_HEARTBEATS,
            **_SYNCS,
        },
        "iprimary->ibackup": {
            "topics": "identity-.*",
            "groups": "identity-.*",
            "replication.policy.class": IDENTITY,
            "emit.offset-syncs.enabled": "false",
            **_NO_HEARTBEATS,
        },
    }


def on_each_variant(play: Callable[[Stage], None]) -> Callable[[Mapping[str, Stage]], None]:
    """A test of all variants at once: what takes seconds is waiting for the mirror's next look."""

    def test(stages: Mapping[str, Stage]) -> None:
        with ThreadPoolExecutor(len(stages)) as pool:
            playing = {name: pool.submit(play, stage) for name, stage in stages.items()}
        for name, played in playing.items():
            if (problem := played.exception()) is not None:
                problem.add_note(f"variant {name}")
                raise problem

    test.__name__, test.__doc__ = play.__name__, play.__doc__
    return test


def first_offset(stage: Stage, topic: str) -> int:
    return read_all(stage.primary, topic, read_committed=True)[0][0].offset


def commit(cluster: LocalCluster, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    admin = admin_of(cluster)

    def committed() -> bool:
        (answer,) = admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)]
        ).values()
        return all(place.error is None for place in answer.result(30).topic_partitions)

    # A coordinator that is just being made refuses partition by partition.
    wait_until(committed, f"offsets of {group}", timeout_s=SECONDS)


def committed(cluster: LocalCluster, group: str, topic: str) -> dict[int, int]:
    admin = admin_of(cluster)
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {
        at.partition: at.offset
        for at in answer.result(30).topic_partitions
        if at.topic == topic and at.offset >= 0
    }


def consume_all(cluster: LocalCluster, group: str, topic: str) -> None:
    """Join the group, read every partition to its end, commit, leave."""
    consumer = Consumer(
        {
            **cluster.librdkafka_config,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    left = dict(end_offsets(cluster, topic))
    wanted = [TopicPartition(topic, number, end) for number, end in left.items()]
    try:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + SECONDS
        while left:
            assert time.monotonic() < deadline_s, f"{topic}: partitions {list(left)} are not read"
            message = consumer.poll(0.2)
            if message is not None and message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                left.pop(message.partition(), None)
        consumer.commit(offsets=wanted, asynchronous=False)
    finally:
        consumer.close()
