"""Lanes sent to another source offset by decision (MirrorMaker 2's I14: altered, then reset)."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from heliograph.cli.reset import reset
from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.errors import MirrorError
from heliograph.inspect.reset import LaneReset, reset_lanes
from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.locations import all_topics
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.scene import PARTITIONS, Scene, open_scene
from tests.kit.clusters import TopicNames
from tests.kit.exact import assert_exact_lane
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce, read_all
from tests.kit.topics import delete_topic

_RECORDS = 40


def test_a_reset_lane_goes_on_at_the_offset_and_a_second_reset_copies_all_again(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("reset"), tmp_path) as scene:
        file = _config(scene)
        scene.write_plain(_RECORDS)
        scene.carry()

        (altered, _) = _reset(scene, file, 1)
        scene.carry()
        all_again = _reset(scene, file, "earliest")
        scene.carry()

        wanted = read_all(scene.source, scene.topic)
        found = read_all(scene.target, scene.target_topic)
        each = _RECORDS // PARTITIONS
        assert (altered.before_offset, altered.offset, altered.repeated) == (each, 1, each - 1)
        assert [lane.repeated for lane in all_again] == [each, each]
        for number, records in wanted.items():
            once = [record.content for record in records]
            assert [record.content for record in found[number]] == once + once[1:] + once


def test_a_reset_without_yes_changes_nothing_and_one_under_a_running_mirror_is_refused(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_scene(pair, topic("reset"), tmp_path) as scene:
        file = _config(scene)
        scene.write_plain(_RECORDS)
        scene.carry()

        reset(file, topic=scene.topic, to="5", as_json=True)
        with pytest.raises(MirrorError, match=r"offset 99 is not on the source"):
            _reset(scene, file, 99)
        _lead(scene)
        with pytest.raises(MirrorError, match=r"is mirrored by elsewhere \(pid 7\); stop it first"):
            _reset(scene, file, 5)

        assert '"written": false' in capsys.readouterr().out
        scene.carry()
        scene.assert_exact()


def test_a_reset_lane_leaves_a_recreated_topic_behind_on_either_side(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = write_config(
        tmp_path / "mm2.properties",
        {"anew": pair["A"], "to": pair["B"]},
        {"anew->to": {"topics": "anew-.*"}},
    )
    one = route(file, ("anew", pair["A"]), ("to", pair["B"]))
    source, target = topic("anew-source"), topic("anew-target")
    for name in (source, target):
        lasting_topic(one.source, name)
        produce(one.source, name, numbered(_RECORDS))
    carry(file, lanes=2)
    delete_topic(one.source, source)
    lasting_topic(one.source, source)
    produce(one.source, source, numbered(5, start=1_000))
    delete_topic(one.target, one.renamed(target))
    lasting_topic(one.target, one.renamed(target))
    produce(one.target, one.renamed(target), numbered(3, start=2_000))

    for name in (source, target):
        reset(file, topic=name, to="earliest", yes=True)
    carry(file, lanes=2)

    said = capsys.readouterr()
    assert "source topic recreated" in said.out
    assert "target topic recreated" in said.out
    assert "written to the ledger" in said.err
    wanted = {name: read_all(one.source, name)[0] for name in (source, target)}
    found = {name: read_all(one.target, one.renamed(name))[0] for name in (source, target)}
    for name, before in ((source, _RECORDS), (target, 3)):
        contents = [record.content for record in wanted[name]]
        assert [record.content for record in found[name][before:]] == contents
        (lane,) = one.lane_records(name).values()
        assert_exact_lane(lane, wanted[name], found[name])
    assert [start.position for start in one.lane_records(target)[0].starts] == [0]


def _config(scene: Scene) -> Path:
    return write_config(
        scene.folder / "mm2.properties",
        {scene.flow.source: scene.source, scene.flow.target: scene.target},
        {str(scene.flow): {"topics": scene.topic}},
    )


def _reset(scene: Scene, file: Path, to: str | int) -> tuple[LaneReset, ...]:
    wanted = all_topics([TopicName(scene.topic)])
    return asyncio.run(reset_lanes(load_config(file), scene.flow, wanted, to, write=True))


def _lead(scene: Scene) -> None:
    ledgers = LedgerService(scene.configs)
    flow: FlowId = scene.flow
    try:
        entry = LeaseEntry(
            author=uuid.uuid4().hex,
            host="elsewhere",
            pid=7,
            at_ms=now_ms(),
            lease_ms=60_000,
            slot_count=1,
        )
        ledgers.claim(flow, entry)
    finally:
        ledgers.close()
