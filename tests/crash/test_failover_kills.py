"""The failover killed -9 at each of its steps, then run again: nothing is half moved."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGKILL

import pytest

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.failing_over import Point, fail_over_until
from tests.kit.clusters import TopicNames
from tests.kit.failing_over import NOBODY, Stage
from tests.kit.records import numbered, produce
from tests.kit.topics import create_topic

WANTED = {f"killed-failover-{number:03}": {0: number, 1: 200 - number} for number in range(70)}
"""Three requests' worth of groups, so that there is something between the first and the last."""
UNPLANNED = (
    Point(memo="failover"),
    Point(memo="check"),
    Point(memo="fence"),
    Point(step="fence", what="done"),
    Point(step="groups", what="begins"),
    Point(memo="groups/begun"),
    Point(commits=True, after=2),
    Point(memo="groups/1"),
    Point(step="groups", what="goes on", after=2),
    Point(memo="groups"),
    Point(memo="switch"),
    Point(memo="failover", after=2),
)
PLANNED = (
    Point(step="stop producers", what="begins"),
    Point(memo="stop producers"),
    Point(memo="drain"),
    Point(memo="verify"),
    Point(step="groups", what="goes on"),
)


@pytest.fixture(scope="module")
def killed(pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A topic and its groups on the source; every test has a flow of its own for them."""
    stage = Stage(
        folder=tmp_path_factory.mktemp("killed"),
        source=pair["A"],
        target=pair["B"],
        topic="killed-failover",
    )
    create_topic(stage.source, stage.topic, partitions=2, config={"retention.ms": "-1"})
    produce(stage.source, stage.topic, numbered(400, partitions=2))
    stage.plan_group_offsets(WANTED)
    return stage


@pytest.fixture
def stage(killed: Stage, topic: TopicNames) -> Stage:
    """All mirrored, and told where groups stand."""
    fresh = replace(killed, number=topic("killed").rpartition("-")[2])
    fresh.mirror()
    return fresh


def assert_none_half_moved(stage: Stage) -> None:
    for group, offsets in stage.groups.items():
        assert offsets in ({}, WANTED[group]), f"{group} is half moved: {offsets}"


@pytest.mark.parametrize("point", UNPLANNED, ids=str)
def test_an_unplanned_failover_killed_anywhere_is_finished_by_the_next(
    point: Point, stage: Stage
) -> None:
    killed = fail_over_until(stage.file(source=NOBODY), stage.flow, "unplanned", point)
    assert_none_half_moved(stage)
    report = stage.fail_over()

    assert killed == -SIGKILL
    assert stage.groups == WANTED
    assert report.moved == tuple(WANTED)
    assert report.procedure.is_over


@pytest.mark.parametrize("point", PLANNED, ids=str)
def test_a_planned_failover_killed_anywhere_is_finished_by_the_next(
    point: Point, stage: Stage
) -> None:
    killed = fail_over_until(stage.file(), stage.flow, "planned", point)
    assert_none_half_moved(stage)
    report = stage.fail_over("planned")

    assert killed == -SIGKILL
    assert stage.groups == WANTED
    assert report.moved == tuple(WANTED)
    assert report.procedure.is_over
    assert report.is_loss_known
    assert report.lost_records_min == 0
