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
import asyncio
import itertools
import json
import random
import signal
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from tests.kit.groups import commit, committed
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, write_config
from tests.kit.records import Rec, end_offsets, read_all
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, mirror_runs
from tests.kit.topics import admin_of, wait_until

from heliograph.config.load import load_config
from heliograph.config.sections import IDENTITY_POLICY
from heliograph.groups.placement import GroupMove, Strategy, plan_group_offsets
from heliograph.groups.snapshot import read_snapshot
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters

Log = Mapping[int, list[Rec]]
RESULTS: Final = Path(__file__).parent / "results" / "mesh"
TOPIC: Final = "shared"
PARTITIONS: Final = 3
QUIET_S: Final = 20.0
"""How long no log may grow after the last record has arrived."""
GROUPS: Final = 8
"""Groups of each flow's source that are looked for on its target."""
_KINDS: Final = ("plain", "idempotent", "transactional")
_PAUSE_S: Final = (0.05, 0.6)
_RECORDS: Final = (1, 40)
_LIFE_S: Final = (0.3, 14.0)
_STOPPED_S: Final = (2.0, 12.0)
_STOP_ONE_IN: Final = 4
_SETTLE_S_MAX: Final = 120.0
_FLUSH_S: Final = 60.0
_COPYING: Final = "first records mirrored"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    name: str
    aliases: tuple[str, ...]
    prevention: str
    processes: tuple[tuple[str, ...], ...]
    """The flows of each mirror process."""

    @property
    def flows(self) -> tuple[str, ...]:
        return tuple(itertools.chain.from_iterable(self.processes))


SCENES: Final = {
    scene.name: scene
    for scene in (
        Scene(
            name="two",
            aliases=("A", "B"),
            prevention="returning",
            processes=(("A->B",), ("B->A",)),
        ),
        Scene(
            name="mesh",
            aliases=("A", "B", "C"),
            prevention="mirrored",
            processes=(("B->A", "C->A"), ("A->B", "C->B"), ("A->C", "B->C")),
        ),
        Scene(
            name="chain",
            aliases=("A", "B", "C"),
            prevention="returning",
            processes=(("A->B", "B->A"), ("B->C", "C->B")),
        ),
    )
}


@dataclass(slots=True, kw_only=True)
class Found:
    """What a hunt was, and what it found; all lists of problems empty is what it must be."""

    scene: str
    seed: int
    seconds: float
    kills: int = 0
    kills_while_copying: int = 0
    stops: int = 0
    records: int = 0
    aborted: int = 0
    settled_s: float = 0.0
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)
    wrong_map: list[str] = field(default_factory=list)
    """Records that are not where the ledger says, the first of each stretch."""
    places: int = 0
    """Partitions of groups that were translated."""
    skipped: list[str] = field(default_factory=list)
    third_party: list[str] = field(default_factory=list)
    """Skipped records of a cluster that is neither of the two: a limit that the docs name."""
    read_again_needlessly: list[str] = field(default_factory=list)
    not_synced: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        kinds = (
            "lost",
            "repeated",
            "out_of_order",
            "grown",
            "wrong_map",
            "skipped",
            "read_again_needlessly",
            "not_synced",
        )
        return [f"{kind}: {each}" for kind in kinds for each in getattr(self, kind)[:5]]


class Writers:
    """Threads that write `<cluster>.<kind>.<number>` and know what must be there in the end."""

    def __init__(self, clusters: Mapping[str, LocalCluster], seed: int) -> None:
        self.wanted: list[str] = []
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
                producer.produce(TOPIC, value.encode(), value.encode(), partition=number)
            left = producer.flush(_FLUSH_S)
            assert left == 0, f"{name}: {left} records were not acknowledged"
            if kind == "transactional" and chance.random() < 0.3:
                producer.abort_transaction(_FLUSH_S)
                self.aborted += len(some)
                continue
            if kind == "transactional":
                producer.commit_transaction(_FLUSH_S)
            self.wanted += some


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


class Hunter:
    """Kills and stops the mirrors of a scene, and always has others in their places."""

    def __init__(self, scene: Scene, file: Path, seed: int, found: Found) -> None:
        self._scene, self._file, self._found = scene, file, found
        self._chance = random.Random(f"{seed} hunter")
        self._runs: list[MirrorRun] = []
        self._due: list[tuple[float, MirrorRun]] = []

    def hunt(self, runs: list[MirrorRun], seconds: float) -> None:
        self._runs = runs
        current = [self._start(flows) for flows in self._scene.processes]
        dies_at = [time.monotonic() + self._life_s() for _ in current]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
            self._wake()
            for index, at in enumerate(dies_at):
                if time.monotonic() >= at:
                    current[index] = self._replace(current[index], self._scene.processes[index])
                    dies_at[index] = time.monotonic() + self._life_s()
        for _, stopped in self._due:
            stopped.send_signal(signal.SIGCONT)
        for run in runs:
            if run.exit_code is None:
                run.kill_driver()
        for flows in self._scene.processes:
            self._start(flows)

    def _life_s(self) -> float:
        # Many lives are short: what a start does is as good a moment as any.
        return self._chance.choice((1.0, 0.4)) * self._chance.uniform(*_LIFE_S)

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
            _settle(scene, clusters, writers, found)
            _look_for_growth(clusters, found)
            _check_maps(scene, file, clusters, found)
            _translate(scene, file, clusters, found)
            for run in runs[-len(scene.processes) :]:
                assert run.exit_code is None, f"ended by itself:\n{run.last_words}"
    return found


def _file(scene: Scene, clusters: Mapping[str, LocalCluster], folder: Path) -> Path:
    rules = {
        "replication.policy.class": IDENTITY_POLICY,
        "topics": TOPIC,
        "loop.prevention": scene.prevention,
        # Groups are followed once nobody writes any more.
        "groups": "moves-.*",
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
        dict.fromkeys(scene.flows, rules),
        top={**top, "checkpoints.topic.replication.factor": "1"},
    )


def _settle(
    scene: Scene, clusters: Mapping[str, LocalCluster], writers: Writers, found: Found
) -> None:
    """Until every cluster has as many records as were written, or no more come."""
    began = time.monotonic()
    wanted = Counter(writers.wanted)
    logs: dict[str, dict[int, list[Rec]]] = {}
    deadline, before = began + _SETTLE_S_MAX, 0
    while time.monotonic() < deadline:
        logs = {alias: read_all(cluster, TOPIC) for alias, cluster in clusters.items()}
        count = sum(len(some) for log in logs.values() for some in log.values())
        if count != before:
            before, deadline = count, time.monotonic() + _SETTLE_S_MAX
        if all(sum(map(len, log.values())) >= wanted.total() for log in logs.values()):
            break
        time.sleep(1.0)
    found.settled_s = round(time.monotonic() - began, 1)
    for alias, log in logs.items():
        have = Counter((rec.value or b"").decode() for some in log.values() for rec in some)
        found.lost += [f"{alias}: {each}" for each in (wanted - have)]
        found.repeated += [f"{alias}: {each}" for each in (have - wanted)]
        for number, some in log.items():
            found.out_of_order += [f"{alias}-{number}: {each}" for each in _disorder(some)]


def _disorder(records: list[Rec]) -> Iterator[str]:
    last: dict[str, int] = defaultdict(lambda: -1)
    for rec in records:
        writer, _, number = (rec.value or b"").decode().rpartition(".")
        if int(number) <= last[writer]:
            yield f"{writer}.{number} after {writer}.{last[writer]}"
        last[writer] = int(number)


def _look_for_growth(clusters: Mapping[str, LocalCluster], found: Found) -> None:
    """Logs of all topics, ledgers too, that are longer after a while in which nobody writes."""

    def ends() -> dict[str, dict[int, int]]:
        return {
            f"{alias}/{name}": end_offsets(cluster, name)
            for alias, cluster in clusters.items()
            for name in admin_of(cluster).list_topics(timeout=30).topics
            if not name.startswith("__")
        }

    # The last heads and checkpoints of a lane that has just caught up are written meanwhile.
    time.sleep(QUIET_S / 2)
    before = ends()
    time.sleep(QUIET_S)
    after = ends()
    for name, now in after.items():
        if now != before.get(name):
            found.grown.append(f"{name}: {before.get(name)} became {now}")


def _check_maps(
    scene: Scene, file: Path, clusters: Mapping[str, LocalCluster], found: Found
) -> None:
    """Each record that a flow carried is where its map says."""
    logs = {alias: read_all(cluster, TOPIC) for alias, cluster in clusters.items()}
    with closing(LedgerService(load_config(file).clusters)) as ledgers:
        for flow in scene.flows:
            source, _, target = flow.partition("->")
            view = ledgers.view(FlowId(source=ClusterAlias(source), target=ClusterAlias(target)))
            for number in range(PARTITIONS):
                lane = view.lane(TopicName(TOPIC), number)
                assert lane is not None, f"{flow} knows nothing of partition {number}"
                there = {rec.value: rec.offset for rec in logs[target][number]}
                was_wrong = False
                for rec in logs[source][number]:
                    position = lane.runs.position_of_source(rec.offset)
                    if lane.head is None or position >= lane.head.position:
                        # Behind the last record the last run only counts on.
                        break
                    is_carried = lane.runs.source_offset_at(position) == rec.offset
                    place = lane.runs.target_offset_at(position)
                    is_wrong = is_carried and there.get(rec.value) != place
                    if is_wrong and not was_wrong:
                        found.wrong_map.append(
                            f"{flow} {number}: {rec.value!r} source {rec.offset}, position "
                            f"{position}: map {place}, log {there.get(rec.value)}"
                        )
                    was_wrong = is_wrong


def _translate(
    scene: Scene, file: Path, clusters: Mapping[str, LocalCluster], found: Found
) -> None:
    """Groups that stand anywhere on one side, by `heliograph offsets` and by the mirrors."""
    chance = random.Random(f"{found.seed} groups")
    config = load_config(file)
    logs = {alias: read_all(cluster, TOPIC) for alias, cluster in clusters.items()}
    stand: dict[tuple[str, str], dict[int, int]] = {}
    for flow in scene.flows:
        source = flow.partition("->")[0]
        for number in range(GROUPS):
            ends = end_offsets(clusters[source], TOPIC)
            at = {part: chance.randint(0, end) for part, end in ends.items()}
            group = f"moves-{flow.replace('->', '-')}-{number}"
            stand[flow, group] = at
            commit(clusters[source], group, TOPIC, at)
    for flow in scene.flows:
        source, _, target = flow.partition("->")
        known = asyncio.run(
            read_snapshot(
                config,
                FlowId(source=ClusterAlias(source), target=ClusterAlias(target)),
                lambda group, flow=flow: (flow, group) in stand,  # type: ignore[misc]
            )
        )
        plan = plan_group_offsets(known, Strategy.MAP)
        found.not_synced += [f"{flow} {each.group}: {each.why}" for each in plan.unplaced]
        for move in plan.moves:
            stood = stand[flow, move.group][move.source.partition]
            _judge(scene, flow, move, stood, logs, found)
    _await_sync(scene, clusters, stand, found)


def _judge(
    scene: Scene, flow: str, move: GroupMove, stood: int, logs: Mapping[str, Log], found: Found
) -> None:
    """What the group has not read on the source must lie behind its place on the target."""
    found.places += 1
    source, _, target = flow.partition("->")
    there, place = logs[target][move.source.partition], move.target_offset
    here = logs[source][move.source.partition]
    unread = {rec.value for rec in here if rec.offset >= stood}
    where = f"{flow} {move.group} {move.source} {stood} -> {place}"
    skipped = [
        (rec.value or b"").decode() for rec in there if rec.offset < place and rec.value in unread
    ]
    of_third = [each for each in skipped if each.partition(".")[0] not in (source, target)]
    if scene.prevention != "mirrored":
        # Along a chain the records of a third cluster are the neighbour's.
        of_third = []
    if of_third:
        found.third_party.append(f"{where}: {len(of_third)} records, {of_third[:3]}")
    if len(skipped) > len(of_third):
        found.skipped.append(f"{where}: {len(skipped) - len(of_third)} records, {skipped[:3]}")
    behind = (rec for rec in there if rec.offset >= place)
    needless = list(itertools.takewhile(lambda rec: rec.value not in unread, behind))
    if needless:
        first = [rec.value for rec in needless[:3]]
        found.read_again_needlessly.append(f"{where}: {len(needless)} records, {first}")


def _await_sync(
    scene: Scene,
    clusters: Mapping[str, LocalCluster],
    stand: Mapping[tuple[str, str], Mapping[int, int]],
    found: Found,
) -> None:
    """The mirrors commit the same groups on the target by themselves."""
    for (flow, group), at in stand.items():
        target = clusters[flow.partition("->")[2]]

        def is_there(target: LocalCluster = target, group: str = group) -> bool:
            return len(committed(target, group, TOPIC)) == PARTITIONS

        try:
            wait_until(is_there, group, timeout_s=60.0)
        except AssertionError:
            found.not_synced.append(
                f"{flow} {group} at {dict(at)}: {committed(target, group, TOPIC)}"
            )


def write(found: Found) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"same-names-{found.scene}.json"
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
