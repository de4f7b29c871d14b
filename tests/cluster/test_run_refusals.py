"""What a run cannot do is a sentence that names the topic and the key, and it ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from heliograph.compat.mirror_client import MirrorClient
from heliograph.config.load import load_config
from heliograph.config.sections import IDENTITY_POLICY
from heliograph.driver import run as driver
from heliograph.driver.result import RunResult
from heliograph.driver.run import run_mirror
from heliograph.inspect.dry_run import plan_flows
from heliograph.model import (
    ClusterAlias,
    FlowId,
    Idle,
    Lane,
    LaneId,
    LaneProgress,
    SlotId,
    TopicName,
)
from heliograph.topics.provisioning import Severity
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import write_config
from tests.kit.records import numbered, produce
from tests.kit.topics import create_topic
from tests.unit.driver.test_run import PlayedSlots, PlayedSpark


class IdleSlots(PlayedSlots):
    """Every lane they are given has caught up."""

    def make(self, **hooks: Any) -> IdleSlots:
        super().make(**hooks)
        self.lanes = {}
        return self

    def apply(
        self,
        assignment: Mapping[SlotId, tuple[Lane, ...]],
        abandoned: frozenset[FlowId],
        stuck: frozenset[LaneId],
    ) -> None:
        self.lanes = {lane.id: _idle(lane.id) for some in assignment.values() for lane in some}


def _idle(lane: LaneId) -> LaneProgress:
    return LaneProgress(
        lane=lane,
        state=Idle(),
        position=0,
        source_next_offset=0,
        source_end_offset=0,
        source_start_offset=0,
        target_next_offset=0,
    )


@pytest.fixture(autouse=True)
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "SparkApplication", PlayedSpark().make)
    monkeypatch.setattr(driver, "Slots", IdleSlots().make)


def run_once(file: Path) -> RunResult:
    async def bounded() -> RunResult:
        async with asyncio.timeout(30):
            return await run_mirror(load_config(file), once=True)

    return asyncio.run(bounded())


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"replication.factor": "2"}, ("replication.factor = 2", "heliograph-ledger.{A}.internal")),
        (
            {"emit.checkpoints.enabled": "true", "checkpoints.topic.replication.factor": "3"},
            ("checkpoints.topic.replication.factor = 3", "{A}.checkpoints.internal"),
        ),
    ],
    ids=["ledger", "checkpoints"],
)
def test_a_replication_factor_that_the_target_does_not_have_ends_a_run_with_its_key(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    keys: dict[str, str],
    named: tuple[str, str],
) -> None:
    orders, source = topic("orders"), topic("refA").replace("-", "")
    create_topic(pair["A"], orders)
    produce(pair["A"], orders, numbered(3))
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], "refB": pair["B"]},
        {f"{source}->refB": {"topics": orders, **keys}},
    )
    flow = FlowId(source=ClusterAlias(source), target=ClusterAlias("refB"))

    result = run_once(file)

    assert not result.is_well
    for words in named:
        assert words.format(A=source) in result.failures[flow]


def test_a_topic_is_not_copied_onto_itself_through_two_aliases_of_one_cluster(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A name kept within one cluster: every record would be its own copy's source for ever."""
    orders = create_topic(pair["A"], topic("orders"))
    file = write_config(
        tmp_path / "mm2.properties",
        {"twinA": pair["A"], "twinB": pair["A"]},
        {"twinA->twinB": {"topics": orders, "replication.policy.class": IDENTITY_POLICY}},
    )

    result = run_once(file)
    (planned,) = plan_flows(load_config(file))

    assert result.progress == {}
    said = [record.getMessage() for record in caplog.records]
    assert [text for text in said if "twinA and twinB are aliases of one cluster" in text]
    notes = {(note.topic, note.weight): note.text for note in planned.notes}
    assert "twinA and twinB are one cluster" in notes[TopicName(orders), Severity.PROBLEM]
    assert "are aliases of one cluster" in notes[TopicName("clusters"), Severity.NOTE]


def test_a_file_without_an_enabled_flow_runs_and_writes_heartbeats_without_spark(
    pair: dict[str, LocalCluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = PlayedSpark()
    monkeypatch.setattr(driver, "SparkApplication", spark.make)
    top = {"emit.heartbeats.enabled": "true", "heartbeats.topic.replication.factor": "1"}
    clusters = {"beatA": pair["A"], "beatB": pair["B"]}
    file = write_config(tmp_path / "mm2.properties", clusters, {}, top=top)

    result = run_once(file)

    assert result.is_well
    assert spark.starts == []
    config = load_config(file)
    for source, target in (("beatA", "beatB"), ("beatB", "beatA")):
        with MirrorClient.of(config, target) as client:
            flow = FlowId(source=ClusterAlias(source), target=ClusterAlias(target))
            assert flow in client.newest_heartbeats()
