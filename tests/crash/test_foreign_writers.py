"""Somebody else writes to the target while a lane with gaps is carried, and its carrier dies.

Each foreign record moves the map, and the correction is written after the batch that showed it. One
that is lost, or lands after a successor's runs, must cost neither a record nor an offset.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from heliograph import probe
from heliograph.ledger.service import LedgerService
from heliograph.model import TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.scene import PARTITIONS, Scene, open_scene
from tests.crash.test_zombies import wake
from tests.kit.clusters import TopicNames
from tests.kit.exact import assert_exact_lane
from tests.kit.records import difference, read_all

FOREIGN = b"foreign"
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
    with open_scene(pair, topic("foreign"), tmp_path) as scene:
        scene.write()
        with foreign_writer(scene):
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


@contextmanager
def foreign_writer(scene: Scene) -> Iterator[None]:
    """One record after the other, to every partition, for as long as the block lasts."""
    over = threading.Event()
    producer = Producer({"bootstrap.servers": scene.target.bootstrap, "linger.ms": 0})

    def write() -> None:
        while not over.wait(0.002):
            for number in range(PARTITIONS):
                producer.produce(scene.target_topic, FOREIGN, FOREIGN, number)
            producer.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
