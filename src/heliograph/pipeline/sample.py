"""A pipeline tried on a few records, with nothing written anywhere. Runs on the driver; blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from heliograph.broker.admin import ClusterAdmin
from heliograph.errors import PipelineRefused
from heliograph.pipeline.packing import Columns
from heliograph.pipeline.query import QueryOrder, pipeline_session, records, transformed
from heliograph.pipeline.reasons import reason_of
from heliograph.pipeline.staging import Folder, Stager
from heliograph.pipeline.staging_task import columns_of, prepared
from heliograph.pipeline.target_topics import target_topics
from heliograph.wire.compression import Codec


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One row, and where it would go."""

    topic: str
    partition: int
    timestamp_ms: int | None
    key: str | None
    value: str | None
    """What is no UTF-8 is replaced; so in `key`."""
    headers: tuple[str, ...]


def sample(context: Any, order: QueryOrder, count: int) -> tuple[SampleRow, ...]:
    """The rows that the first `count` records there are would become, at most so many.

    A query with state sees these records alone. Raises `MirrorError`.
    """
    pipeline = order.pipeline
    try:
        spark = pipeline_session(context, order)
        # The earliest, whatever `start.at` says: there is nothing behind the latest.
        read = records(spark, spark.read, order).option("startingOffsets", "earliest").load()
        made = transformed(spark, order, read.limit(count))
        table = made.limit(count).toArrow()
    except (Py4JError, PySparkException) as exc:
        raise PipelineRefused(reason_of(str(exc))) from exc
    topics = target_topics(
        ClusterAdmin(order.target),
        topic=pipeline.target_topic,
        codec=Codec[pipeline.compression.upper()],
    )
    # It only says where rows go: nothing is added to it.
    stager = Stager(Folder(pipeline.staging_folder), topics, 0)
    found: list[SampleRow] = []
    for batch in table.to_batches():
        columns = columns_of(prepared(batch, with_topic=topics.default_topic is None))
        rows = [
            (index, topic, partition)
            for (topic, partition), indexes in stager.placed(columns).items()
            for index in indexes
        ]
        found += [_row(columns, *each) for each in sorted(rows)]
    return tuple(found)


def _row(columns: Columns, index: int, topic: str, partition: int) -> SampleRow:
    headers = columns.headers[index] if columns.headers else []
    return SampleRow(
        topic=topic,
        partition=partition,
        timestamp_ms=columns.timestamps_ms[index] if columns.timestamps_ms else None,
        key=_text(columns.keys[index] if columns.keys else None),
        value=_text(columns.values[index]),
        headers=tuple(f"{name}={_text(value) or ''}" for name, value in headers),
    )


def _text(content: bytes | None) -> str | None:
    return None if content is None else bytes(content).decode(errors="replace")
