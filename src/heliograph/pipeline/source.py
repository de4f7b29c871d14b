"""`format("heliograph")`: a cluster's topics as rows, and rows into topics (`writer`). Driver and
executors.

`initialOffset`, `latestOffset` and `partitions` run in one Python process beside the driver's JVM
for the life of a query; `read` runs in executors. Nothing of Kafka is in the JVM.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from heliograph.config.schema import ClusterConfig
from heliograph.errors import ConfigError, OffsetGone, PipelineRefused
from heliograph.pipeline.ends import SourceEnds
from heliograph.pipeline.offsets import (
    Offsets,
    Stretch,
    admitted,
    as_json,
    from_json,
    lost,
    stretches,
)
from heliograph.pipeline.reading import read_stretch
from heliograph.pipeline.source_options import (
    COLUMNS,
    SourceOptions,
    columns_of,
    source_options,
)

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark before 4.2, where `_require_no_limit` refuses

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in."""

    ReadAllAvailable = None

log: Final = logging.getLogger("heliograph")

FORMAT: Final = "heliograph"
TRIGGERS_HAVE_LIMITS: Final = ReadAllAvailable is not None
"""Spark before 4.2 asks a stream where it ends now and tells nothing: neither where the batch
begins nor whether it is the last, so a limit would end `availableNow` with records left."""


class StretchToRead(InputPartition):  # type: ignore[misc]
    def __init__(self, stretch: Stretch) -> None:
        super().__init__(stretch)
        self.stretch = stretch


class HeliographSource(DataSource):  # type: ignore[misc]
    """Spark finds it by itself (`pyspark_heliograph`), or is told to register it."""

    clusters: ClassVar[Mapping[str, ClusterConfig]] = {}
    """Those that may be named without a file, in a session that knows them."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ", ".join(f"{name} {COLUMNS[name]}" for name in columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = source_options(self.options, is_stream=False, clusters=self.clusters)
        return BatchReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        # Imported where rows are written: who only reads needs none of it.
        from heliograph.pipeline.writer import BatchWriter, require_append

        require_append(overwrite=overwrite)
        return BatchWriter(self.options, schema, is_stream=False)

    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from heliograph.pipeline.writer import (
            StreamWriter,
            require_append,
            require_stream_writer,
        )

        require_stream_writer()
        require_append(overwrite=overwrite)
        return StreamWriter(self.options, schema, is_stream=True)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        options = source_options(self.options, is_stream=True, clusters=self.clusters)
        _require_no_limit(options)
        return StreamReader(options, schema)


class BatchReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        ends = SourceEnds(self._options)
        start, end = ends.start(), ends.end()
        _require_present(self._options, start, ends)
        parts = stretches(start, end, self._options.records_per_partition)
        # Spark asks for one partition at least.
        return [StretchToRead(part) for part in parts] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _rows(self._options, self._schema, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Lives in one process for as long as its query runs."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._ends = SourceEnds(options)
        self._limit_end: dict[Any, int] | None = None
        """Where a run of what is available now ends."""
        self._planned: Offsets = {}
        """Where the last batch ended that Spark has asked `partitions` about."""
        self._told: Offsets | None = None
        """What `latestOffset` said last."""

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        start = self._ends.start()
        if self._told is not None:
            # Spark before 4.2 asks for the end of the first batch before its start.
            told = self._told
            start = {at: min(offset, told[at]) for at, offset in start.items() if at in told}
        self._planned = start
        return as_json(start)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._limit_end = self._ends.latest()

    def latestOffset(  # noqa: N802
        self, start: dict[str, dict[str, int]] | None = None, limit: Any = None
    ) -> dict[str, dict[str, int]]:
        # Spark before 4.2 gives no start, and plans an empty batch where a checkpoint goes on;
        # with `availableNow` only after this, so there the start is not known.
        begin = self._planned if start is None else from_json(start)
        latest = self._ends.latest()
        _require_reached(self._options, begin, latest)
        ends = latest if self._limit_end is None else self._limit_end
        # A partition that appeared since begins at its first record, whatever the start was.
        new = self._ends.earliest({at for at in ends if at not in begin})
        known = {**begin, **new}
        records_max = self._ends.records_max(known, ends)
        found = admitted(known, ends, records_max)
        # Partitions of topics that are gone keep their offsets: a topic may come back.
        self._told = {**begin, **found}
        return as_json(self._told)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        return as_json(self._ends.latest())

    def partitions(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> Sequence[InputPartition]:
        begin, last = from_json(start), from_json(end)
        # An end that was told without a start may lie before it, or lack a topic that is gone.
        _require_reached(self._options, begin, {**dict.fromkeys(begin, 0), **last})
        self._planned = last
        new = self._ends.earliest({at for at in last if at not in begin})
        begin = {**begin, **new}
        _require_present(self._options, begin, self._ends)
        parts = stretches(begin, last, self._options.records_per_partition)
        return [StretchToRead(part) for part in parts] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _rows(self._options, self._schema, partition)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        """Spark's checkpoint remembers; no consumer group does."""

    def stop(self) -> None:
        self._ends.close()

    def __getstate__(self) -> dict[str, Any]:
        # What executors get: they only read.
        return {"_options": self._options, "_schema": self._schema}


def _rows(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[Any]:
    if not isinstance(partition, StretchToRead):
        return iter(())
    return read_stretch(
        options.cluster,
        partition.stretch,
        _arrow_schema(schema),
        read_committed=options.read_committed,
        fails_on_loss=options.fails_on_loss,
    )


def _arrow_schema(schema: StructType) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    if TRIGGERS_HAVE_LIMITS:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema, timestamp_utc=True)  # as PySpark before 4.2 says the same


def _require_no_limit(options: SourceOptions) -> None:
    if TRIGGERS_HAVE_LIMITS or (options.records_max is None and options.bytes_max is None):
        return
    raise ConfigError(
        'format("heliograph")',
        (
            "maxRecordsPerTrigger and maxBytesPerTrigger need PySpark 4.2 or newer: before, a "
            "micro-batch reads all there is",
        ),
    )


def _require_reached(options: SourceOptions, begin: Offsets, latest: Offsets) -> None:
    """Raises `PipelineRefused` where a log ends before what was read of it."""
    for at in sorted(at for at, end in latest.items() if end < begin.get(at, end)):
        what = (
            f"{at} ends at offset {latest[at]:,}, and {begin[at]:,} were read: its cluster has "
            "lost records, or the topic was created again"
        )
        if options.fails_on_loss:
            raise PipelineRefused(f"{what}; read it with a new checkpoint")
        log.warning("%s", what)


def _require_present(options: SourceOptions, start: dict[Any, int], ends: SourceEnds) -> None:
    """Raises `OffsetGone` where the source deleted records before they were read."""
    gone = lost(start, ends.earliest(set(start)))
    for at, count in sorted(gone.items()):
        if options.fails_on_loss:
            raise OffsetGone(str(at), start[at], start[at] + count)
        log.warning("%s: %s offsets from %s on are gone and not read", at, count, start[at])
