"""Two clusters, a mirror between them under load, and ways to kill each part of it.

The moments come from `HELIOGRAPH_CRASH_SEED`, always the same ones unless told.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from heliograph.model import ClusterAlias, FlowId
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from tests.crash.traffic import COMPACTED, TOPICS, create_traffic_topics, nap
from tests.kit.clusters import ClusterFactory
from tests.kit.exact import assert_exact, assert_survivors_exact
from tests.kit.inside import InsideMirror
from tests.kit.mirror import write_config
from tests.kit.runs import HELIOGRAPH, MirrorRun, mirror_runs
from tests.kit.spark_start import light_jvm
from tests.kit.topics import wait_until

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
SEED = int(os.environ.get("HELIOGRAPH_CRASH_SEED", "1"))
RUSH_S = 8.0
"""Load at the full rate around the kills, all of them together."""
SAFE = {"min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}


@dataclass(slots=True, kw_only=True)
class Stage:
    """Both clusters, the mirror between them, and what may be killed."""

    source: LocalCluster
    target: LocalCluster
    file: Path
    folder: Path
    runs: list[MirrorRun]
    random: random.Random
    arguments: tuple[str, ...] = ()
    """Of every run, those after a killed driver included."""

    @property
    def run(self) -> MirrorRun:
        return self.runs[-1]

    def start_run(self, *arguments: str, program: Sequence[str] = HELIOGRAPH) -> MirrorRun:
        log = self.folder / f"run-{len(self.runs)}.log"
        run = MirrorRun(self.file, log, *self.arguments, *arguments, program=program)
        self.runs.append(run)
        return run

    def kill_executor(self) -> None:
        executors = {each.pid: each for each in self.run.executors()}
        assert executors, "executors are processes of their own only on a local cluster"
        self.random.choice(list(executors.values())).kill()
        wait_until(
            lambda: any(each.pid not in executors for each in self.run.executors()),
            "an executor in the place of the dead one",
            timeout_s=60,
        )

    def kill_worker(self) -> None:
        dead = self.run.await_worker()
        dead.kill()
        wait_until(
            lambda: any(worker.pid != dead.pid for worker in self.run.workers()),
            "another worker in the place of the dead one",
            timeout_s=60,
        )

    def kill_driver(self) -> None:
        self.run.kill_driver()
        self.start_run().await_copying()

    def kill_source_broker(self) -> None:
        self._kill_broker(self.source)

    def kill_target_broker(self) -> None:
        self._kill_broker(self.target)

    def _kill_broker(self, cluster: LocalCluster) -> None:
        index = self.random.randrange(len(cluster.brokers))
        cluster.kill_broker(index)
        nap(self.random.uniform(0.0, 1.0))
        cluster.start_broker(index)

    def assert_exact(self, *, compacting: bool = True) -> int:
        """Once all is caught up with: every topic equal, in order, no repeats, the map exact."""
        with closing(InsideMirror(self.file)) as last:
            last.catch_up()
            last.settle()
            return sum(
                check(self.source, self.target, last.ledgers, FLOW, topic, f"A.{topic}")
                for topic in TOPICS
                for check in [
                    assert_survivors_exact if compacting and topic == COMPACTED else assert_exact
                ]
            )


@contextmanager
def open_stage(
    clusters: ClusterFactory,
    folder: Path,
    sizes: tuple[int, int] = (1, 1),
    *,
    executors: int = 0,
    compacting: bool = True,
) -> Iterator[Stage]:
    """`executors` are processes of their own, with a slot each; without any, one slot is local."""
    specs = [
        ClusterSpec(alias=alias, brokers=size, broker_config=SAFE if size > 1 else {})
        for alias, size in zip("AB", sizes, strict=True)
    ]
    made = clusters(*specs)
    create_traffic_topics(made["A"], compacting=compacting)
    settings = {
        "replication.factor": str(sizes[1]),
        "heartbeats.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "5",
        "slots": str(executors or 1),
        "slots.lease.ms.max": "8000",
    }
    if executors:
        settings["slots.cpus"] = "1"  # a whole core each, so that two are never on one executor
        settings["spark.executor.extraJavaOptions"] = light_jvm()
    flow = {
        "topics": ", ".join(TOPICS),
        # Only the source is compacted, or what was repeated on the target would not stay there.
        "config.properties.exclude": ".*",
    }
    file = write_config(folder / "mm2.properties", made, {str(FLOW): flow}, top=settings)
    with mirror_runs() as runs:
        yield Stage(
            source=made["A"],
            target=made["B"],
            file=file,
            folder=folder,
            runs=runs,
            random=random.Random(SEED),
            arguments=("--master", f"local-cluster[{executors},1,1024]") if executors else (),
        )
