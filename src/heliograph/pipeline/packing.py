"""Rows become sealed record batches of their target partitions. No I/O; runs on executors.

A batch is as the target's log will hold it, but for the producer that `append` stamps on it. Given
the same rows in the same order, the same batches come out: a retry of a pipeline that is declared
deterministic finds them in the log by that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

import numpy as np
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from heliograph.errors import PipelineRefused
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline.partitioner import partitions_of
from heliograph.wire.batch import parse_header

BATCH_BYTES_MAX: Final = 512 * 1024
"""Of records before compression; less than any broker refuses by default."""
REASON_HEADER: Final = "__connect.errors.exception.message"
TOPIC_HEADER: Final = "heliograph.target.topic"
_KEYLESS_RECORDS: Final = 1_000
"""So many records without a key go to one partition before the next one gets some."""
_MAGIC: Final = 2
_NO_HEADERS: Final[list[tuple[str, bytes | None]]] = []

Headers = list[tuple[str, bytes | None]]
Content = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp, key, value and headers of a row."""


class OnError(StrEnum):
    """What becomes of a row that cannot be written."""

    STALL = "stall"
    SKIP = "skip"
    DEAD_LETTER = "dead-letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Rows, column by column: all that is done with a row is done in a few loops over many."""

    topics: list[str | None] | None
    """None where no row names one; so with `partitions`, `timestamps_ms`, `keys` and `headers`."""
    partitions: list[int | None] | None
    timestamps_ms: list[int | None] | None
    keys: list[bytes | None] | None
    values: list[bytes | None]
    headers: list[Headers] | None
    nameless: frozenset[int] = frozenset()
    """Rows with a header that has no name."""
    times_between: tuple[int, int] | None = None
    """The first and the last of the timestamps, where there are any."""


@dataclass(frozen=True, slots=True)
class Times:
    """Which timestamps a topic takes, from the moment of the append on."""

    past_ms_max: int
    future_ms_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTopics:
    """What the target has, as the driver saw it when the batch began."""

    partition_counts: Mapping[str, int]
    record_bytes_max: Mapping[str, int] = field(default_factory=dict)
    """Where a topic takes other sizes than most do."""
    keyed: frozenset[str] = frozenset()
    """Compacted topics: a broker refuses a record without a key."""
    times: Mapping[str, Times] = field(default_factory=dict)
    """Where a broker refuses others."""
    codec: int = 0
    default_topic: str | None = None
    """Of rows that name none."""
    on_error: OnError = OnError.STALL
    dead_letter_topic: str | None = None


class Sealed(NamedTuple):
    """A batch as the log will hold it, but for the producer's stamp."""

    batch: bytearray
    record_count: int
    newest_ms: int


@dataclass(slots=True)
class _Open:
    """A batch that has room."""

    builder: Any
    count: int = 0


class Packer(ABC):
    """The rows of one task, sorted into batches of their target partitions."""

    def __init__(self, topics: TargetTopics, task: int, *, at_ms: int) -> None:
        """`at_ms` is the timestamp of rows that have none."""
        self.left_out = 0
        """Rows that could not be written, and were skipped or went to the dead-letter topic."""
        self.reason = ""
        """Why, of the first of them."""
        self._topics, self._task, self._at_ms = topics, task, at_ms
        self._open: dict[tuple[str, int], _Open] = {}
        self._keyless = task * _KEYLESS_RECORDS

    @abstractmethod
    def sealed(self, target: TopicPartition, batch: Sealed) -> None:
        """Takes a batch; those of a partition come in order."""

    def add(self, rows: Columns) -> None:
        """Raises `PipelineRefused` for a row that no partition can take."""
        at_ms, values, keys = self._at_ms, rows.values, rows.keys
        headers, times = rows.headers, rows.timestamps_ms
        for (topic, partition), indexes in self.placed(rows).items():
            is_keyed = topic in self._topics.keyed
            batch = self._opened(topic, partition)
            append, count = batch.builder.append, batch.count
            for index in indexes:
                time_ms = times[index] if times else None
                if time_ms is None:
                    time_ms = at_ms
                key = keys[index] if keys else None
                head = headers[index] if headers else _NO_HEADERS
                if is_keyed and key is None:
                    what = f"topic {topic} is compacted, and a row has no key"
                    self._bad(what, topic, (time_ms, key, values[index], head))
                elif count and append(count, time_ms, key, values[index], head) is not None:
                    count += 1
                else:
                    batch.count, content = count, (time_ms, key, values[index], head)
                    batch = self._begun(batch, topic, partition, content)
                    append, count = batch.builder.append, batch.count
            batch.count = count

    def seal_all(self) -> None:
        for (topic, partition), open_batch in sorted(self._open.items()):
            if open_batch.count:
                self._seal(topic, partition, open_batch)
        self._open.clear()

    def placed(self, rows: Columns) -> dict[tuple[str, int], Sequence[int]]:
        """Which rows go where, in order. Raises `PipelineRefused` for one that nothing takes."""
        placed: dict[tuple[str, int], Sequence[int]] = {}
        for topic, indexes in self._by_topic(rows).items():
            count = self._topics.partition_counts.get(topic)
            if count is None:
                self._all_bad(f"the target has no topic {topic}: create it first", rows, indexes)
                continue
            indexes = self._fitting(rows, topic, indexes)
            found = np.array(self._partitions(rows, indexes, count), dtype=np.int64)
            for partition, places in _grouped(found):
                chosen = indexes if len(places) == len(indexes) else [indexes[n] for n in places]
                if 0 <= partition < count:
                    placed[topic, partition] = chosen
                    continue
                what = f"topic {topic}: a row is for partition {partition}, and it has {count}"
                for index in chosen:
                    self._bad(what, topic, self._content(rows, index))
        return placed

    def _fitting(self, rows: Columns, topic: str, indexes: Sequence[int]) -> Sequence[int]:
        """Without those that no partition of the topic takes, which are named."""
        problems, taken, given = dict[int, str](), self._times(topic), rows.times_between
        if taken and given and not taken[0] <= given[0] <= given[1] <= taken[1]:
            times, (first, last) = rows.timestamps_ms or [], taken
            problems = {
                index: f"a row has the timestamp {time}, and the topic takes {first} to {last}"
                for index in indexes
                if (time := times[index]) is not None and not first <= time <= last
            }
        if rows.nameless:
            problems |= dict.fromkeys(rows.nameless.intersection(indexes), "a header has no name")
        if not problems:
            return indexes
        for index in sorted(problems):
            self._bad(f"topic {topic}: {problems[index]}", topic, self._content(rows, index))
        return [index for index in indexes if index not in problems]

    def _times(self, topic: str) -> tuple[int, int] | None:
        """The first and the last timestamp that the topic takes."""
        found = self._topics.times.get(topic)
        if found is None:
            return None
        return self._at_ms - found.past_ms_max, self._at_ms + found.future_ms_max

    def _content(self, rows: Columns, index: int) -> Content:
        time_ms = rows.timestamps_ms[index] if rows.timestamps_ms else None
        return (
            self._at_ms if time_ms is None else time_ms,
            rows.keys[index] if rows.keys else None,
            rows.values[index],
            rows.headers[index] if rows.headers else _NO_HEADERS,
        )

    def _begun(self, full: _Open, topic: str, partition: int, content: Content) -> _Open:
        """The batch behind one that is full, or empty, with this row as its first."""
        if full.count:
            self._seal(topic, partition, full)
        at = self._opened(topic, partition)
        at.builder.append(0, *content)
        at.count = 1
        limit = self._topics.record_bytes_max.get(topic)
        if limit is None or at.builder.size() <= limit:
            return at
        # It alone fills a batch: compressed it may still be small enough.
        del self._open[topic, partition]
        batch = at.builder.build()
        if len(batch) <= limit:
            self.sealed(_at(topic, partition), _sealed(batch, 1))
        else:
            what = (
                f"topic {topic}: a row makes a batch of {len(batch):,} bytes, and "
                f"max.message.bytes is {limit:,}"
            )
            self._bad(what, topic, content)
        return self._opened(topic, partition)

    def _opened(self, topic: str, partition: int) -> _Open:
        found = self._open.get((topic, partition))
        if found is None:
            size = min(self._topics.record_bytes_max.get(topic, BATCH_BYTES_MAX), BATCH_BYTES_MAX)
            builder = DefaultRecordBatchBuilder(_MAGIC, self._topics.codec, False, -1, -1, -1, size)
            found = self._open[topic, partition] = _Open(builder)
        return found

    def _seal(self, topic: str, partition: int, at: _Open) -> None:
        self._open.pop((topic, partition), None)
        self.sealed(_at(topic, partition), _sealed(at.builder.build(), at.count))

    def _all_bad(self, what: str, rows: Columns, indexes: Sequence[int]) -> None:
        for index in indexes:
            topic = (rows.topics[index] if rows.topics else None) or self._topics.default_topic
            self._bad(what, topic or "", self._content(rows, index))

    def _bad(self, what: str, topic: str, content: Content) -> None:
        """A row that cannot be written; raises `PipelineRefused` unless told otherwise."""
        topics = self._topics
        if topics.on_error is OnError.STALL:
            raise PipelineRefused(what)
        self.left_out += 1
        self.reason = self.reason or what
        if topics.on_error is OnError.SKIP or topics.dead_letter_topic is None:
            return
        dead = topics.dead_letter_topic
        if topic == dead:
            raise PipelineRefused(f"{what}; it was on its way to the dead-letter topic")
        time_ms, key, value, headers = content
        taken = self._times(dead)
        if taken is not None and not taken[0] <= time_ms <= taken[1]:
            time_ms = self._at_ms
        named = [each for each in headers if each[0] is not None]
        count = topics.partition_counts[dead]
        partition = self._task % count if key is None else partitions_of([key], count)[0]
        added = [(REASON_HEADER, what.encode()), (TOPIC_HEADER, topic.encode())]
        content = (time_ms, key, value, [*named, *added])
        at = self._opened(dead, partition)
        if at.count and at.builder.append(at.count, *content) is not None:
            at.count += 1
        else:
            self._begun(at, dead, partition, content)

    def _by_topic(self, rows: Columns) -> dict[str, Sequence[int]]:
        default, every = self._topics.default_topic, range(len(rows.values))
        if rows.topics is None and default is not None:
            return {default: every}
        found: dict[str, list[int]] = {}
        for index in every:
            topic = (rows.topics[index] if rows.topics else None) or default
            if topic is None:
                what = "a row names no topic, and the pipeline has no default"
                self._bad(what, "", self._content(rows, index))
                continue
            found.setdefault(topic, []).append(index)
        return dict(found)

    def _partitions(self, rows: Columns, indexes: Sequence[int], count: int) -> list[int]:
        """The partition of each row: its own, its key's, or one after the other."""
        own, keys = rows.partitions, rows.keys
        if own is not None and len(indexes) == len(own) and None not in own:
            return own  # type: ignore[return-value]
        if own is None and keys is not None:
            chosen = [keys[index] for index in indexes]
            if None not in chosen:
                return partitions_of(chosen, count)  # type: ignore[arg-type]
        found = []
        for index in indexes:
            partition = own[index] if own else None
            key = keys[index] if keys else None
            if partition is None and key is not None:
                partition = partitions_of([key], count)[0]
            elif partition is None:
                partition = self._keyless // _KEYLESS_RECORDS % count
                self._keyless += 1
            found.append(partition)
        return found


def _grouped(partitions: Any) -> Iterator[tuple[int, Any]]:
    """Each partition of an array of them, and its places there in order."""
    if not len(partitions):
        return
    first = int(partitions[0])
    if (partitions == first).all():
        yield first, range(len(partitions))
        return
    order = np.argsort(partitions, kind="stable")
    ends = np.flatnonzero(np.diff(partitions[order])) + 1
    for places in np.split(order, ends):
        yield int(partitions[places[0]]), places.tolist()


def _at(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic=TopicName(topic), partition=partition)


def _sealed(batch: bytearray, count: int) -> Sealed:
    header = parse_header(memoryview(batch))
    return Sealed(batch, count, 0 if header is None else header.max_timestamp_ms)
