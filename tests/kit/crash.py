"""Run a mirror as a person would, find and kill its parts, and prove that its copy is exact."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import TopicPartition

from heliograph.ledger.service import LedgerService
from heliograph.ledger.translate import Exact, LaneEnd, OffsetMap
from heliograph.ledger.view import LaneRecord
from heliograph.model import FlowId, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import is_alive
from tests.kit.records import Rec, difference, read_all
from tests.kit.topics import admin_of, wait_until

REPOSITORY: Final = Path(__file__).parents[2]
ONCE_S_MAX: Final = 120.0
_START_S_MAX: Final = 120.0
_ORPHAN_S_MAX: Final = 20.0
_GRACE_S: Final = 30.0


class MirrorRun:
    """`heliograph run` as a process of its own, its log in a file."""

    def __init__(
        self,
        file: Path,
        log: Path,
        *,
        once: bool = False,
        master: str | None = None,
        lease: bool = True,
    ) -> None:
        self.log = log
        command = [sys.executable, "-m", "heliograph", "run", str(file), "--quiet"]
        command += ["--once"] if once else []
        command += ["--master", master] if master else []
        command += [] if lease else ["--no-lease"]
        with log.open("ab") as out:
            self.driver = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=out, stderr=subprocess.STDOUT
            )
        self._seen: dict[int, psutil.Process] = {}

    def family(self) -> list[psutil.Process]:
        """Driver, JVMs and Python workers that are alive; remembered, for when the driver is not.

        The JVM has a session of its own but stays the driver's child while the driver lives.
        """
        with contextlib.suppress(psutil.NoSuchProcess):
            driver = psutil.Process(self.driver.pid)
            for member in (driver, *driver.children(recursive=True)):
                self._seen[member.pid] = member
        for member in list(self._seen.values()):
            # Workers outlive their parents for a moment and then belong to nobody.
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in member.children(recursive=True):
                    self._seen[child.pid] = child
        return [member for member in self._seen.values() if is_alive(member.pid)]

    def workers(self) -> list[psutil.Process]:
        """Python workers that run a task: forks of PySpark's daemon."""
        return [
            member
            for member in self.family()
            if _is_daemon(member) and (parent := _parent(member)) is not None and _is_daemon(parent)
        ]

    def jvms(self) -> list[psutil.Process]:
        return [member for member in self.family() if _name(member) == "java"]

    def executors(self) -> list[psutil.Process]:
        """JVMs of executors, where they are processes of their own (`local-cluster`)."""
        return [
            jvm for jvm in self.jvms() if any("CoarseGrainedExecutor" in a for a in _command(jvm))
        ]

    def wait_copying(self) -> None:
        try:
            wait_until(
                lambda: self.driver.poll() is not None or self.has_copied,
                "the first records mirrored",
                timeout_s=_START_S_MAX,
            )
        except AssertionError as exc:
            raise AssertionError(f"{exc}\n{self.text()}") from exc
        self.family()
        assert self.driver.poll() is None, f"the mirror ended:\n{self.text()}"

    @property
    def has_copied(self) -> bool:
        return "first records mirrored" in self.text()

    def wait_worker(self) -> psutil.Process:
        wait_until(lambda: bool(self.workers()), "a Python worker", timeout_s=_START_S_MAX)
        return self.workers()[0]

    def kill_driver(self) -> None:
        """kill -9; returns once all it had started is gone too."""
        self.family()
        self.driver.kill()
        self.driver.wait()
        self.assert_gone()

    def assert_gone(self) -> None:
        """Nothing of this run goes on by itself; the lease bounds it at the latest."""
        wait_until(
            lambda: not self.family(),
            f"the end of {[(p.pid, _command(p)[:4]) for p in self.family()]}",
            timeout_s=_ORPHAN_S_MAX,
        )

    def wait_done(self, timeout_s: float = ONCE_S_MAX) -> None:
        """For `once`: it ends by itself, and well."""
        try:
            code = self.driver.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.close()
            raise AssertionError(f"not done in {timeout_s:.0f} s:\n{self.text()}") from None
        assert code == 0, f"ended with {code}:\n{self.text()}"
        self.assert_gone()

    def stop(self) -> None:
        """SIGTERM: drains, settles and ends."""
        if self.driver.poll() is None:
            self.family()
            self.driver.send_signal(signal.SIGTERM)
            self.wait_done(_GRACE_S)

    def close(self) -> None:
        """End whatever is left, at once."""
        for member in self.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(member.pid, signal.SIGKILL)
        self.driver.wait()

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def mirror_runs() -> Iterator[list[MirrorRun]]:
    """Runs appended to this list are ended with the block."""
    runs: list[MirrorRun] = []
    try:
        yield runs
    finally:
        for run in runs:
            run.close()


def mirror_file(
    folder: Path,
    source: LocalCluster,
    target: LocalCluster,
    *,
    topics: str,
    settings: Mapping[str, str] | None = None,
) -> Path:
    """An mm2.properties file for A->B."""
    lines = {
        "clusters": "A, B",
        "A.bootstrap.servers": source.bootstrap,
        "B.bootstrap.servers": target.bootstrap,
        "A->B.enabled": "true",
        "A->B.topics": topics,
        "replication.factor": str(len(target.brokers)),
        "heartbeats.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "5",
        "slots": "1",
        "slots.lease.ms.max": "8000",
        **(settings or {}),
    }
    path = folder / "mm2.properties"
    path.write_text("".join(f"{k} = {v}\n" for k, v in lines.items()), encoding="utf-8")
    return path


def assert_exact(
    source: LocalCluster,
    target: LocalCluster,
    ledgers: LedgerService,
    flow: FlowId,
    topic: str,
    target_topic: str,
    *,
    settled: bool = True,
) -> int:
    """Equal, in order, no repeats; every source offset translates to the record of its content.

    `settled`: the last writer has settled, so the heads say where the logs end.
    """
    wanted, mirrored = read_all(source, topic), read_all(target, target_topic)
    assert wanted.keys() == mirrored.keys()
    problems = []
    for number, records in wanted.items():
        problem = difference(records, mirrored[number])
        if problem is None:
            problem = _wrong_map(
                ledgers.view(flow).lane(TopicName(topic), number),
                records,
                mirrored[number],
                settled=settled,
            )
        if problem is not None:
            problems.append(f"{topic}-{number}: {problem}")
    assert not problems, "\n".join(problems)
    return sum(map(len, wanted.values()))


def _wrong_map(
    lane: LaneRecord | None, source: list[Rec], target: list[Rec], *, settled: bool
) -> str | None:
    """Where the ledger does not say what the logs say; None when it says it all."""
    if lane is None:
        return "the ledger does not know the lane"
    if not source:
        return None
    end = LaneEnd(
        position=len(source),
        source_next_offset=source[-1].offset + 1,
        target_next_offset=target[-1].offset + 1,
    )
    if settled:
        if lane.head is None:
            return "the ledger has no head"
        if (lane.head.position, lane.head.target_next_offset) != (
            end.position,
            end.target_next_offset,
        ):
            return f"the head is at {lane.head}, the log ends at {end}"
    offsets, next_source = OffsetMap(lane, end), source[0].offset
    for position, (left, right) in enumerate(zip(source, target, strict=True)):
        said = lane.runs.source_offset_at(position), lane.runs.target_offset_at(position)
        if said != (left.offset, right.offset):
            return f"position {position} is {(left.offset, right.offset)}, the map says {said}"
        # A consumer that stands in the gap before a record reads that record next.
        for offset in (next_source, left.offset):
            translated = offsets.to_target(offset)
            if translated != Exact(offset=right.offset):
                return f"source offset {offset} is target {right.offset}, got {translated}"
        next_source = left.offset + 1
    return None


def _parent(member: psutil.Process) -> psutil.Process | None:
    with contextlib.suppress(psutil.NoSuchProcess):
        return member.parent()
    return None


def _command(member: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return member.cmdline()
    return []


def _name(member: psutil.Process) -> str:
    with contextlib.suppress(psutil.NoSuchProcess):
        return member.name()
    return ""


def _is_daemon(member: psutil.Process) -> bool:
    return "pyspark.daemon" in _command(member)


def delete_before(cluster: LocalCluster, topic: str, partitions: int, offset: int) -> None:
    """What retention does, at once."""
    admin = admin_of(cluster)
    asked = [TopicPartition(topic, number, offset) for number in range(partitions)]
    for answer in admin.delete_records(asked).values():
        answer.result(30)
