"""Clusters that all take writes under one name, while their mirrors are killed.

    python -m bench.same_names [--scene two|mesh|chain] [--minutes 3] [--seed 4711]

Each cluster has writers of three kinds (plain, idempotent, transactional with aborts) on one topic.
Each mirror process is killed with SIGKILL, or stopped for seconds while another carries its flows,
at moments the seed says. Then writers stop, and every cluster must have each record once, those of
each writer in order; no log may grow any more; groups that move must skip nothing and read again no
more than they must. Writes bench/results/mesh/same-names-<scene>.json. `tests/soak` does it too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, write_config
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, mirror_runs

from bench.same_names_found import (
    PARTITIONS,
    SCENES,
    TOPIC,
    Found,
    Scene,
    check_maps,
    keep_evidence,
    look_for_growth,
    settle,
    translate,
)
from heliograph.config.sections import IDENTITY_POLICY
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters

RESULTS: Final = Path(__file__).parent / "results" / "mesh"
_KINDS: Final = ("plain", "idempotent", "transactional")
_PAUSE_S: Final = (0.05, 0.6)
_RECORDS: Final = (1, 40)
_LIFE_S: Final = (0.3, 14.0)
_STOPPED_S: Final = (2.0, 12.0)
_STOP_ONE_IN: Final = 4
_FLUSH_S: Final = 60.0
_FIRST_RECORD_S_MAX: Final = 30.0
_COPYING: Final = "first records mirrored"


class Writers:
    """Threads that write `<cluster>.<kind>.<number>` and know what must be there in the end."""

    def __init__(self, clusters: Mapping[str, LocalCluster], seed: int) -> None:
        self.wanted: list[str] = []
        self.undelivered: dict[str, str] = {}
        """Of which the cluster did not say that it has them, and why: they are there or not."""
        self.aborted = 0
        self._stop = threading.Event()
        self._problems: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(cluster, alias, kind, seed))
            for alias, cluster in clusters.items()
            for kind in _KINDS
        ]

    @contextmanager
    def writing(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(2 * _FLUSH_S)
        if self._problems:
            raise self._problems[0]

    def _guarded(self, cluster: LocalCluster, alias: str, kind: str, seed: int) -> None:
        try:
            self._write(cluster, f"{alias}.{kind}", kind, random.Random(f"{seed} {alias} {kind}"))
        except BaseException as exc:  # noqa: BLE001 - raised on the test's own thread
            self._problems.append(exc)

    def _write(self, cluster: LocalCluster, name: str, kind: str, chance: random.Random) -> None:
        numbers = itertools.count()
        producer = _producer(cluster, name, kind, chance)
        while not self._stop.wait(chance.uniform(*_PAUSE_S)):
            if kind != "transactional" and chance.random() < 0.1:
                # Applications start again, and have another producer id each time.
                producer = _producer(cluster, name, kind, chance)
            some = [f"{name}.{next(numbers)}" for _ in range(chance.randint(*_RECORDS))]
            if kind == "transactional":
                producer.begin_transaction()
            for value in some:
                number = chance.randrange(PARTITIONS)
                producer.produce(
                    TOPIC,
                    value.encode(),
                    value.encode(),
                    partition=number,
                    on_delivery=self._delivered,
                )
            left = producer.flush(_FLUSH_S)
            assert left == 0, f"{name}: {left} records were not acknowledged"
            if kind == "transactional" and chance.random() < 0.3:
                producer.abort_transaction(_FLUSH_S)
                self.aborted += len(some)
                continue
            if kind == "transactional":
                producer.commit_transaction(_FLUSH_S)
            self.wanted += [value for value in some if value not in self.undelivered]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.undelivered[(message.value() or b"").decode()] = error.str()


def _producer(cluster: LocalCluster, name: str, kind: str, chance: random.Random) -> Producer:
    settings: dict[str, str | int | bool] = {
        "acks": "all",
        "linger.ms": chance.choice((0, 2, 10)),
        "batch.num.messages": chance.choice((1, 7, 1000)),
        "compression.type": chance.choice(("none", "lz4", "zstd")),
    }
    if kind == "plain":
        # One request at a time keeps the order without idempotence.
        settings["max.in.flight.requests.per.connection"] = 1
    elif kind == "idempotent":
        settings["enable.idempotence"] = True
    else:
        settings["transactional.id"] = name
    producer = Producer({**cluster.librdkafka_config, **settings})
    if kind == "transactional":
        producer.init_transactions(_FLUSH_S)
    return producer


class _Life:
    """A mirror, and how long after its start, or after its first record, it is to end.

    Many lives are short: what a start does is as good a moment as any. But on a busy machine a
    start takes seconds, and then hardly one would be ended while it copies.
    """

    def __init__(self, run: MirrorRun, chance: random.Random) -> None:
        self.run = run
        began_s = time.monotonic()
        self._waits_for_record = chance.random() < 0.5
        self._copies_by_s = began_s + _FIRST_RECORD_S_MAX
        self._counts_from_s = began_s
        self._seconds = chance.choice((1.0, 0.4)) * chance.uniform(*_LIFE_S)

    @property
    def is_over(self) -> bool:
        now_s = time.monotonic()
        if self._waits_for_record:
            if now_s < self._copies_by_s and _COPYING not in self.run.said:
                return False
            self._waits_for_record, self._counts_from_s = False, now_s
        return now_s - self._counts_from_s >= self._seconds


class Hunter:
    """Kills and stops the mirrors of a scene, and always has others in their places."""

    def __init__(self, scene: Scene, file: Path, seed: int, found: Found) -> None:
        self._scene, self._file, self._found = scene, file, found
        self._chance = random.Random(f"{seed} hunter")
        self._runs: list[MirrorRun] = []
        self._due: list[tuple[float, MirrorRun]] = []

    def hunt(self, runs: list[MirrorRun], seconds: float) -> None:
        self._runs = runs
        lives = [_Life(self._start(flows), self._chance) for flows in self._scene.processes]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
            self._wake()
            for index, life in enumerate(lives):
                if life.is_over:
                    run = self._replace(life.run, self._scene.processes[index])
                    lives[index] = _Life(run, self._chance)
        for _, stopped in self._due:
            stopped.send_signal(signal.SIGCONT)
        for run in runs:
            if run.exit_code is None:
                run.kill_driver()
        for flows in self._scene.processes:
            self._start(flows)

    def _start(self, flows: tuple[str, ...]) -> MirrorRun:
        only = [word for flow in flows for word in ("--flow", flow)]
        log = self._file.with_name(f"run-{len(self._runs)}.log")
        # Without the lease one that was stopped does not hold the others up: the logs alone decide.
        run = MirrorRun(self._file, log, *only, "--no-lease", program=WITHOUT_SPARK)
        self._runs.append(run)
        return run

    def _replace(self, run: MirrorRun, flows: tuple[str, ...]) -> MirrorRun:
        assert run.exit_code is None, f"ended by itself:\n{run.last_words}"
        self._found.kills_while_copying += _COPYING in run.said
        if self._chance.randrange(_STOP_ONE_IN):
            self._found.kills += 1
            run.kill_driver()
        else:
            self._found.stops += 1
            run.send_signal(signal.SIGSTOP)
            self._due.append((time.monotonic() + self._chance.uniform(*_STOPPED_S), run))
        return self._start(flows)

    def _wake(self) -> None:
        """A stopped one goes on beside its successor for a moment, then it is killed as well."""
        for at, run in [each for each in self._due if each[0] <= time.monotonic()]:
            self._due.remove((at, run))
            run.send_signal(signal.SIGCONT)
            time.sleep(self._chance.uniform(0.0, 2.0))
            run.kill_driver()


def hunt(scene: Scene, *, seconds: float, seed: int, folder: Path) -> Found:
    found = Found(scene=scene.name, seed=seed, seconds=seconds)
    specs = [ClusterSpec(alias=alias, heap_mb=512) for alias in scene.aliases]
    with local_clusters(specs, root=folder / "clusters") as clusters:
        for cluster in clusters.values():
            lasting_topic(cluster, TOPIC, partitions=PARTITIONS)
        file = _file(scene, clusters, folder)
        writers = Writers(clusters, seed)
        with mirror_runs() as runs:
            with writers.writing():
                Hunter(scene, file, seed, found).hunt(runs, seconds)
            found.records, found.aborted = len(writers.wanted), writers.aborted
            found.undelivered = [f"{v}: {why}" for v, why in writers.undelivered.items()]
            settle(clusters, writers.wanted, frozenset(writers.undelivered), found)
            look_for_growth(clusters, found)
            check_maps(scene, file, clusters, found)
            translate(scene, file, clusters, found)
            if found.problems:
                keep_evidence(scene, clusters, folder / "evidence.json")
            for run in runs[-len(scene.processes) :]:
                assert run.exit_code is None, f"ended by itself:\n{run.last_words}"
    return found


def _file(scene: Scene, clusters: Mapping[str, LocalCluster], folder: Path) -> Path:
    rules = {
        "replication.policy.class": IDENTITY_POLICY,
        "topics": TOPIC,
        "loop.prevention": scene.prevention,
        "emit.checkpoints.enabled": "true",
        "emit.checkpoints.interval.seconds": "2",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "2",
        "refresh.groups.interval.seconds": "2",
    }
    top = {
        name: value for name, value in RECORDS_ONLY.items() if name != "emit.checkpoints.enabled"
    }
    return write_config(
        folder / "mm2.properties",
        clusters,
        # Groups are followed once nobody writes any more, and each by one flow: one that is
        # followed all the way round a mesh is moved forward where it stands (docs/GUARANTEES.md).
        {flow: {**rules, "groups": f"moves-{flow.replace('->', '-')}-.*"} for flow in scene.flows},
        top={**top, "checkpoints.topic.replication.factor": "1"},
    )


def write(found: Found, folder: Path = RESULTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"same-names-{found.scene}.json"
    path.write_text(
        json.dumps({"machine": asdict(this_machine()), **asdict(found)}, indent=2) + "\n",
        encoding="utf-8",
    )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", choices=SCENES, default="two")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 24))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="same-names-") as folder:
        found = hunt(
            SCENES[asked.scene], seconds=60 * asked.minutes, seed=asked.seed, folder=Path(folder)
        )
    print(json.dumps(asdict(found), indent=2))
    print(write(found))
    if found.problems:
        raise SystemExit("\n".join(found.problems))


if __name__ == "__main__":
    main()
