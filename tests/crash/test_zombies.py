"""Writers that come back after they were given up, and writers that race: nothing may change."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from heliograph import probe
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.children import Child
from tests.crash.scene import PARTITIONS, Scene, open_scene
from tests.kit.clusters import TopicNames
from tests.kit.records import read_all
from tests.kit.topics import delete_records_before, set_topic_config

CHILD_S_MAX = 90.0
STEPS_OF_A_ZOMBIE = (
    (probe.LANES_TO_CREATE, 1),
    (probe.RUNS_TO_WRITE, 1),
    (probe.RUNS_TO_WRITE, 4),
    (probe.LEDGER_BATCH_TO_SEND, 4),
    (probe.RUNS_DURABLE, 2),
    (probe.BATCHES_SENT, 4),
    (probe.BATCHES_ANSWERED, 2),
    (probe.HEADS_TO_WRITE, 1),
    (probe.RUNS_TO_MERGE, 1),
)
STEPS_OF_A_SEEDING_ZOMBIE = (
    (probe.LANES_TO_CREATE, 1),
    (probe.FILLER_APPENDED, 1),
    (probe.FILLER_TO_DELETE, 1),
    (probe.FILLER_DELETED, 1),
)


def wake(child: Child) -> None:
    """Let a stopped child go on, and end in its own time."""
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait(CHILD_S_MAX) == 0


@pytest.mark.parametrize(("step", "after"), STEPS_OF_A_ZOMBIE)
def test_a_writer_that_wakes_after_its_successor_changes_nothing(
    step: str, after: int, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("zombie"), tmp_path) as scene:
        scene.write()

        zombie = scene.start_and_stop_at(step, after=after)
        # Other cuts than the zombie's, so that its batches are no mere repeats.
        scene.carry(fetch_bytes=3 * 4096)
        scene.write(8)
        scene.carry()
        wake(zombie)

        # A late head only says less than there is; the next one mends that.
        scene.assert_exact(settled=False)
        scene.write(8)
        scene.carry()
        assert scene.assert_exact() > 0


def test_two_writers_stopped_in_turn_change_nothing(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("zombies"), tmp_path) as scene:
        scene.write()

        first = scene.start_and_stop_at(probe.RUNS_TO_WRITE, after=2)
        second = scene.start_and_stop_at(probe.RUNS_DURABLE, after=2)
        scene.write(8)
        wake(first)
        scene.carry(fetch_bytes=4096)
        scene.write(8)
        wake(second)
        scene.carry()

        assert scene.assert_exact() > 0


@pytest.mark.parametrize(("step", "after"), STEPS_OF_A_SEEDING_ZOMBIE)
def test_a_seeder_that_wakes_after_its_successor_deletes_no_mirrored_record(
    step: str, after: int, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("seeders"), tmp_path) as scene:
        scene.write_plain(300)
        delete_records_before(scene.source, scene.topic, dict.fromkeys(range(PARTITIONS), 120))

        zombie = scene.start_and_stop_at(step, after=after, offsets="preserve")
        scene.carry(offsets="preserve")
        wake(zombie)
        scene.carry(offsets="preserve")

        assert scene.assert_exact() == 300 - 120 * PARTITIONS


def test_four_writers_of_one_flow_at_once_leave_every_record_once(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("race"), tmp_path) as scene:
        scene.write(40)

        writers = [scene.start(fetch_bytes=size) for size in (1024, 3000, 7000, 20_000)]
        scene.write(20)
        codes = [writer.wait(CHILD_S_MAX) for writer in writers]
        scene.carry()

        assert codes == [0, 0, 0, 0]
        assert scene.assert_exact() > 0


def test_writers_killed_while_others_go_on_leave_every_record_once(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("mixed"), tmp_path) as scene:
        scene.write(30)

        codes = []
        for step, after in ((probe.BATCHES_SENT, 6), (probe.LEDGER_BATCH_TO_SEND, 6)):
            dying, other = scene.start(step, after=after), scene.start(fetch_bytes=5000)
            scene.write(10)
            codes.append(other.wait(CHILD_S_MAX))
            dying.wait(CHILD_S_MAX)
        scene.carry()

        assert codes == [0, 0]
        assert scene.assert_exact() > 0


def test_a_first_batch_the_target_refuses_is_not_skipped_by_those_behind_it(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """A broker that knows nothing of a producer takes any first sequence.

    Batches 1 and 2 are sent together to an empty partition; 1 is too large and refused; 2 would be
    appended as the first, and the records of 1 would count as mirrored.
    """
    with open_scene(pair, topic("refused"), tmp_path) as scene:
        scene.write_plain(PARTITIONS, value_bytes=20_000)
        scene.write_plain(60)
        set_topic_config(scene.target, scene.target_topic, {"max.message.bytes": "10000"})

        stalled = scene.start(fetch_bytes=64 * 1024)
        _wait_refused(scene)
        stalled.kill()
        stalled.wait()
        held_back = read_all(scene.target, scene.target_topic)
        set_topic_config(scene.target, scene.target_topic, {"max.message.bytes": None})
        scene.carry()

        assert held_back == {number: [] for number in range(PARTITIONS)}
        assert scene.assert_exact() == 60 + PARTITIONS


def _wait_refused(scene: Scene) -> None:
    """Long enough for the first answers; a lane that is refused waits half a minute."""
    with pytest.raises(subprocess.TimeoutExpired):
        scene.children[-1].wait(4)
