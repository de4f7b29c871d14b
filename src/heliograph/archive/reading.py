"""An archived partition as rows, in the order of its offsets. Runs anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow.parquet as pq

from heliograph.archive.book import ArchivedFile
from heliograph.errors import ArchiveRefused
from heliograph.pipeline.packing import Columns
from heliograph.pipeline.staging import Folder
from heliograph.pipeline.staging_task import columns_of, prepared

_ROWS: Final = 10_000
_COLUMNS: Final = ["offset", "timestamp", "key", "value", "headers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    partition: int
    files: tuple[ArchivedFile, ...]
    """Those that hold records."""


def partitions_of(files: Mapping[int, Sequence[ArchivedFile]]) -> list[ArchivedPartition]:
    return [
        ArchivedPartition(partition=number, files=tuple(file for file in found if file.name))
        for number, found in sorted(files.items())
    ]


def offsets_of(folder: Folder, part: ArchivedPartition) -> tuple[int, int, int | None]:
    """First offset, the one behind the last, and the first that lies in a gap or out of order.

    By the files' own statistics where those suffice: nothing but their ends is read.
    """
    first, after, gap = 0, -1, None
    for file in part.files:
        with folder.open(file.name) as stream:
            start, end, count = _span(pq.ParquetFile(stream))
        if after < 0:
            first = start
        elif gap is None and start != after:
            gap = after
        if gap is None and count != end - start:
            gap = start
        after = end
    return first, max(after, first), gap


def _span(file: Any) -> tuple[int, int, int]:
    column = file.schema_arrow.get_field_index("offset")
    groups = [
        file.metadata.row_group(n).column(column) for n in range(file.metadata.num_row_groups)
    ]
    return (
        min(group.statistics.min for group in groups),
        max(group.statistics.max for group in groups) + 1,
        file.metadata.num_rows,
    )


def rows_of(folder: Folder, part: ArchivedPartition) -> Iterator[Columns]:
    """Raises `ArchiveRefused` for a file that is not as its commit says."""
    for file in part.files:
        count = 0
        with folder.open(file.name) as stream:
            for batch in pq.ParquetFile(stream).iter_batches(_ROWS, columns=_COLUMNS):
                count += batch.num_rows
                yield _columns(batch, part.partition)
        if count != file.records:
            raise ArchiveRefused(
                f"{file.name} in {folder.uri} has {count:,} records, and its commit says "
                f"{file.records:,}"
            )


def _columns(batch: Any, partition: int) -> Columns:
    rows = columns_of(prepared(batch, with_topic=False))
    return replace(rows, partitions=[partition] * batch.num_rows)
