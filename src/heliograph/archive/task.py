"""A stretch of a partition into a Parquet file. Runs on executors."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from heliograph.archive.book import ArchivedFile, file_name
from heliograph.errors import MirrorError
from heliograph.pipeline.offsets import Stretch
from heliograph.pipeline.reading import read_stretch
from heliograph.pipeline.staging import Folder

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig

CLUSTER: Final = pa.field("cluster", pa.string())
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
READ: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field("leaderEpoch", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(_HEADER)),
    ]
)
SCHEMA: Final = pa.schema([CLUSTER, *READ])
_GROUP_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOrder:
    """All that a task needs besides its stretch; holds credentials."""

    cluster: ClusterConfig = field(repr=False)
    staged: str
    """The folder that files are written to."""
    read_committed: bool


def archive_stretch(order: ArchiveOrder, stretch: Stretch) -> ArchivedFile | MirrorError:
    """The Spark task; what goes wrong is an answer, raised, it would be tried again."""
    try:
        return _written(order, stretch)
    except MirrorError as exc:
        return exc


def _written(order: ArchiveOrder, stretch: Stretch) -> ArchivedFile:
    folder, at, range_ = Folder(order.staged), stretch.at, stretch.range
    name = file_name(order.cluster.alias, at.partition, range_.start, range_.end)
    batches = read_stretch(
        order.cluster, stretch, READ, read_committed=order.read_committed, fails_on_loss=True
    )
    records, waiting = 0, list[Any]()
    with closing(_File(folder, name)) as file:
        for batch in batches:
            waiting.append(_with_cluster(batch, order.cluster.alias))
            records += batch.num_rows
            if sum(each.num_rows for each in waiting) >= _GROUP_ROWS:
                file.write(waiting)
                waiting.clear()
        if waiting:
            file.write(waiting)
    return ArchivedFile(
        name=name if records else "",
        partition=at.partition,
        start=range_.start,
        end=range_.end,
        records=records,
        bytes=folder.settle(name) if records else 0,
    )


class _File:
    """A Parquet file, made when there is something to write to it."""

    def __init__(self, folder: Folder, name: str) -> None:
        self._folder, self._name = folder, name
        self._sink: Any = None
        self._writer: Any = None

    def write(self, batches: list[Any]) -> None:
        if self._sink is None:
            self._sink = self._folder.create(self._name)
            self._writer = pq.ParquetWriter(self._sink, SCHEMA, compression="zstd")
        self._writer.write_table(pa.Table.from_batches(batches, SCHEMA))

    def close(self) -> None:
        if self._sink is not None:
            self._writer.close()
            self._sink.close()


def _with_cluster(batch: Any, cluster: str) -> Any:
    column = pa.repeat(pa.scalar(cluster, pa.string()), batch.num_rows)
    return pa.RecordBatch.from_arrays([column, *batch.columns], schema=SCHEMA)
