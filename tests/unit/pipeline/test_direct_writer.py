from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from heliograph.errors import LeaderMoved, PipelineRefused
from heliograph.pipeline import append, direct_writer
from heliograph.pipeline.batches import DirectBatch
from heliograph.pipeline.direct_writer import planned_direct
from heliograph.pipeline.notes import Claim, PartEnd
from heliograph.pipeline.packing import TargetTopics
from heliograph.pipeline.sink_options import SinkOptions
from heliograph.wire.compression import Codec
from tests.kit.fake_cluster import Asked, FakeCluster


class DoneAlready:
    """A pipeline of which all is written."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def begin_direct(self, batch: int, _query: str, _producers_max: int) -> None:
        self.asked.append(batch)


def options(checkpoint: Path | None) -> SinkOptions:
    cluster: Any = None
    return SinkOptions(
        cluster=cluster,
        name="p",
        staging="/s",
        codec=Codec.NONE,
        replication_factor=1,
        checkpoint=None if checkpoint is None else str(checkpoint),
    )


def planned(checkpoint: Path | None) -> tuple[DoneAlready, direct_writer.DirectTasks]:
    target: Any = DoneAlready()
    return target, planned_direct(options(checkpoint), target, "q", is_stream=True)


def checkpoint_at(folder: Path, *batches: int) -> Path:
    (folder / "offsets").mkdir()
    for name in (*map(str, batches), ".7.crc"):
        (folder / "offsets" / name).touch()
    return folder


def test_a_stream_takes_the_number_of_its_batch_from_its_checkpoint(tmp_path: Path) -> None:
    target, _ = planned(checkpoint_at(tmp_path, 8, 9, 10))

    assert target.asked == [10]


@pytest.mark.parametrize("has_folder", [True, False])
def test_without_a_checkpoint_of_its_own_it_is_refused(tmp_path: Path, has_folder: bool) -> None:
    with pytest.raises(PipelineRefused, match="needs `checkpointLocation`"):
        planned(tmp_path if has_folder else None)


def test_a_task_of_another_batch_than_the_checkpoint_says_appends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Context:
        def getLocalProperty(self, _: str) -> str:
            return "4"

        def partitionId(self) -> int:
            return 1

    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context())
    _, wrong = planned(checkpoint_at(tmp_path, 3))

    assert "batch 3 is next, and Spark that it is 4" in wrong.stage(iter(())).problem


@pytest.mark.parametrize("asked_for", ["metadata", "describe_producers"])
def test_a_leader_that_moves_as_a_batch_is_committed_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, asked_for: str
) -> None:
    """There it is asked whether tasks wrote that this try does not have."""
    cluster = FakeCluster()
    cluster.create("out")
    start = PartEnd(topic="out", partition=0, position=0, offset=0)
    claim = Claim(
        batch=0,
        token="t",
        query="q",
        staging="",
        at_ms=1,
        starts=(start,),
        producers=((1_000, 0), (1_001, 0)),
    )
    batch = DirectBatch(
        claim=claim, done=None, topics=TargetTopics(partition_counts={"out": 1}), is_again=True
    )
    moves = [LeaderMoved("elsewhere")]

    def trouble(asked: Asked) -> None:
        if asked.name == asked_for and moves:
            raise moves.pop()

    cluster.before = trouble
    monkeypatch.setattr(append, "_RETRY_S", 0.001)
    monkeypatch.setattr(direct_writer, "open_cluster", lambda _config, _role: cluster)
    config: Any = None

    asyncio.run(direct_writer._require_no_other(config, batch, 1))

    assert moves == []
