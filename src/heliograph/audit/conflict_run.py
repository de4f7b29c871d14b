"""Conflicts between two sides that are both written to, from plan to report. Runs on the driver."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from heliograph.audit.conflict_reading import (
    ConflictOrder,
    ConflictUnit,
    Mirrors,
    UnitCounts,
    read_unit,
)
from heliograph.audit.conflicts import (
    KeyConflict,
    Summary,
    TopicConflicts,
    bucket_of,
    judged,
    summarised,
)
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import EARLIEST, LATEST, NO_OFFSET, Cluster, open_cluster
from heliograph.clock import monotonic_s
from heliograph.config.schema import MirrorConfig
from heliograph.engine.sorted_job import run_sorted
from heliograph.errors import BrokerError, NoLedger, NotAuthorised, RecoveryRefused
from heliograph.ledger.access import read_ledger, within
from heliograph.ledger.mark import mark_of
from heliograph.model import ClusterAlias, FlowId, OffsetRange, TopicName, TopicPartition

PARQUET_FILE: Final = "conflicts.parquet"
_UNIT_OFFSETS: Final = 500_000
_ANSWER_S_MAX: Final = 30.0
_ROWS_AT_ONCE: Final = 10_000
_TASKS_MAX: Final = 200
_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("key", pa.binary()),
        ("source_writes", pa.int64()),
        ("target_writes", pa.int64()),
        ("source_conflicting", pa.int64()),
        ("target_conflicting", pa.int64()),
        ("closest_ms", pa.int64()),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),
        ("source_timestamp_ms", pa.int64()),
        ("target_partition", pa.int32()),
        ("target_offset", pa.int64()),
        ("target_timestamp_ms", pa.int64()),
        ("first_ms", pa.int64()),
        ("last_ms", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictQuestion:
    flow: FlowId
    topics: tuple[TopicName, ...]
    """The same name on both sides: that is what local producers write to."""
    window_ms: int
    since_ms: int = 0
    parquet: Path | None = None
    """A folder that gets a file with every key in conflict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCounts:
    """Of both sides: the source's first."""

    mirrored: tuple[int, int]
    keyless: tuple[int, int]
    damaged: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictReport:
    question: ConflictQuestion
    topics: tuple[TopicConflicts, ...]
    worst: tuple[KeyConflict, ...]
    counts: SideCounts
    problems: tuple[str, ...]
    """What could not be read, and why."""
    notes: tuple[str, ...]
    seconds: float

    @property
    def keys(self) -> int:
        """In conflict."""
        return sum(each.keys_in_conflict for each in self.topics)

    @property
    def is_bad(self) -> bool:
        return bool(self.keys)

    @property
    def file(self) -> str:
        """The Parquet file; nothing where none was asked for."""
        folder = self.question.parquet
        return "" if folder is None else str(folder / PARQUET_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConflictPlan:
    order: ConflictOrder
    units: tuple[ConflictUnit, ...]
    notes: tuple[str, ...]


def plan_conflicts(config: MirrorConfig, asked: ConflictQuestion) -> ConflictPlan:
    """What is to be read on both sides. Raises `MirrorError` where a topic is missing on one."""
    return asyncio.run(_planned(config, asked))


def find_conflicts(
    session: Callable[[], Any], plan: ConflictPlan, asked: ConflictQuestion
) -> ConflictReport:
    """Run the job in a SparkContext, which is asked for when there is something to read."""
    began_s = monotonic_s()
    summary, counts = Summary(), dict[ConflictUnit, UnitCounts]()
    with _Parquet(asked.parquet) as file:
        if plan.units:
            summaries, reports = run_sorted(
                session(),
                f"heliograph-conflicts-{uuid.uuid4().hex}",
                plan.units,
                partial(read_unit, plan.order),
                bucket_of,
                partial(judged, window_ms=asked.window_ms),
                summarised,
                tasks=min(_TASKS_MAX, len(plan.units)),
                on_row=None if file is None else file.add,
            )
            for one in summaries:
                summary.add(one)
            counts = {one.unit: one for one in reports}
    return ConflictReport(
        question=asked,
        topics=tuple(
            summary.topics.get(name, TopicConflicts(topic=name)) for name in sorted(asked.topics)
        ),
        worst=tuple(summary.worst),
        counts=SideCounts(
            mirrored=_by_side(counts.values(), lambda one: one.mirrored),
            keyless=_by_side(counts.values(), lambda one: one.keyless),
            damaged=_by_side(counts.values(), lambda one: one.damaged),
        ),
        problems=tuple(
            f"{_alias(asked.flow, one.unit.side)} {one.unit.at}: {one.problem}"
            for one in counts.values()
            if one.problem
        ),
        notes=plan.notes,
        seconds=monotonic_s() - began_s,
    )


def _by_side(counts: Any, of: Callable[[UnitCounts], int]) -> tuple[int, int]:
    found = [0, 0]
    for one in counts:
        found[one.unit.side] += of(one)
    return found[0], found[1]


def _alias(flow: FlowId, side: int) -> ClusterAlias:
    return flow.target if side else flow.source


async def _planned(config: MirrorConfig, asked: ConflictQuestion) -> ConflictPlan:
    flow = asked.flow
    mirrors = {side: await _mirrors(config, flow, side) for side in (0, 1)}
    clusters = {0: config.source_of(flow), 1: config.target_of(flow)}
    units: list[ConflictUnit] = []
    for side, settings in clusters.items():
        cluster = open_cluster(settings, "consumer", only_reads=True)
        try:
            units += await within(
                _units(cluster, asked, side), _ANSWER_S_MAX, f"cluster {settings.alias}"
            )
        finally:
            cluster.close()
    notes = [
        note
        for settings in clusters.values()
        for note in await asyncio.to_thread(_compacted, ClusterAdmin(settings), asked.topics)
    ]
    return ConflictPlan(
        order=ConflictOrder(clusters=clusters, mirrors=mirrors),
        units=tuple(units),
        notes=tuple(notes),
    )


async def _mirrors(config: MirrorConfig, flow: FlowId, side: int) -> Mirrors:
    """Every flow that writes to this side: those of the file, and the one from the other side."""
    here = _alias(flow, side)
    other = FlowId(source=_alias(flow, 1 - side), target=here)
    flows = {other, *(pair.id for pair in config.pairs if pair.id.target == here)}
    known = {pair.id for pair in config.pairs}
    ids: set[int] = set()
    for each in sorted(flows & known):
        try:
            async with read_ledger(config, each) as ledger:
                ids.update(each.producer_id for each in ledger.store.view.producers)
        except NoLedger:
            continue
    return Mirrors(producer_ids=frozenset(ids), epochs=frozenset(map(mark_of, flows)))


async def _units(cluster: Cluster, asked: ConflictQuestion, side: int) -> list[ConflictUnit]:
    await cluster.refresh(asked.topics)
    places: list[TopicPartition] = []
    for name in asked.topics:
        topic = cluster.topic(name)
        if topic is None:
            raise RecoveryRefused(
                f"cluster {cluster.alias} has no topic {name} that may be read: conflicts are "
                "looked for in topics that both sides have"
            )
        places += [
            TopicPartition(topic=name, partition=number) for number in range(topic.partition_count)
        ]
    at = max(0, asked.since_ms) or EARLIEST
    starts = await cluster.list_offsets(places, at)
    ends = await cluster.list_offsets(places, LATEST, read_committed=True)
    units: list[ConflictUnit] = []
    for place in places:
        start, end = _known(starts[place]), _known(ends[place])
        if start == NO_OFFSET:
            continue  # nothing is that new
        units += [
            ConflictUnit(
                side=side,
                at=place,
                offsets=OffsetRange(start=begin, end=min(begin + _UNIT_OFFSETS, end)),
                since_ms=asked.since_ms,
            )
            for begin in range(start, end, _UNIT_OFFSETS)
        ]
    return units


def _known(answer: int | BrokerError) -> int:
    if isinstance(answer, BrokerError):
        raise answer
    return answer


def _compacted(admin: ClusterAdmin, topics: Sequence[TopicName]) -> list[str]:
    found: list[str] = []
    for name, settings in admin.topic_configs(topics).items():
        if isinstance(settings, NotAuthorised):
            found.append(f"{settings}: whether {name} is compacted is not known")
            continue
        policy = settings.get("cleanup.policy")
        if policy is not None and "compact" in (policy.value or ""):
            found.append(
                f"{name} is compacted on {admin.alias}: writes that compaction removed are not seen"
            )
    return found


class _Parquet:
    """The file of conflicts, written under another name until it is whole; None where unwanted."""

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None else path / PARQUET_FILE
        self._part = None if path is None else path / f"{PARQUET_FILE}.part"
        self._rows: list[KeyConflict] = []
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> _Parquet | None:
        if self._path is None:
            return None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._part, _SCHEMA)
        return self

    def add(self, row: KeyConflict | TopicConflicts) -> None:
        if isinstance(row, KeyConflict):
            self._rows.append(row)
            if len(self._rows) >= _ROWS_AT_ONCE:
                self._flush()

    def __exit__(self, kind: object, *_: object) -> None:
        if self._writer is None or self._path is None or self._part is None:
            return
        if kind is None:
            self._flush()
        self._writer.close()
        if kind is None:
            self._part.replace(self._path)
        else:
            self._part.unlink(missing_ok=True)

    def _flush(self) -> None:
        rows, self._rows = self._rows, []
        columns = list(zip(*map(_row, rows), strict=True))
        if columns and self._writer is not None:
            arrays = [
                pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)
            ]
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA))


def _row(one: KeyConflict) -> tuple[Any, ...]:
    ours, theirs = one.closest
    return (
        one.topic,
        one.key,
        *one.writes,
        *one.conflicting,
        one.closest_ms,
        *ours,
        *theirs,
        one.first_ms,
        one.last_ms,
    )
