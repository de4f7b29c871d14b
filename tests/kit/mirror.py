"""The real thing in tests: `heliograph run` as its own process, what it says, what its map says."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from heliograph.config.load import load_config
from heliograph.ledger.service import LedgerService
from heliograph.ledger.translate import Exact, LaneEnd, OffsetMap
from heliograph.ledger.view import LaneRecord
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.maps import offset_of
from tests.kit.records import Rec, assert_same_records, end_offsets, read_all
from tests.kit.topics import admin_of, create_topic, wait_until

START_S_MAX: Final = 90.0
COPY_S_MAX: Final = 60.0
STOP_S_MAX: Final = 90.0
_LAST_WORDS: Final = 4_000
_GAP_CHECKED: Final = 100
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
    lines = [
        f"clusters = {', '.join(clusters)}",
        "replication.factor = 1",
        "refresh.topics.interval.seconds = 1",
        *(f"{name} = {value}" for name, value in top.items()),
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


class MirrorRun:
    """One `heliograph run`, in a process group of its own, as a terminal would start it."""

    def __init__(self, config: Path, log_path: Path, *arguments: str) -> None:
        self.config = config
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "heliograph", "run", str(config), "--quiet", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """Everything the process wrote, Spark's own words included."""
        return self._log_path.read_text(encoding="utf-8", errors="replace")

    @property
    def exit_code(self) -> int | None:
        return self._child.poll()

    def wait_for_words(self, *words: str, timeout_s: float = COPY_S_MAX) -> str:
        """The first line that holds all of these; fails with the log's end when there is none."""
        found = ""

        def heard() -> bool:
            nonlocal found
            lines = self.said.splitlines()
            found = next((line for line in lines if all(word in line for word in words)), "")
            if not found and self.exit_code is not None:
                raise AssertionError(f"ended with {self.exit_code}:\n{self.last_words}")
            return bool(found)

        try:
            wait_until(heard, f"a line with {words}", timeout_s=timeout_s)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.last_words}") from exc
        return found

    def await_running(self) -> None:
        self.wait_for_words("lanes handed to", timeout_s=START_S_MAX)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, group: bool = False) -> int:
        """Ask it to end; the exit code. A terminal's Ctrl-C reaches the whole `group`."""
        if group:
            os.killpg(self._child.pid, number)
        else:
            self._child.send_signal(number)
        return self.wait()

    def wait(self, timeout_s: float = STOP_S_MAX) -> int:
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise AssertionError(f"still running after {timeout_s} s:\n{self.last_words}") from exc

    def members(self) -> list[psutil.Process]:
        """The process and all its children: Spark's JVM, Python workers."""
        try:
            root = psutil.Process(self._child.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """At once, children included."""
        for member in self.members():
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        self._child.wait(STOP_S_MAX)

    @property
    def last_words(self) -> str:
        return self.said[-_LAST_WORDS:]


@contextmanager
def running_mirror(config: Path, *arguments: str) -> Iterator[MirrorRun]:
    """Up and carrying lanes; whatever is left of it at the end is killed."""
    mirror = MirrorRun(config, config.with_suffix(f".{time.monotonic_ns()}.log"), *arguments)
    try:
        mirror.await_running()
        yield mirror
    finally:
        mirror.kill()


def mirror_once(config: Path, *, timeout_s: float = 180.0) -> MirrorRun:
    """`run --once`, ended by itself."""
    log_path = config.with_suffix(f".{time.monotonic_ns()}.log")
    mirror = MirrorRun(config, log_path, "--once")
    try:
        mirror.wait(timeout_s)
    finally:
        mirror.kill()
    return mirror


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
    ) -> None:
        """Until a consumer of the target gets at least this many."""
        renamed = self.renamed(topic)

        def arrived() -> bool:
            found = read_all(self.target, renamed, read_committed=read_committed)
            return sum(map(len, found.values())) >= count

        wait_until(arrived, f"{count} records in {renamed}", timeout_s=timeout_s, poll_s=0.1)

    def assert_arrives(
        self, topic: str, *, read_committed: bool = True, timeout_s: float = COPY_S_MAX
    ) -> int:
        """Everything in the source topic gets to the target, equal and in order; how many."""
        wanted = read_all(self.source, topic, read_committed=read_committed)
        count = sum(map(len, wanted.values()))
        self.await_records(topic, count, read_committed=read_committed, timeout_s=timeout_s)
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


def assert_exact_lane(
    lane: LaneRecord, source: Sequence[Rec], target: Sequence[Rec], *, gaps: bool = True
) -> None:
    """`source` is all mirrored; `target` may hold records of others too."""
    runs, there = lane.runs, {record.offset: record for record in target}
    last = source[-1].offset
    last_position = runs.position_of_source(last)
    last_target = runs.target_offset_at(last_position)
    end = LaneEnd(
        position=last_position + 1,
        source_next_offset=last + 1,
        target_next_offset=last_target + 1,
    )
    offsets = OffsetMap(lane, end)
    asked = 0
    for record in source:
        position = runs.position_of_source(record.offset)
        found = runs.target_offset_at(position)
        assert runs.source_offset_at(position) == record.offset, f"no run holds {record.offset}"
        assert found in there, f"source {record.offset} maps to {found}, where nothing is"
        assert there[found].content == record.content, f"source {record.offset} is not at {found}"
        assert offsets.to_source(found) == Exact(offset=record.offset)
        # A consumer that stands in a gap goes on with the record behind it.
        since = max(asked, record.offset - _GAP_CHECKED) if gaps else record.offset
        for offset in range(since, record.offset + 1):
            answer = offsets.to_target(offset)
            assert offset_of(answer) == found, f"source offset {offset}"
        asked = record.offset + 1
    assert offsets.to_target(last + 1) == Exact(offset=last_target + 1)


def delete_records_before(cluster: LocalCluster, topic: str, offsets: Mapping[int, int]) -> None:
    """What retention does, at once and to the offset: each log then starts there."""
    admin = admin_of(cluster)
    wanted = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
    for answer in admin.delete_records(wanted).values():
        answer.result(30)
