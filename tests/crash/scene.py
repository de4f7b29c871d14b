"""One flow between two clusters, carried by children that die where a test says."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from heliograph.config.schema import ClusterConfig
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, FlowId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.carrier import FETCH_BYTES
from tests.crash.children import Child
from tests.kit.exact import assert_exact
from tests.kit.records import NewRec, Transaction, produce, produce_transactions
from tests.kit.topics import create_topic, wait_until

PARTITIONS: Final = 2
_CHILD_S_MAX: Final = 90.0


@dataclass(slots=True, kw_only=True)
class Scene:
    """A topic with gaps at the source, its target topic, and a ledger of their own."""

    source: LocalCluster
    target: LocalCluster
    flow: FlowId
    topic: str
    target_topic: str
    folder: Path
    children: list[Child]
    transforms: list[dict[str, str]] = field(default_factory=list)
    """What the lanes' records go through."""
    fates: dict[str, str] = field(default_factory=dict)
    """What becomes of records that cannot be mirrored, as fields of `FetchLimits`."""
    written: int = 0
    foreign: bool = False
    """Somebody else writes to the target topic beside every child."""

    @property
    def configs(self) -> dict[ClusterAlias, ClusterConfig]:
        clusters = {self.flow.source: self.source, self.flow.target: self.target}
        return {
            alias: ClusterConfig(alias=alias, bootstrap_servers=tuple(cluster.bootstrap.split(",")))
            for alias, cluster in clusters.items()
        }

    def write(self, transactions: int = 24) -> None:
        """Records with a gap after every few of them: commit markers, aborted transactions."""
        made = []
        for number in range(transactions):
            records = self._records(3 + number % 5)
            made.append(Transaction(records=records, commit=number % 3 != 1))
        produce_transactions(self.source, self.topic, made, transactional_id=self.topic)
        produce(self.source, self.topic, self._records(20), batch_records_max=4)

    def write_plain(self, count: int, value_bytes: int = 40) -> None:
        produce(self.source, self.topic, self._records(count, value_bytes), batch_records_max=10)

    def start(
        self,
        step: str | None = None,
        *,
        after: int = 1,
        number: signal.Signals = signal.SIGKILL,
        offsets: str = "mapped",
        fetch_bytes: int = FETCH_BYTES,
    ) -> Child:
        """A child that carries until caught up, or until it has passed `step` `after` times."""
        order = {
            "source": self.flow.source,
            "target": self.flow.target,
            "servers": {alias: config.bootstrap_servers for alias, config in self.configs.items()},
            "topic": self.topic,
            "target_topic": self.target_topic,
            "offsets": offsets,
            "fetch_bytes": fetch_bytes,
            "foreign": self.foreign,
            "transforms": self.transforms,
            "fates": self.fates,
            "step": step,
            "after": after,
            "signal": int(number),
        }
        path = self.folder / f"order-{len(self.children)}.json"
        path.write_text(json.dumps(order), encoding="utf-8")
        child = Child(path)
        self.children.append(child)
        return child

    def carry(self, *, offsets: str = "mapped", fetch_bytes: int = FETCH_BYTES) -> None:
        """Let a fresh child catch up."""
        code = self.start(offsets=offsets, fetch_bytes=fetch_bytes).wait(_CHILD_S_MAX)
        assert code == 0, f"the child ended with {code}"

    def carry_until_killed(self, step: str, *, after: int = 1, offsets: str = "mapped") -> None:
        code = self.start(step, after=after, offsets=offsets).wait(_CHILD_S_MAX)
        if code == 0 and after > 1:
            # It caught up in fewer passes than asked for, since its ledger writes were grouped.
            self.write(12)
            code = self.start(step, after=1, offsets=offsets).wait(_CHILD_S_MAX)
        assert code == -signal.SIGKILL, f"the child ended with {code} and never came to: {step}"

    def start_and_stop_at(self, step: str, *, after: int = 1, offsets: str = "mapped") -> Child:
        """A child that has stopped itself at `step` and waits for SIGCONT."""
        child = self.start(step, after=after, number=signal.SIGSTOP, offsets=offsets)
        wait_until(
            lambda: (
                child.poll() is not None
                or psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
            ),
            f"a child that stops at: {step}",
        )
        assert child.returncode is None, f"it ended with {child.returncode}, never at: {step}"
        return child

    def assert_exact(self, *, settled: bool = True) -> int:
        """Equal, in order, no repeats, and the map says where each record is."""
        ledgers = LedgerService(self.configs)
        try:
            return assert_exact(
                self.source,
                self.target,
                ledgers,
                self.flow,
                self.topic,
                self.target_topic,
                settled=settled,
            )
        finally:
            ledgers.close()

    def _records(self, count: int, value_bytes: int = 40) -> list[NewRec]:
        start, self.written = self.written, self.written + count
        at_ms = time.time_ns() // 1_000_000
        return [
            NewRec(
                key=b"k%d" % (number % 7),
                value=b"v%d" % number + b"." * value_bytes,
                timestamp_ms=at_ms + number,
                partition=number % PARTITIONS,
            )
            for number in range(start, start + count)
        ]


@contextmanager
def open_scene(
    clusters: dict[str, LocalCluster], topic: str, folder: Path, *, foreign: bool = False
) -> Iterator[Scene]:
    """The alias is the topic's, so that every scene has a ledger of its own."""
    flow = FlowId(source=ClusterAlias(f"A-{topic}"), target=ClusterAlias("B"))
    scene = Scene(
        source=clusters["A"],
        target=clusters["B"],
        flow=flow,
        topic=topic,
        target_topic=f"{flow.source}.{topic}",
        folder=folder,
        children=[],
        foreign=foreign,
    )
    create_topic(scene.source, topic, partitions=PARTITIONS)
    create_topic(scene.target, scene.target_topic, partitions=PARTITIONS)
    create_topic(scene.target, ledger_topic(flow.source), config={"cleanup.policy": "compact"})
    ledgers = LedgerService(scene.configs)
    try:
        ledgers.open(flow, "test")
    finally:
        ledgers.close()
    try:
        yield scene
    finally:
        for child in scene.children:
            if child.poll() is None:
                child.kill()
            child.wait()
