"""kill -9 of every part, at random moments of a copy under load; then equal, in order, once.

`HELIOGRAPH_CRASH_SEED` repeats a run, `HELIOGRAPH_CRASH_ROUNDS` makes it a hunt.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from heliograph.config.load import load_config
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, FlowId
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from tests.crash.traffic import TOPICS, create_traffic_topics, moments, nap, traffic
from tests.kit.clusters import ClusterFactory
from tests.kit.crash import MirrorRun, assert_exact, mirror_file, mirror_runs
from tests.kit.topics import wait_until

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
ROUNDS = int(os.environ.get("HELIOGRAPH_CRASH_ROUNDS", "1"))
LONGEST_S = 2.0
SAFE = {"min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HELIOGRAPH_CRASH_SEED", random.SystemRandom().randrange(2**31)))
    # Shown with a failure, or always with -s.
    os.write(1, f"\nHELIOGRAPH_CRASH_SEED={chosen}\n".encode())
    return chosen


@dataclass(slots=True, kw_only=True)
class Stage:
    """Both clusters, the mirror between them, and what may be killed."""

    source: LocalCluster
    target: LocalCluster
    file: Path
    folder: Path
    runs: list[MirrorRun]
    random: random.Random

    @property
    def run(self) -> MirrorRun:
        return self.runs[-1]

    def start_run(
        self, *, once: bool = False, master: str | None = None, lease: bool = True
    ) -> MirrorRun:
        log = self.folder / f"run-{len(self.runs)}.log"
        self.runs.append(MirrorRun(self.file, log, once=once, master=master, lease=lease))
        return self.run

    def kill_worker(self) -> None:
        dead = self.run.wait_worker()
        dead.kill()
        wait_until(
            lambda: any(worker.pid != dead.pid for worker in self.run.workers()),
            "another worker in the place of the dead one",
            timeout_s=60,
        )

    def kill_driver(self) -> None:
        self.run.kill_driver()
        self.start_run().wait_copying()

    def kill_source_broker(self) -> None:
        self._kill_broker(self.source)

    def kill_target_broker(self) -> None:
        self._kill_broker(self.target)

    def _kill_broker(self, cluster: LocalCluster) -> None:
        index = self.random.randrange(len(cluster.brokers))
        cluster.kill_broker(index)
        nap(self.random.uniform(0.0, 1.0))
        cluster.start_broker(index)

    def assert_exact(self) -> int:
        """After a last `run --once`: every topic equal, in order, no repeats, the map exact."""
        self.start_run(once=True).wait_done()
        ledgers = LedgerService(load_config(self.file).clusters)
        try:
            return sum(
                assert_exact(self.source, self.target, ledgers, FLOW, topic, f"A.{topic}")
                for topic in TOPICS
            )
        finally:
            ledgers.close()


def open_stage(
    clusters: ClusterFactory, runs: list[MirrorRun], folder: Path, seed: int, sizes: tuple[int, int]
) -> Stage:
    specs = [
        ClusterSpec(alias=alias, brokers=size, broker_config=SAFE if size > 1 else {})
        for alias, size in zip("AB", sizes, strict=True)
    ]
    made = clusters(*specs)
    create_traffic_topics(made["A"])
    return Stage(
        source=made["A"],
        target=made["B"],
        file=mirror_file(folder, made["A"], made["B"], topics=", ".join(TOPICS)),
        folder=folder,
        runs=runs,
        random=random.Random(seed),
    )


VICTIMS: tuple[Callable[[Stage], None], ...] = (
    Stage.kill_worker,
    Stage.kill_driver,
    Stage.kill_source_broker,
    Stage.kill_target_broker,
)


@pytest.mark.timeout(300 + 120 * ROUNDS)
def test_whatever_is_killed_under_load_nothing_is_lost_and_nothing_repeated(
    clusters: ClusterFactory, tmp_path: Path, seed: int
) -> None:
    with mirror_runs() as runs:
        sizes = random.Random(f"sizes {seed}").choice(((1, 1), (1, 3), (3, 1)))
        stage = open_stage(clusters, runs, tmp_path, seed, sizes)
        victims = [victim for _ in range(ROUNDS) for victim in VICTIMS]
        stage.random.shuffle(victims)

        with traffic(stage.source, seed):
            stage.start_run().wait_copying()
            for victim, moment_s in zip(
                victims, moments(seed, len(victims), LONGEST_S), strict=True
            ):
                nap(moment_s)
                victim(stage)
            nap(1.0)
        stage.run.kill_driver()

        assert stage.assert_exact() > 1000


def test_two_drivers_of_one_flow_at_once_leave_every_record_once(
    clusters: ClusterFactory, tmp_path: Path, seed: int
) -> None:
    with mirror_runs() as runs:
        stage = open_stage(clusters, runs, tmp_path, seed, (1, 1))

        with traffic(stage.source, seed):
            # Without the lease both copy; the log alone keeps them right.
            first, second = stage.start_run(lease=False), stage.start_run(lease=False)
            wait_until(
                lambda: first.has_copied and second.has_copied,
                "records mirrored by both of two drivers",
                timeout_s=120,
            )
            nap(2.0)
            first.kill_driver()
            nap(1.0)
            third = stage.start_run(lease=False)
            wait_until(lambda: third.has_copied, "records mirrored by a third", timeout_s=120)
            nap(1.0)
        second.kill_driver()
        third.kill_driver()

        assert stage.assert_exact() > 500


def test_an_executor_killed_during_a_copy_costs_no_record_and_repeats_none(
    clusters: ClusterFactory, tmp_path: Path, seed: int
) -> None:
    with mirror_runs() as runs:
        stage = open_stage(clusters, runs, tmp_path, seed, (1, 1))
        stage.file.write_text(
            stage.file.read_text(encoding="utf-8").replace(
                # A whole core each, so that the two are never on one executor.
                "slots = 1",
                "slots = 2\nslots.cpus = 1",
            ),
            encoding="utf-8",
        )

        with traffic(stage.source, seed):
            run = stage.start_run(master="local-cluster[2,1,1024]")
            run.wait_copying()
            executors = run.executors()
            nap(1.0)
            executors[0].kill()
            wait_until(
                lambda: "lost" in run.text(), "the driver saying that a slot was lost", timeout_s=60
            )
            nap(3.0)
        run.kill_driver()

        assert len(executors) == 2
        assert stage.assert_exact() > 500
