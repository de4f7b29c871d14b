"""A stretch of a partition as Arrow batches. Runs on executors.

Batches are fetched and checked as lanes do it, opened by the compiled codec, and put into columns
many records at a time.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from heliograph.audit.reading import BatchView, Damaged, LogReader
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.clock import monotonic_s
from heliograph.errors import BrokerError, CorruptBatch, OffsetGone, PipelineRefused
from heliograph.model import TopicPartition
from heliograph.pipeline.offsets import Stretch
from heliograph.transform.columns import headers_array
from heliograph.wire.opened import OpenedColumns

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig

log: Final = logging.getLogger("heliograph")

T = TypeVar("T")
_ROWS: Final = 10_000
_BEHIND_S_MAX: Final = 20.0
_BEHIND_S: Final = 0.2
_CREATE_TIME: Final = 0
_LOG_APPEND_TIME: Final = 1
_NO_EPOCH: Final = -1


class _Taken(NamedTuple):
    """Records whose offsets follow one another."""

    offset: int
    columns: OpenedColumns
    time_kind: int
    leader_epoch: int

    @property
    def record_count(self) -> int:
        return len(self.columns.times_ms)


def read_stretch(
    config: ClusterConfig,
    stretch: Stretch,
    schema: Any,
    *,
    read_committed: bool,
    fails_on_loss: bool,
) -> Iterator[Any]:
    """Arrow batches with `schema`, in order. Raises `MirrorError`.

    Records that are gone raise `OffsetGone`, and a log that ends before the stretch does
    `PipelineRefused`, unless told otherwise; then reading goes on behind.
    """
    _keep_imports()
    start, end = stretch.range.start, stretch.range.end
    with asyncio.Runner() as runner:
        cluster = open_cluster(config, "consumer")
        reader = _reader(cluster, stretch, start, read_committed=read_committed)
        try:
            runner.run(cluster.refresh([stretch.at.topic]))
            pending = _Pending(stretch, schema)
            given_up_s = monotonic_s() + _BEHIND_S_MAX
            while True:
                pieces = runner.run(_taken(reader, stretch))
                if fails_on_loss and reader.log_start > start:
                    raise OffsetGone(str(stretch.at), start, reader.log_start)
                for piece in pieces:
                    pending.add(piece)
                    if pending.rows >= _ROWS:
                        yield pending.batch()
                if pieces:
                    given_up_s = monotonic_s() + _BEHIND_S_MAX
                elif reader.next_offset >= end:
                    break
                elif monotonic_s() < given_up_s:
                    # A new leader shows less than the last one did until it hears of its followers.
                    behind = _reader(
                        cluster, stretch, reader.next_offset, read_committed=read_committed
                    )
                    runner.run(_later(cluster, stretch, reader))
                    reader = behind
                else:
                    _ends_early(stretch, reader.next_offset, fails_on_loss=fails_on_loss)
                    break
            if pending.rows:
                yield pending.batch()
        finally:
            runner.run(_closed(reader, cluster))


@cache
def _keep_imports() -> None:
    """Once in a process: the collector would look at all of them for every few thousand records."""
    gc.freeze()


def _reader(cluster: Cluster, stretch: Stretch, start: int, *, read_committed: bool) -> LogReader:
    """Its fetches go on while Spark takes what was read."""
    return LogReader(
        cluster, stretch.at, start, read_committed=read_committed, likely_end=stretch.range.end
    )


async def _later(cluster: Cluster, stretch: Stretch, reader: LogReader) -> None:
    await reader.close()
    await asyncio.sleep(_BEHIND_S)
    with suppress(BrokerError):
        await cluster.refresh([stretch.at.topic])


def _ends_early(stretch: Stretch, end: int, *, fails_on_loss: bool) -> None:
    what = (
        f"{stretch.at} ends at offset {end:,}, and it had records up to {stretch.range.end:,} when "
        "this was planned: its cluster has lost them, or the topic was created again"
    )
    if fails_on_loss:
        raise PipelineRefused(f"{what}; failOnDataLoss = false goes on without them")
    log.warning("%s; they are not read", what)


async def _taken(reader: LogReader, stretch: Stretch) -> list[_Taken]:
    """What one fetch brought, or nothing at the end of the stretch."""
    found, end = list[_Taken](), stretch.range.end
    while (piece := await reader.head()) is not None and piece.offset < end:
        count = min(piece.count, end - piece.offset)
        found.append(
            _Taken(
                piece.offset,
                _columns(piece, count, stretch.at),
                _LOG_APPEND_TIME if piece.is_append_time else _CREATE_TIME,
                _NO_EPOCH if piece.header is None else piece.header.leader_epoch,
            )
        )
        reader.take(count)
        if reader.is_drained:
            break
    return found


def _columns(piece: BatchView, count: int, at: TopicPartition) -> OpenedColumns:
    columns = piece.columns() if count == piece.count else None
    if columns is not None:
        return columns
    contents: Sequence[Any] = piece.contents(count)
    if isinstance(contents[0], Damaged):
        raise CorruptBatch(piece.offset, f"{at}: the batch is damaged")
    return OpenedColumns(*zip(*contents, strict=True))


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
        self._pieces.append(piece)
        self.rows += piece.record_count

    def batch(self) -> Any:
        pieces, rows = self._pieces, self.rows
        self._pieces, self.rows = [], 0
        made: dict[str, Callable[[], Any]] = {
            "topic": lambda: pa.repeat(pa.scalar(self._stretch.at.topic, pa.string()), rows),
            "partition": lambda: pa.repeat(pa.scalar(self._stretch.at.partition, pa.int32()), rows),
            "offset": lambda: pa.array(
                np.concatenate(
                    [np.arange(each.offset, each.offset + each.record_count) for each in pieces],
                    dtype=np.int64,
                )
            ),
            "timestamp": lambda: _times(_joined(each.columns.times_ms for each in pieces)),
            "timestampType": lambda: _repeated(
                [(each.record_count, each.time_kind) for each in pieces]
            ),
            "key": lambda: pa.array(_joined(each.columns.keys for each in pieces), pa.binary()),
            "value": lambda: pa.array(_joined(each.columns.values for each in pieces), pa.binary()),
            "leaderEpoch": lambda: _repeated(
                [(each.record_count, each.leader_epoch) for each in pieces]
            ),
            "headers": lambda: headers_array(_headers(pieces)),
        }
        # What nobody asked for is not made.
        return pa.RecordBatch.from_arrays(
            [made[name]().cast(self._schema.field(name).type) for name in self._schema.names],
            schema=self._schema,
        )


def _joined(parts: Iterable[Sequence[T]]) -> list[T]:
    return list(chain.from_iterable(parts))


def _headers(pieces: Sequence[_Taken]) -> list[Any]:
    none: tuple[Any, ...] = ()
    return list(
        chain.from_iterable(each.columns.headers or [none] * each.record_count for each in pieces)
    )


def _times(times_ms: Sequence[int]) -> Any:
    return pa.array(times_ms, pa.timestamp("ms", tz="UTC"))


def _repeated(counts: Sequence[tuple[int, int]]) -> Any:
    lengths, values = zip(*counts, strict=True)
    return pa.array(np.repeat(np.array(values, dtype=np.int32), lengths))
