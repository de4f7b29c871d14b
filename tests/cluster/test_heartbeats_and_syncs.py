"""Heartbeats and offset syncs on real brokers: where they are, what they say, what they survive."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from heliograph.broker.clients import Clients
from heliograph.broker.records import ReadRecord, read_records
from heliograph.clock import now_ms
from heliograph.compat.heartbeats import HeartbeatsJob
from heliograph.compat.offset_syncs import OffsetSyncsJob
from heliograph.config.load import load_config
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.ledger.flow_map import Asked, LaneAt, Progress
from heliograph.ledger.translate import Translated
from heliograph.model import TopicName, TopicPartition
from heliograph.topics.naming import HEARTBEATS
from heliograph.wire.mirror_records import (
    Heartbeat,
    OffsetSync,
    decode_heartbeat,
    decode_offset_sync,
)
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from tests.kit.sync_store import SyncStore
from tests.kit.topics import create_topic, delete_topic, set_topic_config, wait_until

_numbers = itertools.count(1)
ORDERS = TopicPartition(topic=TopicName("orders"), partition=3)
PAYMENTS = TopicPartition(topic=TopicName("payments"), partition=0)


@dataclass(kw_only=True)
class Scene:
    """One flow under aliases of its own, so that its topics and heartbeats are its own too."""

    config: MirrorConfig
    clients: Clients
    source: str
    target: str

    @property
    def flow(self) -> FlowConfig:
        return next(pair for pair in self.config.pairs if pair.id.source == self.source)

    def beats(self) -> list[tuple[ReadRecord, Heartbeat]]:
        """Heartbeats of the flow on its target."""
        records = self.records(self.target, HEARTBEATS)
        found = [(record, decode_heartbeat(record.key, record.value)) for record in records]
        return [pair for pair in found if self.source in (pair[1].source, pair[1].target)]

    def syncs(self, alias: str, topic: str) -> list[tuple[int, int]]:
        """Offsets of the syncs of `ORDERS`."""
        found = [decode_offset_sync(r.key, r.value) for r in self.records(alias, topic)]
        return [
            (sync.upstream_offset, sync.downstream_offset)
            for sync in found
            if (sync.topic, sync.partition) == (ORDERS.topic, ORDERS.partition)
        ]

    def records(self, alias: str, topic: str) -> list[ReadRecord]:
        cluster = next(c for name, c in self.config.clusters.items() if name == alias)
        return list(read_records(cluster, TopicName(topic)))

    def settings(self, alias: str, topic: str) -> Mapping[str, str | None]:
        """Partitions and settings of a topic; empty where there is none."""
        cluster = next(c for name, c in self.config.clusters.items() if name == alias)
        admin, name = self.clients.admin(cluster), TopicName(topic)
        described = admin.describe_topics([name]).get(name)
        if described is None:
            return {}
        found = admin.topic_configs([name])[name]
        assert not isinstance(found, NotAuthorised)
        values = {key: setting.value for key, setting in found.items()}
        return {"partitions": str(described.partition_count), **values}


SceneMaker = Callable[..., Scene]


@pytest.fixture
def scene(pair: dict[str, LocalCluster], tmp_path: Path) -> Iterator[SceneMaker]:
    """`scene(settings)`: a flow from A to B of the pair, with these settings."""
    opened: list[Clients] = []

    def make(
        settings: Mapping[str, str] | None = None,
        *,
        enabled: bool = True,
        target: LocalCluster | None = None,
    ) -> Scene:
        number = next(_numbers)
        south, north = f"south{number}", f"north{number}"
        lines = [
            f"clusters = {south}, {north}",
            f"{south}.bootstrap.servers = {pair['A'].bootstrap}",
            f"{north}.bootstrap.servers = {(target or pair['B']).bootstrap}",
            f"{south}->{north}.enabled = {str(enabled).lower()}",
            f"{north}->{south}.enabled = {str(not enabled).lower()}",
            "heartbeats.topic.replication.factor = 1",
            "offset-syncs.topic.replication.factor = 1",
        ]
        for key, value in (settings or {}).items():
            lines.append(f"{key} = {value}".replace("SOURCE", south).replace("TARGET", north))
        path = tmp_path / f"{south}.properties"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        config = load_config(path)
        opened.append(Clients(config))
        return Scene(config=config, clients=opened[-1], source=south, target=north)

    yield make
    for clients in opened:
        clients.close()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster where nobody else writes heartbeats."""
    spec = ClusterSpec(alias="bare", heap_mb=256, jvm_options=("-XX:TieredStopAtLevel=1",))
    with local_clusters([spec], root=tmp_path_factory.mktemp("bare") / "run") as started:
        yield started["bare"]


@dataclass
class Lanes:
    """Stands in for the ledger: says of each lane what the test says."""

    at: dict[TopicPartition, LaneAt] = field(default_factory=dict)

    def come_to(self, last: tuple[int, int] | None, *, position: int) -> None:
        self.at[ORDERS] = LaneAt(
            source=ORDERS,
            target=TopicPartition(topic=TopicName("A.orders"), partition=3),
            position=position,
            last_source_offset=None if last is None else last[0],
            last_target_offset=None if last is None else last[1],
        )

    def moved(self, since: Progress) -> tuple[Mapping[TopicPartition, LaneAt], Progress]:
        return self.at, since

    def translate(
        self, asked: Iterable[Asked]
    ) -> tuple[Mapping[TopicPartition, LaneAt], Mapping[Asked, Translated]]:
        raise NotImplementedError("offset syncs need no translation")


def test_a_heartbeat_is_on_the_target_with_both_aliases_and_its_time(scene: SceneMaker) -> None:
    made = scene()
    loop = HeartbeatsJob(made.flow, made.clients)
    before_ms = now_ms()

    loop.step()
    loop.step()

    beats = made.beats()
    assert [(beat.source, beat.target) for _, beat in beats] == 2 * [(made.source, made.target)]
    for record, beat in beats:
        assert record.partition == 0
        assert record.timestamp_ms == beat.timestamp_ms
        assert before_ms <= beat.timestamp_ms <= now_ms()


def test_a_pair_that_mirrors_nothing_has_heartbeats_too(scene: SceneMaker) -> None:
    made = scene(enabled=False)

    HeartbeatsJob(made.flow, made.clients).step()

    assert not made.flow.enabled
    assert [(beat.source, beat.target) for _, beat in made.beats()] == [(made.source, made.target)]


def test_aliases_of_the_connector_stand_in_heartbeats_and_names(scene: SceneMaker) -> None:
    other = f"elsewhere{next(_numbers)}"
    made = scene({"SOURCE->TARGET.target.cluster.alias": other})

    HeartbeatsJob(made.flow, made.clients).step()
    OffsetSyncsJob(made.flow, made.clients, Lanes()).step()

    assert [beat.target for _, beat in made.beats()] == [other]
    assert made.settings(made.source, f"mm2-offset-syncs.{other}.internal") != {}


def test_a_loop_says_what_it_is_and_how_often_it_wants_to_step(scene: SceneMaker) -> None:
    made = scene({"emit.heartbeats.interval.seconds": "7"})

    heartbeats = HeartbeatsJob(made.flow, made.clients)
    syncs = OffsetSyncsJob(made.flow, made.clients, Lanes())

    assert (heartbeats.what, heartbeats.flow, heartbeats.interval_s) == (
        "heartbeats",
        made.flow.id,
        7,
    )
    assert (syncs.what, syncs.flow, syncs.interval_s) == ("offset syncs", made.flow.id, 1)


def test_the_heartbeats_topic_is_made_compacted_and_made_again_when_it_is_deleted(
    scene: SceneMaker, bare: LocalCluster
) -> None:
    made = scene(target=bare)
    loop = HeartbeatsJob(made.flow, made.clients)

    loop.step()
    first = made.settings(made.target, HEARTBEATS)
    delete_topic(bare, HEARTBEATS)
    wait_until(lambda: _steps(loop.step), "a heartbeat in a topic that was deleted")

    assert (first["partitions"], first["cleanup.policy"]) == ("1", "compact")
    assert len(made.beats()) >= 1
    delete_topic(bare, HEARTBEATS)


def _steps(step: Callable[[], None]) -> bool:
    try:
        step()
    except BrokerError:
        return False
    return True


def test_a_heartbeats_topic_that_is_there_is_taken_as_it_is(
    scene: SceneMaker, bare: LocalCluster
) -> None:
    create_topic(bare, HEARTBEATS, partitions=2, config={"cleanup.policy": "delete"})
    made = scene(target=bare)

    HeartbeatsJob(made.flow, made.clients).step()

    settings = made.settings(made.target, HEARTBEATS)
    assert [record.partition for record, _ in made.beats()] == [0]
    assert (settings["partitions"], settings["cleanup.policy"]) == ("2", "delete")
    delete_topic(bare, HEARTBEATS)


def test_a_topic_that_cannot_be_made_is_named_with_its_replication_factor(
    scene: SceneMaker, bare: LocalCluster
) -> None:
    made = scene({"SOURCE->TARGET.heartbeats.topic.replication.factor": "3"}, target=bare)

    with pytest.raises(BrokerError, match=r"heartbeats\.topic\.replication\.factor = 3") as raised:
        HeartbeatsJob(made.flow, made.clients).step()

    assert f"cluster {made.target}" in str(raised.value)


def test_offset_syncs_are_on_the_source_and_named_for_the_target(scene: SceneMaker) -> None:
    made, lanes = scene(), Lanes()
    lanes.come_to((200, 101), position=50)
    topic = f"mm2-offset-syncs.{made.target}.internal"

    OffsetSyncsJob(made.flow, made.clients, lanes).step()

    (record,) = made.records(made.source, topic)
    settings = made.settings(made.source, topic)
    assert record.key == bytes.fromhex("00066f7264657273 00000003")
    assert record.value == bytes.fromhex("00000000000000c8 0000000000000065")
    assert record.partition == 0
    assert (settings["partitions"], settings["cleanup.policy"]) == ("1", "compact")
    assert made.settings(made.target, f"mm2-offset-syncs.{made.source}.internal") == {}


def test_offset_syncs_on_the_target_are_named_for_the_source(scene: SceneMaker) -> None:
    made, lanes = scene({"offset-syncs.topic.location": "target"}), Lanes()
    lanes.come_to((7, 9), position=8)
    topic = f"mm2-offset-syncs.{made.source}.internal"

    OffsetSyncsJob(made.flow, made.clients, lanes).step()

    assert made.syncs(made.target, topic) == [(7, 9)]
    assert made.settings(made.target, topic)["cleanup.policy"] == "compact"
    assert made.settings(made.source, f"mm2-offset-syncs.{made.target}.internal") == {}


def test_a_lane_without_records_is_not_told_though_the_topic_is_there(scene: SceneMaker) -> None:
    made, lanes = scene(), Lanes()
    lanes.come_to(None, position=0)
    topic = f"mm2-offset-syncs.{made.target}.internal"

    OffsetSyncsJob(made.flow, made.clients, lanes).step()

    assert made.settings(made.source, topic)["partitions"] == "1"
    assert made.records(made.source, topic) == []


def test_little_news_waits_for_the_flush_interval_of_the_worker(
    scene: SceneMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, lanes, clock_s = scene({"TARGET.offset.flush.interval.ms": "1500"}), Lanes(), 100.0
    monkeypatch.setattr("heliograph.compat.offset_syncs.monotonic_s", lambda: clock_s)
    topic = f"mm2-offset-syncs.{made.target}.internal"
    loop = OffsetSyncsJob(made.flow, made.clients, lanes)
    lanes.come_to((0, 0), position=1)
    loop.step()

    lanes.come_to((5, 5), position=6)
    clock_s = 101.4
    loop.step()
    before = made.syncs(made.source, topic)
    clock_s = 101.6
    loop.step()

    assert before == [(0, 0)]
    assert made.syncs(made.source, topic) == [(0, 0), (5, 5)]


def test_what_is_delayed_is_told_when_the_run_ends(scene: SceneMaker) -> None:
    made, lanes = scene(), Lanes()
    topic = f"mm2-offset-syncs.{made.target}.internal"
    loop = OffsetSyncsJob(made.flow, made.clients, lanes)
    lanes.come_to((0, 0), position=1)
    loop.step()
    lanes.come_to((5, 5), position=6)
    loop.step()

    loop.finish()

    assert made.syncs(made.source, topic) == [(0, 0), (5, 5)]


def test_a_restarted_loop_tells_what_it_sees_first(scene: SceneMaker) -> None:
    made, lanes = scene(), Lanes()
    topic = f"mm2-offset-syncs.{made.target}.internal"
    lanes.come_to((41, 40), position=41)
    OffsetSyncsJob(made.flow, made.clients, lanes).step()

    OffsetSyncsJob(made.flow, made.clients, lanes).step()

    assert made.syncs(made.source, topic) == [(41, 40), (41, 40)]


def test_what_the_broker_refused_is_told_later_the_newest_of_it(
    scene: SceneMaker, pair: dict[str, LocalCluster]
) -> None:
    made, lanes = scene({"offset.lag.max": "0"}), Lanes()
    topic = f"mm2-offset-syncs.{made.target}.internal"
    create_topic(pair["A"], topic, config={"cleanup.policy": "compact", "max.message.bytes": "10"})
    loop = OffsetSyncsJob(made.flow, made.clients, lanes)

    lanes.come_to((10, 10), position=11)
    with pytest.raises(BrokerError, match=topic):
        loop.step()
    lanes.come_to((20, 20), position=21)
    with pytest.raises(BrokerError, match=topic):
        loop.step()
    set_topic_config(pair["A"], topic, {"max.message.bytes": None})
    wait_until(lambda: _steps(loop.step), "syncs are taken again")

    assert made.syncs(made.source, topic) == [(20, 20)]


def test_mirror_maker_2_translates_by_our_syncs_and_never_past_the_truth(
    scene: SceneMaker,
) -> None:
    """Three records on the target for every four offsets of the source, as with markers."""
    made, lanes = scene(), Lanes()
    topic = f"mm2-offset-syncs.{made.target}.internal"
    loop = OffsetSyncsJob(made.flow, made.clients, lanes)
    for records in range(300, 6_001, 300):
        lanes.come_to((records * 4 // 3 - 2, records - 1), position=records)
        loop.step()

    store = SyncStore(must_read_to_end=False)
    for record in made.records(made.source, topic):
        store.add(decode_offset_sync(record.key, record.value))
    store.read_to_end()

    assert store.translate(ORDERS, 7_998) == 5_999
    for offset in range(398, 8_100, 7):
        exact = min(offset - offset // 4, 6_000)
        translated = store.translate(ORDERS, offset)
        assert translated is not None
        assert 0 <= translated <= exact


def test_the_producer_of_offset_syncs_has_the_flows_own_settings(scene: SceneMaker) -> None:
    made = scene(
        {
            "SOURCE->TARGET.producer.compression.type": "gzip",
            "SOURCE->TARGET.producer.linger.ms": "1",
            "SOURCE.producer.linger.ms": "2",
            "TARGET.producer.compression.type": "zstd",
        }
    )

    cluster = made.clients.offset_syncs(made.flow.id)

    assert cluster.alias == made.source
    assert cluster.producer == {"compression.type": "gzip", "linger.ms": "2"}


def test_a_sync_says_which_partition_it_is_of(scene: SceneMaker) -> None:
    made, lanes = scene(), Lanes()
    lanes.come_to((1, 1), position=2)
    lanes.at[PAYMENTS] = LaneAt(
        source=PAYMENTS,
        target=PAYMENTS,
        position=5,
        last_source_offset=8,
        last_target_offset=4,
    )

    OffsetSyncsJob(made.flow, made.clients, lanes).step()

    records = made.records(made.source, f"mm2-offset-syncs.{made.target}.internal")
    assert decode_offset_sync(records[1].key, records[1].value) == OffsetSync(
        topic=PAYMENTS.topic, partition=0, upstream_offset=8, downstream_offset=4
    )
