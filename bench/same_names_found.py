"""What must hold of clusters that all took writes under one name, and how it is looked for.

For `bench.same_names`, once the writers have stopped: each record once everywhere, those of each
writer in order; no log that grows; maps that say where each record is; groups that skip nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.kit.groups import commit, committed
from tests.kit.records import Rec, end_offsets, read_all
from tests.kit.topics import admin_of, wait_until

from heliograph.config.load import load_config
from heliograph.groups.placement import GroupMove, Strategy, plan_group_offsets
from heliograph.groups.snapshot import read_snapshot
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster

Log = Mapping[int, list[Rec]]
TOPIC: Final = "shared"
PARTITIONS: Final = 3
QUIET_S: Final = 20.0
"""How long no log may grow after the last record has arrived."""
GROUPS: Final = 8
"""Groups of each flow's source that are looked for on its target."""
_SETTLE_S_MAX: Final = 120.0


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
    undelivered: list[str] = field(default_factory=list)
    """Records that no cluster confirmed to their writer: in all logs, or in none."""
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
    read_again_at_end: list[str] = field(default_factory=list)
    """The same of groups that have read all the flow brought: they go on behind its last record,
    whatever others wrote behind that."""
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


def settle(
    clusters: Mapping[str, LocalCluster],
    records_wanted: list[str],
    undelivered: frozenset[str],
    found: Found,
) -> None:
    """Until every cluster has as many records as were written, or no more come."""
    began = time.monotonic()
    wanted = Counter(records_wanted)
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
    unsure: set[str] = set()
    for log in logs.values():
        for some in log.values():
            unsure |= undelivered & {(rec.value or b"").decode() for rec in some}
    wanted += Counter(unsure)
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


def look_for_growth(clusters: Mapping[str, LocalCluster], found: Found) -> None:
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


def check_maps(
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
                    # What was written on the source itself is carried, whatever else is not.
                    is_local = (rec.value or b"").decode().partition(".")[0] == source
                    is_wrong = (is_carried or is_local) and there.get(rec.value) != place
                    is_wrong = is_wrong or (is_local and not is_carried)
                    if is_wrong and not was_wrong:
                        found.wrong_map.append(
                            f"{flow} {number}: {rec.value!r} source {rec.offset}, position "
                            f"{position}: map {place}, log {there.get(rec.value)}"
                        )
                    was_wrong = is_wrong


def translate(scene: Scene, file: Path, clusters: Mapping[str, LocalCluster], found: Found) -> None:
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
    if move.source_offset != stood:
        # Another flow follows the group too, and has moved it here.
        where += f", at {move.source_offset} by then"
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
        said = f"{where}: {len(needless)} records, {first}"
        origins = {(value or b"").decode().partition(".")[0] for value in unread}
        if origins & _carried(scene, flow):
            found.read_again_needlessly.append(said)
        else:
            found.read_again_at_end.append(said)


def _carried(scene: Scene, flow: str) -> set[str]:
    """Where the records began that the flow brings."""
    source, _, target = flow.partition("->")
    is_middle = scene.name == "chain" and source == scene.aliases[1]
    return set(scene.aliases) - {target} if is_middle else {source}


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


def keep_evidence(scene: Scene, clusters: Mapping[str, LocalCluster], path: Path) -> None:
    """The logs and the ledgers, by which what was found can be followed once the clusters are
    gone."""
    logs = {
        alias: {
            number: [(rec.offset, (rec.value or b"").decode()) for rec in some]
            for number, some in read_all(cluster, TOPIC).items()
        }
        for alias, cluster in clusters.items()
    }
    ledgers = {
        flow: [
            ((rec.key or b"").hex(), None if rec.value is None else rec.value.hex())
            for rec in read_all(clusters[target], ledger_topic(ClusterAlias(source)))[0]
        ]
        for flow in scene.flows
        for source, _, target in [flow.partition("->")]
    }
    path.write_text(json.dumps({"logs": logs, "ledgers": ledgers}) + "\n")
