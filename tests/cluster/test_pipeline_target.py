"""The protocol of a pipeline's micro-batches against real brokers, without Spark."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.errors import BrokerError, PipelineRefused
from heliograph.model import ClusterAlias
from heliograph.pipeline.append import PartToAppend
from heliograph.pipeline.append_task import AppendOrder, append_here
from heliograph.pipeline.batches import DirectOrder, PipelineTarget, WrittenBatch
from heliograph.pipeline.direct import DirectAppender, DirectPacker
from heliograph.pipeline.direct_writer import Computed, commit_direct, planned_direct
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.packing import Columns, TargetTopics
from heliograph.pipeline.sink_options import SinkOptions
from heliograph.pipeline.staging import Folder, StagedPart, Stager
from heliograph.wire.compression import Codec
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.mirror import write_config
from tests.kit.records import NewRec, numbered, produce, read_all
from tests.kit.topics import create_topic, set_topic_config

QUERY = "b1f9"
Open = Callable[[str], PipelineTarget]


@pytest.fixture
def target(topic: Any, pair: dict[str, LocalCluster]) -> str:
    name: str = topic("out")
    create_topic(pair["B"], name, partitions=2)
    return name


@pytest.fixture
def opened(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any, target: str
) -> Iterator[Open]:
    """A pipeline of one name; the argument is its staging folder."""
    config = load_config(write_config(tmp_path / "mm2.properties", pair, {"A->B": {}}))
    name, made = topic("pipe"), list[PipelineTarget]()

    def open_target(staging: str) -> PipelineTarget:
        made.append(
            PipelineTarget(
                config.clusters[ClusterAlias("B")],
                name,
                staging=str(tmp_path / staging),
                topic=target,
                replication_factor=1,
            )
        )
        return made[-1]

    yield open_target
    for each in made:
        each.close()


def stage(
    *values: bytes, at_ms: int | None = None
) -> Callable[[Folder, TargetTopics], list[StagedPart]]:
    """One row for each value, by turns to either partition."""

    def staged(folder: Folder, topics: TargetTopics) -> list[StagedPart]:
        stager = Stager(folder, topics, task=0)
        stager.add(
            Columns(
                topics=None,
                partitions=[index % 2 for index in range(len(values))],
                timestamps_ms=None if at_ms is None else [at_ms] * len(values),
                keys=None,
                values=list(values),
                headers=None,
                times_between=None if at_ms is None else (at_ms, at_ms),
            )
        )
        return stager.finish()

    return staged


def append(order: AppendOrder, parts: Sequence[PartToAppend]) -> list[PartEnd]:
    return asyncio.run(append_here(order, parts))


def write(pipeline: PipelineTarget, batch: int, *values: bytes) -> WrittenBatch:
    return pipeline.write(batch, QUERY, stage(*values), append)


def found(pair: dict[str, LocalCluster], topic: str) -> list[bytes | None]:
    parts = read_all(pair["B"], topic)
    return sorted((rec.value for part in parts.values() for rec in part), key=str)


def test_batches_follow_one_another_and_a_replay_writes_nothing(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    pipeline = opened("staged")

    assert write(pipeline, 0, b"a", b"b", b"c").records == 3
    assert write(pipeline, 1).records == 0
    again = write(opened("staged"), 1)
    assert (again.records, again.ends) == (0, ())
    produce(pair["B"], target, numbered(4, partitions=2))
    last = write(opened("staged"), 2, b"d")

    assert [end.position for end in last.ends] == [3]
    values = found(pair, target)
    assert [value for value in values if len(value or b"") == 1] == [b"a", b"b", b"c", b"d"]
    assert len(values) == 8


def test_rows_left_half_way_are_finished_as_they_were_staged(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    def only_some(order: AppendOrder, parts: Sequence[PartToAppend]) -> list[PartEnd]:
        append(order, parts[:1])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened("staged").write(0, QUERY, stage(b"first", b"second"), only_some)

    write(opened("staged"), 0, b"another draw", b"of the same batch")

    assert found(pair, target) == [b"first", b"second"]


def test_another_copy_of_a_query_is_refused(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    """Both begin the batch; the claim of the second is later."""
    first, second = opened("staged"), opened("copied")
    write(first, 0, b"a")

    def late(folder: Folder, topics: TargetTopics) -> list[StagedPart]:
        write(first, 1, b"b")
        return stage(b"other")(folder, topics)

    with pytest.raises(PipelineRefused, match="another copy of this query has just begun batch 1"):
        second.write(1, QUERY, late, append)
    with pytest.raises(PipelineRefused, match="its staging folder is not here"):
        write(second, 1, b"other")
    with pytest.raises(PipelineRefused, match="too old"):
        write(second, 0, b"other")
    with pytest.raises(PipelineRefused, match="another query"):
        second.write(2, "c2", stage(b"other"), append)

    assert found(pair, target) == [b"a", b"b"]


def test_a_copy_that_staged_for_so_long_that_its_batch_is_forgotten_is_refused(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    first, second = opened("staged"), opened("copied")
    values = [b"%02d" % number for number in range(13)]

    def late(folder: Folder, topics: TargetTopics) -> list[StagedPart]:
        for number, value in enumerate(values):
            write(first, number, value)
        return stage(b"again")(folder, topics)

    with pytest.raises(PipelineRefused, match="too old"):
        second.write(0, QUERY, late, append)
    write(first, len(values), b"last")

    assert found(pair, target) == [*values, b"last"]


def test_a_copy_that_computes_what_was_written_meanwhile_writes_nothing(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    first, second = opened("staged"), opened("copied")
    rows = Computing(b"a", b"b", b"c")

    copied: list[WrittenBatch] = []

    class Late(Computing):
        def task_count(self) -> int:
            if not copied:
                copied.append(first.write(0, QUERY, stage(), append, rows))
            return super().task_count()

    written = second.write(0, QUERY, stage(), append, Late(b"a", b"b", b"c"))

    assert (copied[0].records, written.records) == (3, 0)
    assert found(pair, target) == [b"a", b"b", b"c"]


def test_no_batch_is_taken_for_another_that_is_half_written(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    """Both have rows of the same number and size, so their pieces end at the same positions."""

    def dies(order: AppendOrder, parts: Sequence[PartToAppend]) -> list[PartEnd]:
        append(order, parts)
        raise KeyboardInterrupt

    pipeline = opened("staged")
    with pytest.raises(KeyboardInterrupt):
        pipeline.write(pipeline.next_batch(), "", stage(b"first"), dies)

    again = opened("staged")
    with pytest.raises(PipelineRefused, match="write it again by its number, 0"):
        again.next_batch()
    with pytest.raises(PipelineRefused, match="batch 0 is half written"):
        again.write(1, "", stage(b"other"), append)
    again.write(0, "", stage(b"first"), append)
    again.write(again.next_batch(), "", stage(b"other"), append)

    assert found(pair, target) == [b"first", b"other"]


def test_a_half_written_batch_waits_for_its_staging_folder(
    pair: dict[str, LocalCluster], target: str, opened: Open, tmp_path: Path
) -> None:
    def nothing(order: AppendOrder, parts: Sequence[PartToAppend]) -> list[PartEnd]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        opened("staged").write(0, QUERY, stage(b"a"), nothing)
    shutil.move(tmp_path / "staged", tmp_path / "away")
    with pytest.raises(PipelineRefused, match="that folder is not here"):
        write(opened("staged"), 0, b"b")
    shutil.move(tmp_path / "away", tmp_path / "staged")

    write(opened("staged"), 0, b"b")

    assert found(pair, target) == [b"a"]


COUNTS: list[dict[str, int]] = []
"""Of the target's partitions, as each try was told."""


class Computing:
    """`DirectWork` of one task in this process; it may end before it is done."""

    def __init__(self, *values: bytes, tasks: int = 1, ends_after: int | None = None) -> None:
        self._values, self._tasks, self._ends_after = values, tasks, ends_after

    def task_count(self) -> int:
        return self._tasks

    def run(self, order: DirectOrder) -> list[tuple[PartEnd, int]]:
        COUNTS.append(dict(order.topics.partition_counts))
        starts = order.starts[0]
        appender = DirectAppender(order.cluster, order.stamps[0], starts)
        try:
            packer = DirectPacker(order.topics, 0, appender, at_ms=order.at_ms)
            values = self._values[: self._ends_after]
            packer.add(
                Columns(
                    topics=None,
                    partitions=[index % 2 for index in range(len(values))],
                    timestamps_ms=None,
                    keys=None,
                    values=list(values),
                    headers=None,
                )
            )
            packer.seal_all()
            ends = appender.finish()
        finally:
            appender.close()
        if self._ends_after is not None:
            raise PipelineRefused("killed")
        return [(end, end.position - starts[end.target].position) for end in ends]


def test_a_deterministic_batch_is_appended_as_it_is_computed(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    pipeline = opened("staged")

    def direct(number: int, *values: bytes, **more: Any) -> int:
        return pipeline.write(number, QUERY, stage(), append, Computing(*values, **more)).records

    assert direct(0, b"a", b"b") == 2
    with pytest.raises(PipelineRefused, match="killed"):
        direct(1, b"c", ends_after=1)
    admin = AdminClient(pair["B"].librdkafka_config)
    for made in admin.create_partitions([NewPartitions(target, 3)]).values():
        made.result(30)
    pipeline = opened("staged")
    with pytest.raises(PipelineRefused, match="by 1 tasks, and 2 would go on"):
        direct(1, b"c", tasks=2)
    with pytest.raises(PipelineRefused, match="other rows than are in the log"):
        direct(1, b"x")
    with pytest.raises(PipelineRefused, match="declare it so until that batch is done"):
        write(pipeline, 1, b"c")
    assert direct(1, b"c") == 1 and COUNTS[-1] == {target: 2}
    assert direct(1, b"c") == 0
    assert write(pipeline, 2, b"d", b"e").records == 2
    assert direct(3, b"f", b"g") == 2 and COUNTS[-1] == {target: 3}
    assert found(pair, target) == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]


def test_rows_that_another_try_sends_to_another_partition_are_refused(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    """What is wrongly declared deterministic: the first try had a row for either partition."""
    pipeline = opened("staged")
    with pytest.raises(PipelineRefused, match="killed"):
        pipeline.write(0, QUERY, stage(), append, Computing(b"a", b"b", b"c", ends_after=2))

    with pytest.raises(PipelineRefused, match="fewer rows than are in the log"):
        pipeline.write(0, QUERY, stage(), append, Computing(b"a"))

    assert found(pair, target) == [b"a", b"b"]


def test_tasks_that_nobody_has_counted_write_each_row_once(
    pair: dict[str, LocalCluster], target: str, opened: Open, tmp_path: Path
) -> None:
    """As `format("heliograph")` has them: the first try dies, and the next has other tasks."""
    config = load_config(tmp_path / "mm2.properties").clusters[ClusterAlias("B")]
    options = SinkOptions(
        cluster=config,
        name=opened("staged").flow.source.removeprefix("pipeline."),
        staging=str(tmp_path / "staged"),
        topic=target,
        codec=Codec.NONE,
        replication_factor=1,
        is_deterministic=True,
    )

    def tried(number: int, *rows: list[bytes]) -> list[Computed]:
        given = replace(options, batch=number)
        tasks = planned_direct(given, opened("staged"), QUERY, is_stream=False)
        return [tasks.computed(task, iter([arrow(each)])) for task, each in enumerate(rows)]

    def write_all(number: int, *rows: list[bytes]) -> None:
        computed = tried(number, *rows)
        commit_direct(options, opened("staged"), QUERY, computed, number, lambda *_: None)

    tried(0, [b"a", b"b"])
    with pytest.raises(PipelineRefused, match="other rows than are in the log"):
        write_all(0, [b"a"], [b"b", b"c"])
    write_all(0, [b"a", b"b"], [b"c"])
    write_all(0, [b"a", b"b"], [b"c"])
    tried(1, [b"d"], [b"e"])
    with pytest.raises(PipelineRefused, match="fewer rows than are in the log"):
        write_all(1, [b"d", b"e"])
    write_all(1, [b"d"], [b"e"])

    assert found(pair, target) == [b"a", b"b", b"c", b"d", b"e"]


def arrow(values: list[bytes]) -> Any:
    return pa.RecordBatch.from_pydict({"value": values, "partition": [0] * len(values)})


def test_a_target_that_refuses_rows_stalls_the_batch_until_it_takes_them(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    pipeline = opened("staged")
    write(pipeline, 0, b"a")

    set_topic_config(pair["B"], target, {"max.message.bytes": "200"})
    with pytest.raises(BrokerError):
        write(pipeline, 1, b"x" * 500, b"y")
    set_topic_config(pair["B"], target, {"max.message.bytes": None})
    again = write(pipeline, 1, b"other rows", b"of another try")

    assert again.records == 2
    assert found(pair, target) == [b"a", b"x" * 500, b"y"]


def test_a_row_whose_timestamp_the_topic_would_refuse_is_refused_before_anything_is_written(
    pair: dict[str, LocalCluster], target: str, opened: Open
) -> None:
    """A broker takes records of an hour from now, and no later ones, unless its topic says so."""
    pipeline, late_ms = opened("staged"), now_ms() + 2 * 3_600_000

    with pytest.raises(PipelineRefused, match=f"a row has the timestamp {late_ms}"):
        pipeline.write(0, QUERY, stage(b"late", at_ms=late_ms), append)
    with pytest.raises(KafkaException, match=r"(?i)timestamp"):
        produce(pair["B"], target, [NewRec(value=b"late", timestamp_ms=late_ms)])
    set_topic_config(pair["B"], target, {"message.timestamp.after.max.ms": "10800000"})
    opened("staged").write(0, QUERY, stage(b"taken", at_ms=late_ms), append)

    assert found(pair, target) == [b"taken"]
