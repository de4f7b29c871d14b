"""A target that forgets the mirror's producer while the lane runs: no refused batch is skipped.

A broker takes any sequence as the first of a producer it does not know. Batches 1 and 2 leave
together; 1 is too large and refused; 2 would be appended as the first, and the records of 1 would
be missing in the middle of the copy for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from heliograph.broker.cluster import Cluster
from heliograph.config.load import load_config
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, StallReason, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.clusters import TopicNames
from tests.kit.inside import running_inside
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import NewRec, open_transaction, produce, read_all
from tests.kit.topics import set_topic_config, wait_until

_LONG_AGO_MS = 1_700_000_000_000
_FORGETFUL = {
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "200",
}


@pytest.fixture(scope="module")
def way(pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Route]:
    folder = tmp_path_factory.mktemp("forgetful")
    spec = ClusterSpec(
        alias="B", broker_config=_FORGETFUL, jvm_options=("-XX:TieredStopAtLevel=1",)
    )
    with local_clusters([spec], root=folder / "clusters") as made:
        config = write_config(
            folder / "mm2.properties",
            {"A": pair["A"], "to": made["B"]},
            {"A->to": {"topics": "refused-.*"}},
        )
        yield route(config, ("A", pair["A"]), ("to", made["B"]))


@pytest.mark.parametrize(
    ("timestamp_ms", "forgotten_s_min"),
    [
        pytest.param(None, 0.5, id="the lane was idle"),
        pytest.param(_LONG_AGO_MS, 60.0, id="its records are of long ago"),
    ],
)
def test_a_refused_batch_is_not_skipped_by_the_one_behind_it(
    timestamp_ms: int | None,
    forgotten_s_min: float,
    way: Route,
    topic: TopicNames,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("heliograph.copy.lane.FORGOTTEN_S_MIN", forgotten_s_min)
    monkeypatch.setattr("heliograph.copy.machine.RETRY_S", 1.0)
    name = lasting_topic(way.source, topic("refused"))
    first, large, behind = (
        NewRec(value=b"%d" % size + b"." * size, timestamp_ms=timestamp_ms)
        for size in (10, 20_000, 20)
    )
    produce(way.source, name, [first])

    with running_inside(way.config):
        way.assert_arrives(name)
        _wait_until_forgotten(way, name)
        set_topic_config(way.target, way.renamed(name), {"max.message.bytes": "10000"})
        # Held back by the transaction, both are fetched at once.
        with open_transaction(way.source, name, [large], transactional_id=name):
            produce(way.source, name, [behind])
        way.await_stall(name, StallReason.REFUSED_BY_TARGET)
        held_back = read_all(way.target, way.renamed(name))[0]
        set_topic_config(way.target, way.renamed(name), {"max.message.bytes": None})

        assert way.assert_arrives(name) == 3
        assert [rec.value for rec in held_back] == [first.value]


def _wait_until_forgotten(way: Route, name: str) -> None:
    at = TopicPartition(topic=TopicName(way.renamed(name)), partition=0)
    ledgers = LedgerService(load_config(way.config).clusters)
    try:
        flow = ledgers.view(way.flow).flow
    finally:
        ledgers.close()
    assert flow is not None

    async def last_sequence() -> object:
        cluster = Cluster(ClusterAlias("B"), way.target.bootstrap.split(","), {})
        try:
            await cluster.refresh([at.topic])
            return (await cluster.last_sequences([at], flow.producer_id))[at]
        finally:
            cluster.close()

    wait_until(lambda: asyncio.run(last_sequence()) == -1, f"{at}: the producer is forgotten")
