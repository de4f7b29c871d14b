"""A lane whose carrier is killed -9 between ledger write and data write, at exact points."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.scene import PARTITIONS, open_scene
from tests.kit.clusters import TopicNames
from tests.kit.records import read_all
from tests.kit.topics import delete_records_before

STEPS_OF_A_LANE = (
    ("about to be born", 1),
    ("born, nothing appended", 1),
    ("before runs are written", 3),
    ("ledger write on its way", 1),
    ("ledger write on its way", 4),
    ("runs durable, batch not sent", 1),
    ("runs durable, batch not sent", 4),
    ("batch sent, not answered", 1),
    ("batch sent, not answered", 5),
    ("batch answered, not settled", 1),
    ("batch answered, not settled", 5),
    ("batch settled, head not written", 1),
)
STEPS_OF_SEEDING = (
    ("about to be born", 1),
    ("filler appended", 1),
    ("filler appended", 2),
    ("seeded, not cleared", 1),
    ("cleared, not born", 1),
    ("born, nothing appended", 1),
    ("batch sent, not answered", 1),
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
