"""Save records that were never mirrored: to a topic and to Parquet files. Driver only.

Runs before anything is deleted and may be cut off anywhere: records in the topic say which failback
put them there and where they are from, so a second try goes on behind the last one; a file is
written under another name and renamed when it is whole.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.records import ReadRecord, Record, RecordWriter, read_records
from heliograph.broker.topic_changes import TopicToCreate
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, MirrorError
from heliograph.model import ClusterAlias, OffsetRange, TopicName, TopicPartition

TOPIC_PREFIX: Final = "heliograph-unmirrored."
FOLDER_DEFAULT: Final = Path("heliograph-unmirrored")
_HEADER_PREFIX: Final = "heliograph.origin."
_READ_S_MAX: Final = 600.0
_CHUNK_RECORDS_MAX: Final = 2_000
_CHUNK_BYTES_MAX: Final = 8 * 1024 * 1024
_HEADERS_BYTES_MAX: Final = 4_096
"""What the headers of the origin add to a record, at most."""
_MESSAGE_BYTES_DEFAULT: Final = 1_048_588

_SCHEMA: Final = pa.schema(
    [
        ("cluster", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("timestamp_type", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmirrored:
    """Records of one partition that only one cluster has."""

    partition: TopicPartition
    offsets: OffsetRange
    records: int
    brought: tuple[OffsetRange, ...] = ()
    """Of these offsets, what a mirror had brought there: it is no record that only one has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTo:
    """Where they go. `procedure` tells one failback's records from another's."""

    topic: TopicName
    folder: Path
    procedure: str
    first_offset: int
    """Where the topic ended before the failback began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    records: int
    files: tuple[str, ...]


def unmirrored_topic(cluster: ClusterAlias) -> TopicName:
    return TopicName(f"{TOPIC_PREFIX}{cluster}")


def count_records(
    cluster: ClusterConfig,
    partition: TopicPartition,
    offsets: OffsetRange,
    *,
    read_committed: bool,
    brought: Sequence[OffsetRange] = (),
) -> int:
    """How many records a consumer gets; markers and aborted ones are none, and those that were
    `brought` do not count. Raises `BrokerError`."""
    found = records_of(cluster, partition, offsets, brought, read_committed=read_committed)
    return sum(1 for _ in found)


def ensure_topic(
    target: ClusterConfig, topic: TopicName, *, replication_factor: int, message_bytes_max: int
) -> None:
    """The topic, made if there is none: it keeps what it is given. Raises `BrokerError`."""
    admin = ClusterAdmin(target)
    largest = max(message_bytes_max, _MESSAGE_BYTES_DEFAULT) + _HEADERS_BYTES_MAX
    wanted = TopicToCreate(
        source=topic,
        name=topic,
        partitions=1,
        replication_factor=replication_factor,
        configs={
            "cleanup.policy": "delete",
            "message.timestamp.type": "CreateTime",
            # Retention goes by the records' own timestamps, which may be old.
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(largest),
        },
    )
    for outcome in (
        admin.create_topics([wanted])[topic],
        admin.await_partitions({topic: 1})[topic],
    ):
        if isinstance(outcome, BrokerError):
            raise outcome


def end_of_topic(target: ClusterConfig, topic: TopicName) -> int:
    """Where the topic's first partition ends; 0 where there is no topic. Raises `BrokerError`."""
    at = TopicPartition(topic=topic, partition=0)
    admin = ClusterAdmin(target)
    if topic not in admin.describe_topics([topic]):
        return 0
    return admin.list_offsets([at], "latest").get(at, 0)


def export_records(
    source: ClusterConfig,
    target: ClusterConfig,
    wanted: Sequence[Unmirrored],
    to: ExportTo,
    *,
    read_committed: bool,
    tell: Callable[[str], None],
) -> Exported:
    """All of `wanted`, once, read back and counted. Raises `MirrorError`."""
    done = _in_topic(target, to)
    writer = RecordWriter(target)
    files: list[Path] = []
    try:
        for each in wanted:
            next_offset = max(done.next_offsets.get(each.partition, 0), each.offsets.start)
            with _ParquetFile(_file_of(to, each)) as file:
                for chunk in _chunks(
                    records_of(
                        source,
                        each.partition,
                        each.offsets,
                        each.brought,
                        read_committed=read_committed,
                    )
                ):
                    file.write(_table(source.alias, each.partition, chunk))
                    fresh = [record for record in chunk if record.offset >= next_offset]
                    rows = [_labelled(source.alias, each.partition, r, to.procedure) for r in fresh]
                    writer.write(to.topic, rows)
            files.append(file.path)
            tell(f"{each.partition}: {each.records:,} records saved")
    finally:
        writer.close()
    _verify(target, wanted, to, files)
    return Exported(
        records=sum(each.records for each in wanted), files=tuple(str(path) for path in files)
    )


def records_of(
    cluster: ClusterConfig,
    partition: TopicPartition,
    offsets: OffsetRange,
    brought: Sequence[OffsetRange],
    *,
    read_committed: bool,
) -> Iterator[ReadRecord]:
    """What a consumer gets, without what was `brought`. Raises `BrokerError`."""
    found = read_records(
        cluster,
        partition.topic,
        between={partition.partition: (offsets.start, offsets.end)},
        read_committed=read_committed,
        timeout_s=_READ_S_MAX,
    )
    starts = [part.start for part in brought]
    for record in found:
        index = bisect_right(starts, record.offset) - 1
        if index < 0 or record.offset >= brought[index].end:
            yield record


def _chunks(records: Iterator[ReadRecord]) -> Iterator[list[ReadRecord]]:
    chunk: list[ReadRecord] = []
    size_bytes = 0
    for record in records:
        chunk.append(record)
        size_bytes += len(record.key or b"") + len(record.value or b"")
        if len(chunk) >= _CHUNK_RECORDS_MAX or size_bytes >= _CHUNK_BYTES_MAX:
            yield chunk
            chunk, size_bytes = [], 0
    if chunk:
        yield chunk


# -- the topic


def _labelled(
    cluster: ClusterAlias, partition: TopicPartition, record: ReadRecord, procedure: str
) -> Record:
    origin = {
        "cluster": cluster,
        "topic": partition.topic,
        "partition": str(partition.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp_ms),
        "failback": procedure,
    }
    return Record(
        key=record.key,
        value=record.value,
        # The header has it where a client cannot write it.
        timestamp_ms=record.timestamp_ms if record.timestamp_ms > 0 else None,
        headers=(
            *record.headers,
            *((f"{_HEADER_PREFIX}{name}", text.encode()) for name, text in origin.items()),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _InTopic:
    counts: Mapping[TopicPartition, int]
    next_offsets: Mapping[TopicPartition, int]


def _in_topic(target: ClusterConfig, to: ExportTo) -> _InTopic:
    """What this failback has written to the topic so far, by where it is from."""
    counts: Counter[TopicPartition] = Counter()
    next_offsets: dict[TopicPartition, int] = {}
    behind = {0: (to.first_offset, 2**63 - 1)}
    for record in read_records(target, to.topic, between=behind, timeout_s=_READ_S_MAX):
        # A record's own headers come first, and may have been exported from somewhere before.
        named = dict(record.headers)
        if named.get(f"{_HEADER_PREFIX}failback") != to.procedure.encode():
            continue
        origin = TopicPartition(
            topic=TopicName(_text(named, "topic")), partition=int(_text(named, "partition"))
        )
        counts[origin] += 1
        next_offsets[origin] = int(_text(named, "offset")) + 1
    return _InTopic(counts=counts, next_offsets=next_offsets)


def _text(named: Mapping[str, bytes | None], name: str) -> str:
    return (named.get(f"{_HEADER_PREFIX}{name}") or b"").decode()


def _verify(
    target: ClusterConfig, wanted: Sequence[Unmirrored], to: ExportTo, files: Sequence[Path]
) -> None:
    counts = _in_topic(target, to).counts
    for each, path in zip(wanted, files, strict=True):
        rows = pq.read_metadata(path).num_rows
        if not each.records == counts.get(each.partition, 0) == rows:
            raise MirrorError(
                f"{each.partition}: {each.records} records were to be saved, "
                f"{counts.get(each.partition, 0)} are in topic {to.topic} and {rows} in {path}; "
                "nothing was deleted"
            )


# -- the files


def _file_of(to: ExportTo, each: Unmirrored) -> Path:
    name = f"{each.partition.partition}-{each.offsets.start}-{each.offsets.end}.parquet"
    return to.folder / to.procedure / each.partition.topic / name


class _ParquetFile:
    """Under its own name only when it is whole and on the disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unfinished = path.with_name(f".{path.name}.unfinished")

    def __enter__(self) -> _ParquetFile:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._writer: Any = pq.ParquetWriter(self._unfinished, _SCHEMA, compression="zstd")
        return self

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def __exit__(self, kind: object, *_: object) -> None:
        self._writer.close()
        if kind is not None:
            self._unfinished.unlink()
            return
        with self._unfinished.open("rb") as file:
            os.fsync(file.fileno())
        self._unfinished.replace(self.path)


def _table(
    cluster: ClusterAlias, partition: TopicPartition, records: Sequence[ReadRecord]
) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "cluster": cluster,
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "timestamp_type": "LogAppendTime" if record.is_append_time else "CreateTime",
                "key": record.key,
                "value": record.value,
                "headers": [{"key": name, "value": value} for name, value in record.headers],
            }
            for record in records
        ],
        schema=_SCHEMA,
    )
