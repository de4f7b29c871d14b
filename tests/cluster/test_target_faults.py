"""Targets that forget, lose or cut off: no record is jumped over, and what is missing is said."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from heliograph.broker.cluster import Cluster
from heliograph.config.load import load_config
from heliograph.inspect.reset import reset_lanes
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, StallReason, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.clusters import TopicNames
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import NewRec, numbered, open_transaction, produce, read_all
from tests.kit.topics import set_topic_config, wait_until

_LONG_AGO_MS = 1_700_000_000_000
_REQUEST_BYTES_MAX = 700_000
_FAULTY = {
    "socket.request.max.bytes": str(_REQUEST_BYTES_MAX),
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "200",
}


@pytest.fixture(scope="module")
def way(pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Route]:
    folder = tmp_path_factory.mktemp("forgetful")
    spec = ClusterSpec(alias="B", broker_config=_FAULTY, jvm_options=("-XX:TieredStopAtLevel=1",))
    with local_clusters([spec], root=folder / "clusters") as made:
        config = write_config(
            folder / "mm2.properties",
            {"A": pair["A"], "to": made["B"]},
            {"A->to": {"topics": "faulty-.*"}},
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
    """The target forgets the mirror's producer while the lane runs.

    A broker takes any sequence as the first of a producer it does not know. Batches 1 and 2 leave
    together; 1 is too large and refused; 2 would be appended as the first, and the records of 1
    would be missing in the middle of the copy for ever.
    """
    monkeypatch.setattr("heliograph.copy.lane.FORGOTTEN_S_MIN", forgotten_s_min)
    monkeypatch.setattr("heliograph.copy.machine.RETRY_S", 1.0)
    name = lasting_topic(way.source, topic("faulty-refused"))
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


def test_a_target_that_lost_its_log_says_so_and_goes_on_where_it_is_told(
    way: Route, topic: TopicNames, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that was replaced: the topic is the same one, and empty."""
    monkeypatch.setattr("heliograph.copy.resume.BEHIND_S_MAX", 0.5)
    name = lasting_topic(way.source, topic("faulty-lost"))
    produce(way.source, name, numbered(100))
    with closing(InsideMirror(way.config)) as inside:
        inside.catch_up()
        inside.settle()
    way.target.kill_broker(0, signal.SIGTERM)
    shutil.rmtree(way.target.broker(0).folder / "log" / f"{way.renamed(name)}-0")
    way.target.start_broker(0)
    produce(way.source, name, numbered(10, start=100))

    with running_inside(way.config):
        said = way.await_stall(name, StallReason.TARGET_LOST_RECORDS)
        held_back = read_all(way.target, way.renamed(name))[0]
    config = load_config(way.config)
    asyncio.run(reset_lanes(config, way.flow, lambda of: of == name, 40, write=True))

    for more in (70, 80):
        with running_inside(way.config):
            way.await_records(name, more)
        produce(way.source, name, numbered(10, start=40 + more))
    copied = read_all(way.target, way.renamed(name))[0]
    assert "ends at 0, but 100 was acknowledged" in said
    assert held_back == []
    assert [rec.value for rec in copied] == [rec.value for rec in numbered(80, start=40)]
    assert way.lane_records(name)[0].runs.overlap_at is None


def test_a_batch_that_closes_the_connection_stalls_its_lane_and_no_other(
    way: Route, topic: TopicNames
) -> None:
    """A broker says nothing of a request above socket.request.max.bytes."""
    large, sound = (
        lasting_topic(way.source, topic(name)) for name in ("faulty-large", "faulty-sound")
    )
    value = b"." * (_REQUEST_BYTES_MAX + 1000)

    with running_inside(way.config):
        produce(way.source, large, [NewRec(value=value)])
        produce(way.source, sound, numbered(10))
        said = way.await_stall(large, StallReason.REFUSED_BY_TARGET)
        before = way.assert_arrives(sound)
        produce(way.source, sound, numbered(10, start=10))

        assert way.assert_arrives(sound, timeout_s=20) == 20
    assert before == 10
    assert "socket.request.max.bytes" in said


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
