"""The oldest Kafka and the newest, each as the other's source and target; other releases by name.

`make versions` names each release in turn in `HELIOGRAPH_KAFKA` and keeps what was found.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from heliograph import probe
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.doctor.asking import read_facts
from heliograph.doctor.finding import Severity
from heliograph.doctor.versions import version_findings
from heliograph.driver.old_brokers import say_what_is_lacking
from heliograph.model import ClusterAlias, FlowId
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from heliograph_tools.localkafka.versions import KAFKA_VERSION, OLDEST_RELEASE, PATCHES
from tests.crash.scene import open_scene
from tests.kit.clusters import FAST_START, TopicNames
from tests.kit.failing_over import Stage
from tests.kit.inside import running_inside
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import (
    CODECS,
    Transaction,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.topics import create_topic

RELEASE: Final = os.environ.get("HELIOGRAPH_KAFKA", OLDEST_RELEASE)
AS_SOURCE: Final = "as source"
AS_TARGET: Final = "as target"
PLACES: Final = {"early": 100, "done": 300}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalCluster]]:
    """`old` is of `RELEASE`, `new` of the newest."""
    specs = [
        ClusterSpec(alias=alias, kafka=version, jvm_options=FAST_START)
        for alias, version in (("old", PATCHES[RELEASE]), ("new", KAFKA_VERSION))
    ]
    with local_clusters(specs, root=tmp_path_factory.mktemp("versions") / "run") as started:
        yield started


@pytest.fixture(params=[AS_SOURCE, AS_TARGET])
def ends(
    request: pytest.FixtureRequest, brokers: dict[str, LocalCluster]
) -> dict[str, LocalCluster]:
    """A is mirrored to B."""
    old, new = brokers["old"], brokers["new"]
    return {"A": old, "B": new} if request.param == AS_SOURCE else {"A": new, "B": old}


def test_records_arrive_equal_and_the_map_is_exact(
    ends: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    source, target = topic("east"), topic("west")
    plain, halved = topic("codecs"), topic("halved")
    config = write_config(
        tmp_path / "mm2.properties",
        {source: ends["A"], target: ends["B"]},
        {f"{source}->{target}": {"topics": f"{plain}, {halved}"}},
    )
    lasting_topic(ends["A"], plain, partitions=2)
    lasting_topic(ends["A"], halved)
    for codec in CODECS:
        produce(ends["A"], plain, numbered(400, partitions=2), codec=codec)
    half = [Transaction(records=numbered(20), commit=number % 2 == 0) for number in range(6)]
    produce_transactions(ends["A"], halved, half, transactional_id=halved)

    with running_inside(config):
        made = route(config, (source, ends["A"]), (target, ends["B"]))
        counts = made.assert_arrives(plain), made.assert_arrives(halved)

    assert counts == (400 * len(CODECS), 60)
    made.assert_exact_map(plain)
    made.assert_exact_map(halved)


def test_groups_go_on_at_the_exact_record_after_a_failover(
    ends: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    stage = Stage(folder=tmp_path, source=ends["A"], target=ends["B"], topic=topic("leave"))
    create_topic(stage.source, stage.topic, partitions=2, config={"retention.ms": "-1"})
    produce(stage.source, stage.topic, numbered(600, partitions=2))
    stage.plan_group_offsets(
        {f"{stage.topic}-{name}": {0: at, 1: at} for name, at in PLACES.items()}
    )
    stage.mirror()

    report = stage.fail_over()

    records = read_all(stage.source, stage.topic)
    for name, offset in PLACES.items():
        wanted = {number: [rec.value for rec in recs[offset:]] for number, recs in records.items()}
        assert stage.read_on(f"{stage.topic}-{name}") == wanted
    assert len(report.moved) == len(PLACES)


def test_a_lane_killed_with_batches_under_way_loses_and_repeats_nothing(
    ends: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(ends, topic("steps"), tmp_path) as scene:
        scene.write()

        scene.carry_until_killed(probe.BATCHES_SENT, after=5)
        scene.write(4)
        scene.carry()

        assert scene.assert_exact() > 0


def test_doctor_and_driver_say_what_these_brokers_lack_and_no_lane_needs_it(
    brokers: dict[str, LocalCluster], caplog: pytest.LogCaptureFixture
) -> None:
    config = ClusterConfig(alias=ClusterAlias("old"), bootstrap_servers=(brokers["old"].bootstrap,))
    caplog.set_level(logging.INFO, "heliograph.driver.old_brokers")

    found = version_findings(asyncio.run(read_facts(config, answer_s_max=10)))
    flow = FlowId(source=config.alias, target=config.alias)
    mirror = MirrorConfig(
        clusters={config.alias: config}, pairs=(FlowConfig(id=flow, enabled=True),)
    )
    asyncio.run(say_what_is_lacking(mirror))

    assert {each.severity for each in found} <= {Severity.OK, Severity.NOTE}
    since = [each.fix.split()[1] for each in found if each.severity is Severity.NOTE]
    lacked = ("3.3", "3.4", "3.7", "3.8", "4.1")
    assert sorted(since) == [name for name in lacked if is_before(RELEASE, name)]
    said = [line for line in caplog.messages if line.startswith("brokers of old are older than")]
    assert sorted(line.split()[7] for line in said) == sorted(since)


def is_before(release: str, other: str) -> bool:
    return tuple(map(int, release.split("."))) < tuple(map(int, other.split(".")))
