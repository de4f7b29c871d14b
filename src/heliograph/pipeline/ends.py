"""Where a source's partitions begin and end, as a reader needs it. Runs on the driver.

One process of Spark's asks many times, so connections are kept in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable
from typing import Any, Final, TypeVar, assert_never

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, open_cluster
from heliograph.broker.log import fetch_once
from heliograph.broker.range_reader import GroupReader
from heliograph.errors import BrokerError, PipelineRefused
from heliograph.model import TopicId, TopicName, TopicPartition
from heliograph.pipeline.offsets import Offsets
from heliograph.pipeline.source_options import (
    EARLIEST_WORD,
    AtGroup,
    AtOffsets,
    AtTime,
    AtWord,
    SourceOptions,
    Where,
)
from heliograph.wire.batch import parse_header

log: Final = logging.getLogger("heliograph")

T = TypeVar("T")
_SAMPLE_BYTES: Final = 256 * 1024
_SAMPLED_MAX: Final = 16
_EARLIEST_OFFSET: Final = -2
_LATEST_OFFSET: Final = -1


class SourceEnds:
    """One reader's view of its cluster. Used by one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._runner: asyncio.Runner | None = None
        self._cluster: Cluster | None = None
        self._bytes_per_record: float | None = None
        self._ids: dict[TopicName, TopicId] = {}

    def start(self) -> dict[TopicPartition, int]:
        return self._at(self._options.start)

    def end(self) -> dict[TopicPartition, int]:
        return self._at(self._options.end)

    def latest(self) -> dict[TopicPartition, int]:
        return self._ask(self._offsets(LATEST, None))

    def earliest(self, wanted: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Of those that exist."""
        return self._ask(self._offsets(EARLIEST, wanted)) if wanted else {}

    def records_max(self, start: Offsets, ends: Offsets) -> int | None:
        """The most records a trigger may read; of a limit in bytes, by the size of some records."""
        options = self._options
        if options.bytes_max is None:
            return options.records_max
        if self._bytes_per_record is None:
            self._bytes_per_record = self._ask(self._sampled(start, ends))
        if self._bytes_per_record is None:
            return options.records_max
        by_bytes = max(1, int(options.bytes_max / self._bytes_per_record))
        return by_bytes if options.records_max is None else min(by_bytes, options.records_max)

    def close(self) -> None:
        if self._runner is not None:
            if self._cluster is not None:
                self._runner.run(self._close_cluster(self._cluster))
            self._runner.close()
            self._runner = self._cluster = None

    async def _close_cluster(self, cluster: Cluster) -> None:
        cluster.close()

    def _at(self, where: Where) -> dict[TopicPartition, int]:
        match where:
            case AtWord(word=word):
                return self.earliest_of_all() if word == EARLIEST_WORD else self.latest()
            case AtTime(at_ms=at_ms):
                found, latest = self._ask(self._offsets(at_ms, None)), self.latest()
                # No record is as late as that: the end.
                return {at: latest[at] if offset < 0 else offset for at, offset in found.items()}
            case AtGroup(group=group):
                first = self.earliest_of_all()
                with GroupReader(self._options.cluster, group, read_committed=False) as reader:
                    return {**first, **reader.committed(first)}
            case AtOffsets(offsets=offsets):
                return self._given(offsets)
            case _:
                assert_never(where)

    def earliest_of_all(self) -> dict[TopicPartition, int]:
        return self._ask(self._offsets(EARLIEST, None))

    def _given(self, offsets: Offsets) -> dict[TopicPartition, int]:
        earliest, latest = self.earliest_of_all(), self.latest()
        if unknown := sorted(offsets.keys() - earliest.keys()):
            raise PipelineRefused(f"offsets are given of {unknown[0]}, which is not read")
        if missing := sorted(earliest.keys() - offsets.keys()):
            raise PipelineRefused(f"no offset is given of {missing[0]}, which is read")
        if beyond := sorted(at for at, offset in offsets.items() if offset > latest[at]):
            raise PipelineRefused(
                f"offset {offsets[beyond[0]]:,} is given of {beyond[0]}, which ends at "
                f"{latest[beyond[0]]:,}"
            )
        by_word = {_EARLIEST_OFFSET: earliest, _LATEST_OFFSET: latest}
        return {
            at: by_word[offset][at] if offset in by_word else offset
            for at, offset in offsets.items()
        }

    async def _offsets(
        self, time: int, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, int]:
        cluster, options = self._opened(), self._options
        if options.pattern is not None:
            topics = await cluster.refresh_all()
            names = {name for name in topics if options.wants(name)}
        else:
            await cluster.refresh(options.topics)
            names = {name for name in options.topics if cluster.topic(name) is not None}
            if missing := sorted(options.topics - names):
                raise PipelineRefused(f"cluster {cluster.alias} has no topic {missing[0]}")
        self._require_same(cluster, names)
        present = self._partitions(cluster, names)
        asked = present if wanted is None else [at for at in present if at in wanted]
        answers = await cluster.list_offsets(asked, time, read_committed=options.read_committed)
        for answer in answers.values():
            if isinstance(answer, BrokerError):
                raise answer
        return {at: offset for at, offset in answers.items() if isinstance(offset, int)}

    def _require_same(self, cluster: Cluster, names: Iterable[TopicName]) -> None:
        """Raises `PipelineRefused` for a topic that is not the one that was read until now."""
        for name in sorted(names):
            topic = cluster.topic(name)
            if topic is None or self._ids.setdefault(name, topic.id) == topic.id:
                continue
            what = f"topic {name} was deleted and created again: its offsets mean other records now"
            if self._options.fails_on_loss:
                raise PipelineRefused(f"{what}; read it with a new checkpoint")
            log.warning("cluster %s: %s", cluster.alias, what)
            self._ids[name] = topic.id

    def _partitions(self, cluster: Cluster, names: Iterable[Any]) -> list[TopicPartition]:
        return [
            at
            for name in sorted(names)
            if (topic := cluster.topic(name)) is not None
            for at in (
                TopicPartition(topic=name, partition=n) for n in range(topic.partition_count)
            )
            if self._options.takes(at)
        ]

    async def _sampled(self, start: Offsets, ends: Offsets) -> float | None:
        """Bytes of a record, by a look at the first batches of some partitions."""
        cluster = self._opened()
        size_bytes = offsets = 0
        waiting = [at for at in sorted(ends) if start.get(at, ends[at]) < ends[at]]
        for at in waiting[:_SAMPLED_MAX]:
            fetched = await fetch_once(cluster, at, start[at], bytes_max=_SAMPLE_BYTES)
            window = fetched.records
            while (header := parse_header(window)) is not None:
                size_bytes += header.size_bytes
                offsets += header.last_offset_delta + 1
                window = window[header.size_bytes :]
        return size_bytes / offsets if offsets else None

    def _opened(self) -> Cluster:
        if self._cluster is None:
            self._cluster = open_cluster(self._options.cluster, "consumer")
        return self._cluster

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(question)
