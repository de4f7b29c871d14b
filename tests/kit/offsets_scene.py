"""A flow with groups whose records a test knows, to move them and to say where they stand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from heliograph.model import ClusterAlias, FlowId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.groups import commit, committed
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import (
    NewRec,
    Rec,
    Transaction,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.topics import force_compaction

ORDERS, STATE, TIMES = "offs-orders", "offs-state", "offs-times"
FOREIGN = b"foreign"
BASE_MS = 1_700_000_000_000
TIMESTAMPS = [BASE_MS + at for at in (50, 10, 90, 20, 20, 70, 30, 130, 40, 110)]
GROUPS = 6

Logs = dict[tuple[str, int], list[Rec]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Three topics mirrored in two goes, with foreign writes in between; groups all over them."""

    source: LocalCluster
    target: LocalCluster
    flow: FlowId
    file: Path
    originals: Logs
    copies: Logs
    """As they are on the target, by their names on the source."""

    def copy_of(self, topic: str) -> str:
        return f"{self.flow.source}.{topic}"

    def place(self, number: int) -> dict[str, dict[int, int]]:
        """Where group `number` stands on the source: from all starts to all ends."""
        found: dict[str, dict[int, int]] = {ORDERS: {}, STATE: {}}
        for (topic, partition), records in self.originals.items():
            if topic in found:
                end = records[-1].offset + 1
                found[topic][partition] = end * number // (GROUPS - 1)
        return found

    def group(self, number: int) -> str:
        return f"{self.flow.source}-g{number}"

    @property
    def all_groups(self) -> str:
        return f"{self.flow.source}-g.*"


def built(source: LocalCluster, target: LocalCluster, alias: str, folder: Path) -> Scene:
    flow = FlowId(source=ClusterAlias(alias), target=ClusterAlias(f"{alias}-copy"))
    file = config_file(folder / "mm2.properties", flow, source, target)
    lasting_topic(source, ORDERS, partitions=2)
    lasting_topic(source, STATE)
    lasting_topic(source, TIMES)
    produce(source, STATE, numbered(60, keys=9))
    force_compaction(source, STATE)
    produce(source, TIMES, [NewRec(value=b"t", timestamp_ms=at) for at in TIMESTAMPS[:6]])
    write_orders(source, 0)
    carry(file, lanes=4)
    for topic in (ORDERS, STATE):
        produce(
            target, f"{alias}.{topic}", [NewRec(key=b"f%d" % n, value=FOREIGN) for n in range(5)]
        )
    write_orders(source, 1)
    produce(source, STATE, numbered(20, start=60))
    produce(source, TIMES, [NewRec(value=b"t", timestamp_ms=at) for at in TIMESTAMPS[6:]])
    originals = {
        (topic, n): records
        for topic in (ORDERS, STATE, TIMES)
        for n, records in read_all(source, topic).items()
    }
    scene = Scene(
        source=source, target=target, flow=flow, file=file, originals=originals, copies={}
    )
    for number in range(GROUPS):
        for topic, locations in scene.place(number).items():
            commit(source, scene.group(number), topic, locations)
    commit(source, f"{alias}-timed", TIMES, {0: 4})
    carry(file, lanes=4, checkpoints=True)
    for topic in (ORDERS, STATE, TIMES):
        for n, records in read_all(target, f"{alias}.{topic}").items():
            scene.copies[topic, n] = records
    return scene


def config_file(
    path: Path, flow: FlowId, source: LocalCluster | str, target: LocalCluster, **more: str
) -> Path:
    settings = {
        "topics": "offs-.*",
        "groups": f"{flow.source}-.*",
        "emit.checkpoints.enabled": "true",
        "checkpoints.topic.replication.factor": "1",
        **more,
    }
    clusters: dict[str, LocalCluster | str] = {flow.source: source, flow.target: target}
    return write_config(path, clusters, {str(flow): settings})


def write_orders(cluster: LocalCluster, turn: int) -> None:
    """Committed and aborted transactions, markers between them, plain records."""
    made = [
        Transaction(records=numbered(7, partitions=2, start=turn * 1_000 + 10 * n), commit=n != 1)
        for n in range(4)
    ]
    produce_transactions(cluster, ORDERS, made, transactional_id=f"{ORDERS}-{turn}")
    produce(cluster, ORDERS, numbered(20, partitions=2, start=turn * 1_000 + 500))


def committed_everywhere(scene: Scene) -> dict[tuple[str, str, int], int]:
    return {
        (scene.group(number), topic, partition): offset
        for number in range(GROUPS)
        for topic in (ORDERS, STATE)
        for partition, offset in committed(
            scene.target, scene.group(number), scene.copy_of(topic)
        ).items()
    }
