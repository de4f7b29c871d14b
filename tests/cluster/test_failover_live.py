"""Failing over while `heliograph run` carries the flow: a primary killed under load, and planned.

What producers and consumers did is written down by themselves, so that every record can be
accounted for afterwards.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from heliograph.groups.checkpoints_topic import read_checkpoints
from heliograph.ledger.service import LedgerService
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import ClusterFactory, TopicNames
from tests.kit.failing_over import Stage
from tests.kit.records import read_all
from tests.kit.runs import WITHOUT_SPARK, running_mirror
from tests.kit.topics import create_topic, wait_until

PARTITIONS = 4
RECORDS_PER_S = 20_000
READ_BEFORE = 2_000
"""Records of each partition that the group reads on the source."""


class Load:
    """Writes at a steady pace until stopped, and keeps what brokers acknowledged."""

    def __init__(self, cluster: LocalCluster, topic: str, records_per_s: int) -> None:
        self._topic, self._pace = topic, records_per_s
        self._producer = Producer(
            {
                **cluster.librdkafka_config,
                "acks": "all",
                "linger.ms": 5,
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self.sent: defaultdict[int, int] = defaultdict(int)
        self.acknowledged: defaultdict[int, dict[int, bytes]] = defaultdict(dict)
        """Offset and value, by partition."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def stop(self, *, drain: bool) -> None:
        self._stop.set()
        self._thread.join()
        if drain:
            self._producer.flush(30)
        else:
            self._producer.purge()
            self._producer.flush(5)

    def _write(self) -> None:
        began_s, total = time.monotonic(), 0
        while not self._stop.wait(0.005):
            due = int((time.monotonic() - began_s) * self._pace)
            for number in range(total, due):
                partition = number % PARTITIONS
                value = b"%d:%d" % (partition, self.sent[partition])
                try:
                    self._producer.produce(
                        self._topic, value, partition=partition, on_delivery=self._delivered
                    )
                except BufferError:
                    break
                self.sent[partition] += 1
                total += 1
            self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged[message.partition()][message.offset()] = message.value()


@contextmanager
def load_on(
    cluster: LocalCluster, topic: str, records_per_s: int = RECORDS_PER_S
) -> Iterator[Load]:
    load = Load(cluster, topic, records_per_s)
    try:
        yield load
    finally:
        load.stop(drain=False)


def read_and_commit(
    cluster: LocalCluster, group: str, topic: str, count: int = READ_BEFORE
) -> dict[int, list[bytes]]:
    """The first records of every partition, as a member that then commits exactly there."""
    consumer = Consumer(
        {
            **cluster.librdkafka_config,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    found: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
    consumer.subscribe([topic])
    try:

        def is_done() -> bool:
            for message in consumer.consume(1_000, timeout=0.05):
                assert message.error() is None, message.error()
                if len(found[message.partition()]) < count:
                    found[message.partition()].append(message.value())
            return all(len(values) == count for values in found.values())

        wait_until(is_done, f"{group} to read", poll_s=0)
        at = [ClientPartition(topic, number, count) for number in found]
        consumer.commit(offsets=at, asynchronous=False)
    finally:
        consumer.close()
    return found


def test_a_primary_killed_under_load_loses_exactly_what_is_listed_and_no_consumer_anything_else(
    pair: dict[str, LocalCluster], clusters: ClusterFactory, topic: TopicNames, tmp_path: Path
) -> None:
    primary = clusters(ClusterSpec(alias="primary"))["primary"]
    stage = Stage(folder=tmp_path, source=primary, target=pair["B"], topic=topic("killed"))
    create_topic(primary, stage.topic, partitions=PARTITIONS)
    group = f"{stage.topic}-billing"
    with (
        running_mirror(stage.file(), program=WITHOUT_SPARK) as mirror,
        load_on(primary, stage.topic) as load,
    ):
        read = read_and_commit(primary, group, stage.topic)
        await_checkpoint(stage, group, READ_BEFORE)
        # The mirror falls behind before the primary dies, so that there is something to lose.
        for member in mirror.family():
            member.suspend()
        behind = load.count
        wait_until(lambda: load.count > behind + RECORDS_PER_S // 4, "records acknowledged")
        primary.kill_broker(0)
        for member in mirror.family():
            member.resume()
        load.stop(drain=False)

        said = heliograph("failover", stage.file(), "--yes", "--json")

        assert said.code == 0, said.err
        await_let_go(stage)
    report = said.document
    there = {n: [rec.value for rec in recs] for n, recs in read_all(*on_target(stage)).items()}
    went_on = stage.read_on(group)
    assert {n: read[n] + went_on[n] for n in there} == there
    lost = {loss["partition"]: loss for loss in report["losses"]}
    for number, acknowledged in load.acknowledged.items():
        missing = lost[number]["first_missing_offset"]
        arrived = set(there[number])
        never = {offset for offset, value in acknowledged.items() if value not in arrived}
        assert never == {offset for offset in acknowledged if offset >= missing}
        assert lost[number]["records_min"] <= load.sent[number] - missing
        assert lost[number]["first_missing_is_exact"]
    assert sum(len(each) for each in load.acknowledged.values()) > sum(map(len, there.values()))
    # The driver waits for the dead source all the while, and lets go all the same.
    assert report["rto_s"] < 8


def await_checkpoint(stage: Stage, group: str, offset: int) -> None:
    config = stage.config.target_of(stage.flow)

    def told() -> bool:
        found = read_checkpoints(config, stage.checkpoints).checkpoints
        ours = [each.upstream_offset for (of, _), each in found.items() if of == group]
        return ours == [offset] * PARTITIONS

    wait_until(told, f"checkpoints of {group}", poll_s=0.2)


def await_let_go(stage: Stage) -> None:
    """Until no driver holds the flow's lease."""
    with closing(LedgerService(stage.config.clusters)) as ledgers:
        wait_until(lambda: ledgers.view(stage.flow).holder is None, "the lease let go", poll_s=0.2)


def on_target(stage: Stage) -> tuple[LocalCluster, str]:
    return stage.target, stage.mirrored


def test_a_planned_failover_of_a_running_mirror_loses_nothing_and_tells_the_hooks(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    stop_here, bootstrap = tmp_path / "stop", tmp_path / "bootstrap.properties"
    stage = Stage(
        folder=tmp_path,
        source=pair["A"],
        target=pair["B"],
        topic=topic("planned"),
        settings={
            "failover.before.command": f"touch {stop_here}",
            "failover.bootstrap.file": str(bootstrap),
        },
    )
    create_topic(stage.source, stage.topic, partitions=PARTITIONS)
    group = f"{stage.topic}-billing"
    with (
        running_mirror(stage.file(), program=WITHOUT_SPARK) as mirror,
        load_on(pair["A"], stage.topic, 5_000) as load,
    ):
        read = read_and_commit(stage.source, group, stage.topic)
        mirror.await_copying()
        watcher = threading.Thread(target=stop_when, args=(stop_here, load))
        watcher.start()

        said = heliograph("failover", stage.file(), "--planned", "--yes", "--json")

        watcher.join()
        assert said.code == 0, said.err
        await_let_go(stage)
        assert "fenced" in heliograph("status", stage.file()).out
        code = mirror.stop()
    report = said.document
    there = {n: [rec.value for rec in recs] for n, recs in read_all(*on_target(stage)).items()}
    went_on = stage.read_on(group)
    assert code == 3
    assert report["rpo_records_min"] == 0
    assert report["rpo_is_known"]
    assert {n: list(each.values()) for n, each in load.acknowledged.items()} == there
    assert {n: read[n] + went_on[n] for n in there} == there
    assert f"bootstrap.servers={stage.target.bootstrap}" in bootstrap.read_text()


def stop_when(path: Path, load: Load) -> None:
    wait_until(path.exists, "the hook to stop producers")
    load.stop(drain=True)
