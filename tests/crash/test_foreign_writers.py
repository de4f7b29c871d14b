"""Somebody else writes to the target while a lane with gaps is carried, and its carrier dies.

Each foreign record moves the map, and the correction is written after the batch that showed it. One
that is lost, or lands after a successor's runs, must cost neither a record nor an offset.
"""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from heliograph import probe
from heliograph.ledger.service import LedgerService
from heliograph.model import TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.carrier import FOREIGN
from tests.crash.scene import Scene, open_scene
from tests.crash.test_zombies import wake
from tests.kit.clusters import TopicNames
from tests.kit.exact import assert_exact_lane
from tests.kit.records import difference, read_all

STEPS = (
    (probe.MAP_TO_CORRECT, 2, signal.SIGKILL),
    (probe.MAP_TO_CORRECT, 2, signal.SIGSTOP),
    (probe.MAP_TO_CORRECT, 5, signal.SIGSTOP),
    (probe.LEDGER_BATCH_TO_SEND, 5, signal.SIGSTOP),
)


@pytest.mark.parametrize(("step", "after", "number"), STEPS)
def test_a_map_whose_correction_is_lost_or_late_stays_exact_beside_a_foreign_writer(
    step: str,
    after: int,
    number: signal.Signals,
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
) -> None:
    with open_scene(pair, topic("foreign"), tmp_path, foreign=True) as scene:
        scene.write()
        if number is signal.SIGSTOP:
            given_up = scene.start_and_stop_at(step, after=after)
        else:
            scene.carry_until_killed(step, after=after)
        # Other cuts than those of the one that was given up, and runs behind its last one.
        scene.carry(fetch_bytes=3 * 4096)
        scene.write(8)
        scene.carry()
        if number is signal.SIGSTOP:
            wake(given_up)
        scene.write(8)
        scene.carry()

        assert_exact_beside_others(scene)


def assert_exact_beside_others(scene: Scene) -> None:
    wanted = read_all(scene.source, scene.topic)
    found = read_all(scene.target, scene.target_topic)
    with closing(LedgerService(scene.configs)) as ledgers:
        view = ledgers.view(scene.flow)
        for number, records in wanted.items():
            ours = [record for record in found[number] if record.key != FOREIGN]
            assert difference(records, ours) is None
            assert ours[-1].offset - ours[0].offset >= len(ours), "nobody wrote between them"
            lane = view.lane(TopicName(scene.topic), number)
            assert lane is not None
            assert_exact_lane(lane, records, found[number], begins_here=True)
