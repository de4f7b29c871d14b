"""What real brokers tell of writers and clocks."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from confluent_kafka import Producer

from heliograph.broker.clients import Clients
from heliograph.config.load import load_config
from heliograph.health.probes import Probes
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import write_config
from tests.kit.topics import create_topic

AB = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


def test_foreign_writers_are_told_by_producer_id_and_transactional_id(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    config = load_config(write_config(tmp_path / "mm2.properties", pair, {"A->B": {}}))
    name = create_topic(pair["B"], topic("foreign"))
    place = TopicPartition(topic=TopicName(name), partition=0)

    with closing(Clients(config)) as clients:
        probes = Probes(config, AB, clients, author="a" * 32)
        write(pair["B"], name, {"enable.idempotence": False, "client.id": "nobody-is-told"})
        nameless = probes.writers([place], own=None)
        write(pair["B"], name, {"transactional.id": f"payments-{name}"})
        write(pair["B"], name, {"enable.idempotence": True})
        told = probes.writers([place], own=None)

    assert nameless == "no producer id is known: one without idempotence has none"
    first, _, second = told.removeprefix("producer ids ").partition(", ")
    id_, _, named = first.partition(" ")
    assert id_.isdecimal()
    assert named == f"(transactional id payments-{name})"[:80]
    assert second.isdecimal()


def test_the_controllers_of_both_clusters_tell_the_time(
    pair: dict[str, LocalCluster], tmp_path: Path
) -> None:
    config = load_config(write_config(tmp_path / "mm2.properties", pair, {"A->B": {}}))

    with closing(Clients(config)) as clients:
        clocks = Probes(config, AB, clients, author="a" * 32).clocks()

    assert clocks.keys() == {"A", "B"}
    # One machine: what is certain of a difference is next to nothing. Unknown would be None.
    assert all(ahead_s is not None and abs(ahead_s) < 1.0 for ahead_s in clocks.values())


def write(cluster: LocalCluster, topic: str, settings: dict[str, str | bool]) -> None:
    producer = Producer({**cluster.librdkafka_config, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    producer.produce(topic, b"value", b"key")
    if "transactional.id" in settings:
        producer.commit_transaction(30)
    assert producer.flush(30) == 0
