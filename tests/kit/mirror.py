"""One flow in tests: its file, what arrives by it, and whether its map is exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from heliograph.config.load import load_config
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LaneRecord
from heliograph.model import ClusterAlias, FlowId, OffsetRange, StallReason, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.exact import assert_exact_lane
from tests.kit.records import Rec, assert_same_records, difference, end_offsets, read_all
from tests.kit.topics import create_topic, wait_until

COPY_S_MAX: Final = 60.0
_BEING_CREATED: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)

Settings = Mapping[str, str]


RECORDS_ONLY: Final[Settings] = {
    "emit.heartbeats.enabled": "false",
    # Other tests leave heartbeats on the shared clusters. Mirrored both ways between aliases that
    # are one cluster they would multiply: no name ever repeats.
    "heartbeats.replication.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "emit.offset-syncs.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
}
"""Nothing but topics and records, so that a test sees only what it made itself."""


def write_config(
    path: Path,
    clusters: Mapping[str, LocalCluster | str],
    flows: Mapping[str, Settings],
    *,
    top: Settings = RECORDS_ONLY,
) -> Path:
    """An `mm2.properties`; a cluster is one of ours or its bootstrap servers, a flow is `a->b`.

    Several aliases may name one cluster, so that one process mirrors under several policies.
    """
    common = {"replication.factor": "1", "refresh.topics.interval.seconds": "1", **top}
    lines = [
        f"clusters = {', '.join(clusters)}",
        *(f"{name} = {value}" for name, value in common.items()),
    ]
    for alias, cluster in clusters.items():
        if isinstance(cluster, str):
            lines.append(f"{alias}.bootstrap.servers = {cluster}")
            continue
        lines.append(f"{alias}.bootstrap.servers = {cluster.bootstrap}")
        lines += [f"{alias}.{name} = {value}" for name, value in cluster.client_config.items()]
    for flow, settings in flows.items():
        lines.append(f"{flow}.enabled = true")
        lines += [f"{flow}.{name} = {value}" for name, value in settings.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def lasting_topic(
    cluster: LocalCluster, topic: str, *, partitions: int = 1, config: Settings | None = None
) -> str:
    """A topic that keeps records of long ago: retention goes by their own timestamps."""
    return create_topic(
        cluster, topic, partitions=partitions, config={"retention.ms": "-1", **(config or {})}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One flow of a configuration between two real clusters, under DefaultReplicationPolicy."""

    config: Path
    flow: FlowId
    source: LocalCluster
    target: LocalCluster

    def renamed(self, topic: str) -> str:
        return f"{self.flow.source}.{topic}"

    def appended(self, topic: str) -> int:
        """Offsets the target topic has used; 0 while it is still being created."""
        try:
            return sum(end_offsets(self.target, self.renamed(topic)).values())
        except KafkaException as exc:
            if exc.args[0].code() in _BEING_CREATED:
                return 0
            raise

    def await_records(
        self, topic: str, count: int, *, read_committed: bool = True, timeout_s: float = COPY_S_MAX
    ) -> dict[int, list[Rec]]:
        """Until a consumer of the target gets at least this many; those it gets."""
        renamed = self.renamed(topic)
        found: dict[int, list[Rec]] = {}

        def arrived() -> bool:
            nonlocal found
            # Records take at least an offset each, and ends are asked for at no cost.
            if self.appended(topic) < count:
                return False
            found = read_all(self.target, renamed, read_committed=read_committed)
            return sum(map(len, found.values())) >= count

        wait_until(arrived, f"{count} records in {renamed}", timeout_s=timeout_s, poll_s=0.1)
        return found

    def assert_arrives(
        self, topic: str, *, read_committed: bool = True, timeout_s: float = COPY_S_MAX
    ) -> int:
        """Everything in the source topic gets to the target, equal and in order; how many."""
        wanted = read_all(self.source, topic, read_committed=read_committed)
        count = sum(map(len, wanted.values()))
        found = self.await_records(topic, count, read_committed=read_committed, timeout_s=timeout_s)
        ends = sum(records[-1].offset + 1 for records in found.values() if records)
        is_same = wanted.keys() == found.keys() and all(
            difference(records, found[number]) is None for number, records in wanted.items()
        )
        # Neither side is read again where nothing came to the target meanwhile.
        if is_same and self.appended(topic) == ends:
            return count
        return assert_same_records(
            self.source,
            self.target,
            topic,
            self.renamed(topic),
            read_committed=read_committed,
        )

    def lane_records(self, topic: str) -> dict[int, LaneRecord]:
        """What the ledger says of each lane of the topic now."""
        ledgers = LedgerService(load_config(self.config).clusters)
        try:
            view = ledgers.view(self.flow)
            found = {
                lane.partition: view.lane(TopicName(topic), lane.partition)
                for lane in view.lanes
                if lane.topic == topic
            }
            return {number: record for number, record in found.items() if record is not None}
        finally:
            ledgers.close()

    def await_stall(
        self, topic: str, reason: StallReason, *, partition: int = 0, timeout_s: float = COPY_S_MAX
    ) -> str:
        """Until the ledger says that the lane is stalled for that reason; the sentence it gives."""
        found: dict[int, LaneRecord] = {}

        def is_stalled() -> bool:
            nonlocal found
            found = self.lane_records(topic)
            head = found[partition].head if partition in found else None
            return head is not None and head.state == f"stalled: {reason.value}"

        what = f"{self.flow}/{topic}-{partition} stalled: {reason}"
        try:
            wait_until(is_stalled, what, timeout_s=timeout_s, poll_s=0.2)
        except AssertionError as exc:
            raise AssertionError(f"{exc}; the ledger has {found}") from exc
        head = found[partition].head
        assert head is not None
        return head.detail

    def await_losses(self, topic: str, *lost: OffsetRange) -> None:
        """Until the ledger has exactly these source offsets as given up, and no others."""

        def are_noted() -> bool:
            record = self.lane_records(topic).get(0)
            return record is not None and [loss.lost for loss in record.losses] == list(lost)

        wait_until(are_noted, f"{lost} given up in {topic}", timeout_s=COPY_S_MAX, poll_s=0.2)

    def assert_exact_map(
        self, topic: str, *, read_committed: bool = True, gaps: bool = True
    ) -> None:
        """Every offset of the source translates to the record that is there, and back.

        Without `gaps`, offsets that hold no record now are left out: they did when mirrored.
        """
        source = read_all(self.source, topic, read_committed=read_committed)
        target = read_all(self.target, self.renamed(topic), read_committed=read_committed)
        lanes = self.lane_records(topic)
        for partition, records in source.items():
            if records:
                assert_exact_lane(lanes[partition], records, target[partition], gaps=gaps)


def route(
    config: Path, source: tuple[str, LocalCluster], target: tuple[str, LocalCluster]
) -> Route:
    return Route(
        config=config,
        flow=FlowId(source=ClusterAlias(source[0]), target=ClusterAlias(target[0])),
        source=source[1],
        target=target[1],
    )
