"""A stretch of a partition as Arrow batches. Runs on executors.

Batches are fetched and checked as lanes do it, opened by the compiled codec, and put into columns
many records at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from heliograph.audit.reading import Damaged, LogReader, Record
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.errors import CorruptBatch, OffsetGone
from heliograph.pipeline.offsets import Stretch
from heliograph.transform.columns import headers_array

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig

_ROWS: Final = 10_000
_CREATE_TIME: Final = 0
_LOG_APPEND_TIME: Final = 1
_NO_EPOCH: Final = -1


class _Taken(NamedTuple):
    """Records whose offsets follow one another."""

    offset: int
    contents: Sequence[Record]
    time_kind: int
    leader_epoch: int


def read_stretch(
    config: ClusterConfig,
    stretch: Stretch,
    schema: Any,
    *,
    read_committed: bool,
    fails_on_loss: bool,
) -> Iterator[Any]:
    """Arrow batches with `schema`, in order. Raises `MirrorError`.

    Records that are gone raise `OffsetGone` unless told otherwise; then reading goes on behind.
    """
    with asyncio.Runner() as runner:
        cluster = open_cluster(config, "consumer")
        # Fetches go on while Spark takes what was read.
        reader = LogReader(
            cluster,
            stretch.at,
            stretch.range.start,
            read_committed=read_committed,
            likely_end=stretch.range.end,
        )
        try:
            runner.run(cluster.refresh([stretch.at.topic]))
            pending = _Pending(stretch, schema)
            while True:
                pieces = runner.run(_taken(reader, stretch.range.end))
                if fails_on_loss and reader.log_start > stretch.range.start:
                    raise OffsetGone(str(stretch.at), stretch.range.start, reader.log_start)
                for piece in pieces:
                    pending.add(piece)
                    if pending.rows >= _ROWS:
                        yield pending.batch()
                if not pieces:
                    break
            if pending.rows:
                yield pending.batch()
        finally:
            runner.run(_closed(reader, cluster))


async def _taken(reader: LogReader, end: int) -> list[_Taken]:
    """What one fetch brought, or nothing at the end of the stretch."""
    found: list[_Taken] = []
    while (piece := await reader.head()) is not None and piece.offset < end:
        count = min(piece.count, end - piece.offset)
        found.append(
            _Taken(
                piece.offset,
                piece.contents(count),
                _LOG_APPEND_TIME if piece.is_append_time else _CREATE_TIME,
                _NO_EPOCH if piece.header is None else piece.header.leader_epoch,
            )
        )
        reader.take(count)
        if reader.is_drained:
            break
    return found


async def _closed(reader: LogReader, cluster: Cluster) -> None:
    await reader.close()
    cluster.close()


class _Pending:
    """Records that wait to be a batch."""

    def __init__(self, stretch: Stretch, schema: Any) -> None:
        self._stretch, self._schema = stretch, schema
        self._pieces: list[_Taken] = []
        self.rows = 0

    def add(self, piece: _Taken) -> None:
        if isinstance(piece.contents[0], Damaged):
            raise CorruptBatch(piece.offset, f"{self._stretch.at}: the batch is damaged")
        self._pieces.append(piece)
        self.rows += len(piece.contents)

    def batch(self) -> Any:
        pieces, rows = self._pieces, self.rows
        self._pieces, self.rows = [], 0
        contents: list[Any] = [content for piece in pieces for content in piece.contents]
        times, keys, values = ([each[field] for each in contents] for field in range(3))
        offsets = [
            np.arange(each.offset, each.offset + len(each.contents), dtype=np.int64)
            for each in pieces
        ]
        columns = {
            "topic": pa.repeat(pa.scalar(self._stretch.at.topic, pa.string()), rows),
            "partition": pa.repeat(pa.scalar(self._stretch.at.partition, pa.int32()), rows),
            "offset": pa.array(np.concatenate(offsets)),
            "timestamp": _times(times),
            "timestampType": _repeated([(len(each.contents), each.time_kind) for each in pieces]),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "leaderEpoch": _repeated([(len(each.contents), each.leader_epoch) for each in pieces]),
        }
        if "headers" in self._schema.names:
            columns["headers"] = headers_array([content[3] for content in contents])
        return pa.RecordBatch.from_arrays(
            [columns[name].cast(self._schema.field(name).type) for name in self._schema.names],
            schema=self._schema,
        )


def _times(times_ms: Sequence[int]) -> Any:
    return pa.array(times_ms, pa.timestamp("ms", tz="UTC"))


def _repeated(counts: Sequence[tuple[int, int]]) -> Any:
    lengths, values = zip(*counts, strict=True)
    return pa.array(np.repeat(np.array(values, dtype=np.int32), lengths))
