"""kill -9 of every part, under load; then equal, in order, once.

The moments and their order come from `HELIOGRAPH_CRASH_SEED`, always the same ones unless told.
`make test` plays one scene: worker, driver and a broker of either side die once. `make soak` plays
three, draws the seed at random and kills each part `HELIOGRAPH_CRASH_ROUNDS` times, executors among
them; in `make test` a whole node with its executor dies in `tests/spark/test_standalone_run.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.stage import RUSH_S, SEED, Stage, open_stage
from tests.crash.traffic import moments, nap, traffic
from tests.kit.clusters import ClusterFactory

ROUNDS = int(os.environ.get("HELIOGRAPH_CRASH_ROUNDS", "0"))
"""None: `make test`, each part of one scene once."""
LONGEST_S = 2.0
RUSH_EACH_S = RUSH_S / 4 if ROUNDS else 1.0
Victims = tuple[Callable[[Stage], None], ...]
BOTH_SIDES: Victims = (
    Stage.kill_worker,
    Stage.kill_source_broker,
    Stage.kill_driver,
    Stage.kill_target_broker,
)
EVERYTHING: Victims = (*BOTH_SIDES, Stage.kill_executor)
FIRST_SCENE = pytest.param((1, 3), 0, BOTH_SIDES, id="each part once, on three target brokers")
HUNTS = [
    pytest.param((1, 3), 2, EVERYTHING * ROUNDS, id="everything, on three target brokers"),
    pytest.param((3, 1), 2, EVERYTHING * ROUNDS, id="everything, on three source brokers"),
    pytest.param((1, 1), 2, EVERYTHING * ROUNDS, id="everything, on one broker each"),
]


@pytest.mark.timeout(300 + 120 * ROUNDS)
@pytest.mark.parametrize(("sizes", "executors", "victims"), HUNTS if ROUNDS else [FIRST_SCENE])
def test_whatever_is_killed_under_load_nothing_is_lost_and_nothing_repeated(
    clusters: ClusterFactory,
    tmp_path: Path,
    sizes: tuple[int, int],
    executors: int,
    victims: Victims,
) -> None:
    chosen = list(victims)
    with open_stage(clusters, tmp_path, sizes, executors=executors) as stage:
        stage.random.shuffle(chosen)

        with traffic(stage.source, SEED) as writing:
            stage.start_run().await_copying()
            for victim, pause_s in zip(chosen, moments(SEED, len(chosen), LONGEST_S), strict=True):
                writing.rush(pause_s + RUSH_EACH_S)
                nap(pause_s)
                victim(stage)
            nap(1.0)
        stage.run.kill_driver()

        assert stage.assert_exact() > 1000
