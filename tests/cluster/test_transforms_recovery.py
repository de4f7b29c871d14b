"""Groups, failover, drill and `offsets` of a flow that drops and renames go on as of any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.transform.record import Record
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import TopicNames
from tests.kit.failing_over import Stage
from tests.kit.groups import committed
from tests.kit.records import numbered, produce, read_all
from tests.kit.topics import (
    admin_of,
    create_topic,
    set_topic_config,
    topic_config,
    wait_until,
)

JAVA = "org.apache.kafka.connect.transforms."
PLACES = {"early": 100, "odd": 151, "done": 300}
ROUTED = "east"


def thirds(record: Record) -> Record | None:
    """Keeps two in three, and marks them."""
    number = int((record.value or b"").split(b".")[0].lstrip(b"v"))
    return None if number % 3 == 0 else record._replace(value=b"kept %d" % number)


class RoutedStage(Stage):
    """Its topic has another name on the target than the policy gives it."""

    @property
    def mirrored(self) -> str:
        return f"{ROUTED}-{self.topic}"


@pytest.fixture
def stage(pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path) -> Stage:
    """Two partitions of 300 records each, of which 200 stay, and three groups."""
    made = RoutedStage(
        folder=tmp_path,
        source=pair["A"],
        target=pair["B"],
        topic=topic("looked-into"),
        settings={
            "transforms": "east, thirds",
            "transforms.east.type": f"{JAVA}RegexRouter",
            "transforms.east.regex": r".*?\\.(.*)",
            "transforms.east.replacement": f"{ROUTED}-$1",
            "transforms.thirds.type": f"{__name__}:thirds",
            "transforms.thirds.on": "record",
            "sync.group.offsets.enabled": "true",
            "sync.topic.configs.enabled": "true",
        },
    )
    create_topic(made.source, made.topic, partitions=2, config={"retention.ms": "-1"})
    produce(made.source, made.topic, numbered(600, partitions=2))
    made.plan_group_offsets(
        {f"{made.topic}-{name}": {0: at, 1: at} for name, at in PLACES.items()},
    )
    return made


def kept_from(stage: Stage, place: int) -> dict[int, list[bytes]]:
    """What a group that stands there on the source has not read, as the target has it."""
    found: dict[int, list[bytes]] = {}
    for number, records in read_all(stage.source, stage.topic).items():
        given = [int((rec.value or b"").split(b".")[0].lstrip(b"v")) for rec in records[place:]]
        found[number] = [b"kept %d" % each for each in given if each % 3]
    return found


def test_offsets_a_drill_and_a_failover_go_by_what_is_left_under_the_name_it_got(
    stage: Stage,
) -> None:
    stage.mirror()

    asked = heliograph("offsets", stage.file(), "--group", f"{stage.topic}-.*", "--json")
    drilled = heliograph("drill", stage.file(), "--json")
    stage.fail_over()

    assert asked.code == 0, asked.err
    placed: dict[str, dict[int, int]] = {}
    for each in asked.document["moves"]:
        placed.setdefault(each["group"], {})[each["partition"]] = each["target_offset"]
    wanted = {
        name: {n: 200 - len(kept) for n, kept in kept_from(stage, place).items()}
        for name, place in PLACES.items()
    }
    assert {group.rpartition("-")[2]: at for group, at in placed.items()} == wanted
    assert drilled.code == 0, drilled.err or drilled.out
    assert json.loads(drilled.out)["verdict"] == "pass"
    for name, place in PLACES.items():
        assert stage.read_on(f"{stage.topic}-{name}") == kept_from(stage, place)


def test_groups_and_settings_follow_to_the_name_that_a_router_gave(stage: Stage) -> None:
    with stage.mirroring() as mirroring:
        set_topic_config(stage.source, stage.topic, {"retention.ms": "86400001"})
        mirroring.step("topic configs")
        mirroring.step("group offsets")
        wait_until(
            lambda: topic_config(stage.target, stage.mirrored)["retention.ms"] == "86400001",
            "the setting on the renamed topic",
        )

    group = f"{stage.topic}-odd"
    assert committed(stage.target, group, stage.mirrored) == {
        n: 200 - len(kept) for n, kept in kept_from(stage, PLACES["odd"]).items()
    }
    names = admin_of(stage.target).list_topics(timeout=30).topics
    assert f"{stage.flow.source}.{stage.topic}" not in names
