"""Local writes of a stretch of one partition: what producers of that side wrote. Runs on executors.

What a mirror brought is not local. Its batches carry the producer id of the flow, or the mark that
all producers of a flow have; what an audit repaired carries a header. Such batches are not opened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heliograph.audit.conflicts import Write
from heliograph.audit.origin import ORIGIN_HEADER
from heliograph.audit.reading import BatchView, Damaged, LogReader, Record
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.errors import MirrorError
from heliograph.model import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictUnit:
    side: int
    at: TopicPartition
    offsets: OffsetRange
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrors:
    """By what batches of mirrors are known on one cluster."""

    producer_ids: frozenset[int] = frozenset()
    epochs: frozenset[int] = frozenset()

    def wrote(self, piece: BatchView) -> bool:
        header = piece.header
        if header is None or header.producer_id < 0:
            return False
        return header.producer_id in self.producer_ids or header.producer_epoch in self.epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictOrder:
    """All that tasks need besides their units; holds credentials."""

    clusters: Mapping[int, ClusterConfig] = field(repr=False)
    """By side."""
    mirrors: Mapping[int, Mirrors]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCounts:
    """What was not a local write with a key, or why the unit could not be read."""

    unit: ConflictUnit
    mirrored: int = 0
    keyless: int = 0
    damaged: int = 0
    problem: str = ""


def read_unit(
    order: ConflictOrder, unit: ConflictUnit, report: Callable[[UnitCounts], None]
) -> Iterator[Write]:
    """The task. What went wrong is reported: raised, it would have Spark try for ever."""
    with asyncio.Runner() as runner:
        cluster = open_cluster(order.clusters[unit.side], "consumer", only_reads=True)
        reading = _Reading(cluster, unit, order.mirrors[unit.side])
        try:
            while (some := runner.run(reading.some())) is not None:
                yield from some
        except MirrorError as exc:
            reading.problem = str(exc)
        finally:
            runner.run(reading.close())
        report(reading.counts)


class _Reading:
    """A stretch, batch by batch."""

    def __init__(self, cluster: Cluster, unit: ConflictUnit, mirrors: Mirrors) -> None:
        self._cluster, self._unit, self._mirrors = cluster, unit, mirrors
        self._log = LogReader(
            cluster,
            unit.at,
            unit.offsets.start,
            read_committed=True,
            likely_end=unit.offsets.end,
        )
        self._is_open = False
        self._mirrored = self._keyless = self._damaged = 0
        self.problem = ""

    async def some(self) -> list[Write] | None:
        """Of the next batch; None at the end of the stretch."""
        if not self._is_open:
            await self._cluster.refresh([self._unit.at.topic])
            self._is_open = True
        piece = await self._log.head()
        if piece is None or piece.offset >= self._unit.offsets.end:
            return None
        count = min(piece.count, self._unit.offsets.end - piece.offset)
        found: list[Write] = []
        if self._mirrors.wrote(piece):
            self._mirrored += count
        else:
            for offset, record in enumerate(self._log.contents(piece, count), piece.offset):
                if (write := self._write(offset, record)) is not None:
                    found.append(write)
        self._log.take(count)
        return found

    async def close(self) -> None:
        await self._log.close()
        self._cluster.close()

    @property
    def counts(self) -> UnitCounts:
        return UnitCounts(
            unit=self._unit,
            mirrored=self._mirrored,
            keyless=self._keyless,
            damaged=self._damaged,
            problem=self.problem,
        )

    def _write(self, offset: int, record: Record) -> Write | None:
        if isinstance(record, Damaged):
            self._damaged += 1
            return None
        at_ms, key, _, headers = record
        if at_ms < self._unit.since_ms:
            return None
        if any(name == ORIGIN_HEADER for name, _ in headers):
            self._mirrored += 1
            return None
        if key is None:
            self._keyless += 1
            return None
        at = self._unit.at
        return Write(at.topic, key, at_ms, self._unit.side, at.partition, offset)
