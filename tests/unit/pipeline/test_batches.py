"""A micro-batch with a ledger and a target in memory, which fail where a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerUnreachable, PipelineRefused
from heliograph.ledger.entries import Entry, MemoEntry, Tombstone
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias
from heliograph.pipeline import append_task, batches
from heliograph.pipeline.append import PartToAppend
from heliograph.pipeline.append_task import AppendOrder, append_here
from heliograph.pipeline.batches import PipelineTarget, incoming_folder
from heliograph.pipeline.notes import Claim, PartEnd, claim_entry, half_written, pipeline_flow
from heliograph.pipeline.packing import Columns, TargetTopics
from heliograph.pipeline.staging import Folder, StagedPart, Stager
from heliograph.wire.batch import Stamp
from tests.kit.fake_cluster import FakeCluster

TOPICS = TargetTopics(partition_counts={"out": 1}, default_topic="out")
CLUSTER = ClusterConfig(alias=ClusterAlias("B"), bootstrap_servers=("fake:9092",))


class Ledger:
    """What `LedgerService` does, in memory; `before` and `after` are called around each note."""

    def __init__(self) -> None:
        self.view_now = LedgerView()
        self.before: Callable[[list[Entry | Tombstone]], None] = lambda _: None
        self.after: Callable[[list[Entry | Tombstone]], None] = lambda _: None
        self.is_away = False

    def ask(self, _flow: Any, question: Callable[[LedgerView], Any]) -> Any:
        if self.is_away:
            raise BrokerUnreachable("the ledger's leader")
        return question(self.view_now)

    def view(self, flow: Any) -> LedgerView:
        view: LedgerView = self.ask(flow, lambda view: view)
        return view

    def note(self, _flow: Any, entries: Iterable[Entry | Tombstone]) -> None:
        noted = list(entries)
        self.before(noted)
        for entry in noted:
            if isinstance(entry, Tombstone):
                self.view_now.remove(entry.key)
            else:
                self.view_now.apply(entry)
        self.after(noted)


def is_claim(entries: list[Entry | Tombstone]) -> bool:
    return any(
        isinstance(e, MemoEntry) and e.subject.startswith("pipeline-claim|") for e in entries
    )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    made.create("out")
    for module in (batches, append_task):
        monkeypatch.setattr(module, "open_cluster", lambda _config, _role: made)
    return made


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    return tmp_path / "staged"


@pytest.fixture
def pipeline(
    cluster: FakeCluster, ledger: Ledger, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> PipelineTarget:
    """A target as its constructor leaves it, with what it would open put in its place."""
    made = PipelineTarget.__new__(PipelineTarget)
    given: Any = ledger
    made.flow = pipeline_flow("p", ClusterAlias("B"))
    made._cluster, made._codec, made._topic = CLUSTER, 0, "out"
    made._folder, made._ledger, made._stamp = Folder(f"{staging}/p"), given, Stamp(1_000, 0)
    monkeypatch.setattr(made, "topics", lambda: TOPICS)
    return made


def stage(*values: bytes) -> Callable[[Folder, TargetTopics], list[StagedPart]]:
    def staged(folder: Folder, topics: TargetTopics) -> list[StagedPart]:
        stager = Stager(folder, topics, task=0)
        stager.add(
            Columns(
                topics=None,
                partitions=None,
                timestamps_ms=None,
                keys=None,
                values=list(values),
                headers=None,
            )
        )
        return stager.finish()

    return staged


def append(order: AppendOrder, parts: Sequence[PartToAppend]) -> list[PartEnd]:
    return asyncio.run(append_here(order, parts))


def write(pipeline: PipelineTarget, batch: int, *values: bytes) -> int:
    return pipeline.write(batch, "q", stage(*values), append).records


def names(staging: Path) -> list[str]:
    return sorted(path.name for path in (staging / "p").iterdir())


def test_a_batch_whose_claim_is_durable_goes_on_from_its_folder_whatever_failed_then(
    pipeline: PipelineTarget, ledger: Ledger
) -> None:
    def away(entries: list[Entry | Tombstone]) -> None:
        ledger.is_away = is_claim(entries)

    ledger.after = away
    with pytest.raises(BrokerUnreachable):
        write(pipeline, 0, b"a", b"b")
    ledger.is_away, ledger.after = False, lambda _: None

    assert half_written(ledger.view_now) is not None
    assert write(pipeline, 0, b"drawn", b"anew", b"once more") == 2


def test_a_claim_that_was_written_though_it_failed_goes_on_from_its_folder(
    pipeline: PipelineTarget, ledger: Ledger
) -> None:
    def unknown(entries: list[Entry | Tombstone]) -> None:
        if is_claim(entries):
            raise BrokerUnreachable("no answer")

    ledger.after = unknown
    with pytest.raises(BrokerUnreachable):
        write(pipeline, 0, b"a", b"b")
    ledger.after = lambda _: None

    assert write(pipeline, 0, b"drawn", b"anew", b"once more") == 2


def test_a_claim_that_was_not_written_leaves_a_folder_that_the_next_batch_removes(
    pipeline: PipelineTarget, ledger: Ledger, staging: Path
) -> None:
    def lost(entries: list[Entry | Tombstone]) -> None:
        if is_claim(entries):
            raise BrokerUnreachable("not sent")

    ledger.before = lost
    with pytest.raises(BrokerUnreachable):
        write(pipeline, 0, b"a")
    ledger.before = lambda _: None

    assert write(pipeline, 0, b"b", b"c") == 2
    assert len(names(staging)) == 1


def test_what_was_staged_for_a_claim_that_was_withdrawn_is_removed(
    pipeline: PipelineTarget, ledger: Ledger, staging: Path
) -> None:
    """Another copy of the query, with a folder of its own, claims while this one stages."""
    other = Claim(batch=0, token="other", query="q", staging="/elsewhere", at_ms=1, starts=())

    def late(folder: Folder, topics: TargetTopics) -> list[StagedPart]:
        ledger.view_now.apply(claim_entry(other))
        return stage(b"a")(folder, topics)

    with pytest.raises(PipelineRefused, match="another copy of this query has just begun"):
        pipeline.write(0, "q", late, append)

    assert names(staging) == []
    assert half_written(ledger.view_now) == other


def test_a_batch_removes_what_writers_that_died_have_left_and_nothing_of_later_ones(
    pipeline: PipelineTarget, staging: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def incoming(batch: int | None) -> str:
        return Path(incoming_folder(str(staging), "p", batch).uri).name

    late, left, kept = incoming(None), [incoming(4), incoming(5)], [incoming(6)]
    monkeypatch.setattr(batches, "now_ms", lambda: int(late.split("-")[1]) + 86_400_001)
    kept.append(incoming(None))

    write(pipeline, 5, b"a")

    assert all(name in names(staging) for name in kept)
    assert not any(name in names(staging) for name in [*left, late])


def test_a_deterministic_batch_removes_it_too(
    pipeline: PipelineTarget, staging: Path, cluster: FakeCluster
) -> None:
    left = incoming_folder(str(staging), "p", 0)
    direct = pipeline.begin_direct(0, "q", 2)
    assert direct is not None

    pipeline.finish_direct(direct, [])

    assert not left.exists()
