"""Two drivers copy one flow at once, and are killed; then equal, in order, once."""

from __future__ import annotations

from pathlib import Path

from tests.crash.stage import RUSH_S, SEED, open_stage
from tests.crash.traffic import nap, traffic
from tests.kit.clusters import ClusterFactory
from tests.kit.runs import HELIOGRAPH, WITHOUT_SPARK


def test_two_drivers_of_one_flow_at_once_leave_every_record_once(
    clusters: ClusterFactory, tmp_path: Path
) -> None:
    # Two at once on a topic that is being compacted is the one thing that rests on the lease.
    with open_stage(clusters, tmp_path, compacting=False) as stage:
        with traffic(stage.source, SEED) as writing:
            # Without the lease both copy; the log alone keeps them right.
            first, second = (
                stage.start_run("--no-lease", program=program)
                for program in (HELIOGRAPH, WITHOUT_SPARK)
            )
            first.await_copying()
            second.await_copying()
            writing.rush(RUSH_S / 2)
            nap(2.0)
            first.kill_driver()
            nap(1.0)
            third = stage.start_run("--no-lease", program=WITHOUT_SPARK)
            third.await_copying()
            writing.rush(RUSH_S / 4)
            nap(1.0)
        second.kill_driver()
        third.kill_driver()

        assert stage.assert_exact(compacting=False) > 500
