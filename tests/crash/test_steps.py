"""A lane whose carrier is killed -9 between ledger write and data write, at exact points."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph import probe
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.scene import PARTITIONS, open_scene
from tests.kit.clusters import TopicNames
from tests.kit.records import read_all
from tests.kit.topics import delete_records_before

STEPS_OF_A_LANE = (
    (probe.LANES_TO_CREATE, 1),
    (probe.LANES_CREATED, 1),
    (probe.RUNS_TO_WRITE, 3),
    (probe.LEDGER_BATCH_TO_SEND, 1),
    (probe.LEDGER_BATCH_TO_SEND, 4),
    (probe.RUNS_DURABLE, 1),
    (probe.RUNS_DURABLE, 4),
    (probe.BATCHES_SENT, 1),
    (probe.BATCHES_SENT, 5),
    (probe.BATCHES_ANSWERED, 1),
    (probe.BATCHES_ANSWERED, 5),
    (probe.HEADS_TO_WRITE, 1),
    (probe.RUNS_TO_MERGE, 1),
    (probe.RUNS_MERGED, 1),
)
STEPS_OF_SEEDING = (
    (probe.LANES_TO_CREATE, 1),
    (probe.FILLER_APPENDED, 1),
    (probe.FILLER_APPENDED, 2),
    (probe.FILLER_TO_DELETE, 1),
    (probe.FILLER_DELETED, 1),
    (probe.LANES_CREATED, 1),
    (probe.BATCHES_SENT, 1),
)


@pytest.mark.parametrize(("step", "after"), STEPS_OF_A_LANE)
def test_a_lane_killed_at_any_step_loses_and_repeats_nothing(
    step: str, after: int, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("steps"), tmp_path) as scene:
        scene.write()

        scene.carry_until_killed(step, after=after)
        scene.write(4)
        scene.carry()

        assert scene.assert_exact() > 0


@pytest.mark.parametrize(("step", "after"), STEPS_OF_SEEDING)
def test_seeding_killed_at_any_step_leaves_no_filler_and_the_same_offsets(
    step: str, after: int, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("seeded"), tmp_path) as scene:
        scene.write_plain(300)
        delete_records_before(scene.source, scene.topic, dict.fromkeys(range(PARTITIONS), 120))

        scene.carry_until_killed(step, after=after, offsets="preserve")
        scene.carry(offsets="preserve")

        assert scene.assert_exact() == 300 - 120 * PARTITIONS
        wanted = read_all(scene.source, scene.topic)
        mirrored = read_all(scene.target, scene.target_topic)
        assert [[rec.offset for rec in mirrored[n]] for n in wanted] == [
            [rec.offset for rec in records] for records in wanted.values()
        ]


def test_a_lane_killed_again_and_again_still_loses_and_repeats_nothing(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("again"), tmp_path) as scene:
        scene.write(30)

        for step, _ in STEPS_OF_A_LANE[2:11:2]:
            # The first pass: how many more there are depends on how the child's writes are grouped.
            scene.carry_until_killed(step, after=1)
            scene.write(12)
        scene.carry()

        assert scene.assert_exact() > 0
