"""What is measured: the rows of the table, their sizes and their goals. Pure; runs anywhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import Final


class System(StrEnum):
    HELIOGRAPH = "heliograph"
    MM2_DEFAULT = "mm2_default"
    MM2_TUNED = "mm2_tuned"
    FLOOR = "floor"


class Codec(IntEnum):
    """Numbers of the v2 batch attributes."""

    NONE = 0
    LZ4 = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Heliograph is to reach `factor` times what `against` reaches."""

    against: System
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRow:
    """A full topic copied to an empty one, as fast as it goes."""

    name: str
    records: int
    record_bytes: int
    """Key and value together, before compression."""
    batch_bytes: int
    """Upper bound of a batch before compression, as a producer's `batch.size`."""
    partitions: int = 4
    codec: Codec = Codec.NONE
    systems: tuple[System, ...]
    goals: tuple[Goal, ...]

    @property
    def payload_bytes(self) -> int:
        return self.records * self.record_bytes


class Side(StrEnum):
    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class FarRow(CopyRow):
    """The same with one of the clusters at the end of a long or narrow link."""

    far: Side
    """Which of the clusters is far away: the other is beside the mirror."""
    round_trip_ms: int
    bytes_per_s: int
    """Each way."""
    seconds_max: float = 45.0
    """Who has not carried everything by then is judged by what is there: some need an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRow:
    """Records at a steady pace, timed from the producer's send to the target's consumer."""

    name: str
    records_per_s: int = 1_000
    record_bytes: int = 100
    partitions: int = 4
    warmup_s: float = 45.0
    """Long enough for the brokers' JIT compiler to be done with the first system too."""
    seconds: float = 60.0
    systems: tuple[System, ...] = (System.HELIOGRAPH, System.MM2_DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsRow:
    """Many partitions on one mirror: at rest, then under a steady load."""

    name: str
    partitions: int = 1_000
    idle_s: float = 30.0
    busy_s: float = 30.0
    bytes_per_s: int = 50_000_000
    record_bytes: int = 1_024
    batch_bytes: int = 16_384
    systems: tuple[System, ...] = (System.HELIOGRAPH, System.MM2_DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRow:
    """Groups that lag by so many records fail over: what do they read again?"""

    name: str
    records: int = 800_000
    record_bytes: int = 100
    batch_bytes: int = 16_384
    partitions: int = 4
    parts: int = 20
    """Mirrored one after the other, as records of a live topic are."""
    lags: tuple[int, ...] = (0, 1_000, 10_000, 100_000)
    settle_s: float = 75.0
    """More than the minute within which MirrorMaker 2 writes its last offset syncs."""
    systems: tuple[System, ...] = (System.HELIOGRAPH, System.MM2_DEFAULT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRow:
    """A paced flow whose groups are drilled: does anybody who waits for its records notice?"""

    name: str
    records_per_s: int = 1_000
    record_bytes: int = 100
    partitions: int = 4
    groups: int = 10
    warmup_s: float = 120.0
    """Brokers compile what they run most about so long; it shows in their slowest answers."""
    laps: int = 4
    """Of each kind: quiet, and full of drills one after the other."""
    lap_s: float = 20.0
    systems: tuple[System, ...] = (System.HELIOGRAPH,)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverRow:
    """An unplanned failover of a flow that is being carried, its source gone."""

    name: str
    groups: int = 100
    partitions: int = 64
    systems: tuple[System, ...] = (System.HELIOGRAPH,)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """A mirrored topic audited, against plain consumers that read one side once."""

    name: str
    records: int = 5_000_000
    record_bytes: int = 100
    batch_bytes: int = 16_384
    partitions: int = 4
    systems: tuple[System, ...] = (System.HELIOGRAPH,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """A ledger after long use: one lane with very many runs, heads of many lanes."""

    name: str
    runs: int = 10_000_000
    lanes: int = 1_000
    head_ticks: int = 7 * 86_400 // 5
    """A week of heads, one of every lane each five seconds."""
    groups: int = 100
    quiet_s: float = 40.0
    """A cleaner looks every 15 s; what has not changed for so long is compacted."""
    systems: tuple[System, ...] = (System.HELIOGRAPH,)


Row = (
    CopyRow
    | LatencyRow
    | PartitionsRow
    | TranslationRow
    | DrillRow
    | FailoverRow
    | AuditRow
    | LedgerRow
)

_H, _D, _T, _F = System.HELIOGRAPH, System.MM2_DEFAULT, System.MM2_TUNED, System.FLOOR

ROWS: Final[tuple[Row, ...]] = (
    CopyRow(
        name="plain_16k",
        records=5_000_000,
        record_bytes=100,
        batch_bytes=16_384,
        systems=(_H, _D, _T, _F),
        goals=(
            Goal(against=_D, factor=8.0),
            Goal(against=_T, factor=4.0),
            Goal(against=_F, factor=0.85),
        ),
    ),
    CopyRow(
        name="lz4_64k",
        records=5_000_000,
        record_bytes=100,
        batch_bytes=65_536,
        codec=Codec.LZ4,
        systems=(_H, _T, _F),
        goals=(Goal(against=_T, factor=6.0), Goal(against=_F, factor=0.85)),
    ),
    CopyRow(
        name="one_kb",
        records=1_000_000,
        record_bytes=1_024,
        batch_bytes=16_384,
        systems=(_H, _T, _F),
        goals=(Goal(against=_T, factor=4.0),),
    ),
    CopyRow(
        name="one_record",
        records=300_000,
        record_bytes=100,
        batch_bytes=1,
        systems=(_H, _D),
        goals=(Goal(against=_D, factor=3.0),),
    ),
    LatencyRow(name="latency"),
    PartitionsRow(name="partitions_1000"),
    TranslationRow(name="translation"),
    DrillRow(name="drill"),
    FailoverRow(name="failover"),
    AuditRow(name="audit"),
    LedgerRow(name="ledger"),
    *(
        FarRow(
            name=f"far_{far.value}_{round_trip_ms}ms_{mb_per_s}mb{suffix}",
            # About 15 s of a full link.
            records=mb_per_s * per_mb_per_s,
            record_bytes=100,
            batch_bytes=batch_bytes,
            codec=codec,
            systems=(_H, _D),
            goals=(Goal(against=_D, factor=1.0),),
            far=far,
            round_trip_ms=round_trip_ms,
            bytes_per_s=mb_per_s * 1_000_000,
        )
        for far in Side
        for round_trip_ms, mb_per_s in ((50, 20), (200, 60))
        for suffix, codec, batch_bytes, per_mb_per_s in (
            ("", Codec.NONE, 16_384, 140_000),
            ("_lz4", Codec.LZ4, 65_536, 200_000),
        )
    ),
)

QUICK_ROW: Final = "plain_16k"

CPU_GOAL_FACTOR: Final = 0.1
"""CPU seconds per GB, Heliograph's as a share of MirrorMaker 2's."""
LATENCY_P50_GOAL_FACTOR: Final = 1 / 3
LATENCY_P99_GOAL_FACTOR: Final = 1.0
LAG_GOAL_S: Final = 1.0
DRILL_P99_GOAL_FACTOR: Final = 1.1
"""A flow's p99 while it is drilled, as a share of its p99 otherwise."""

FAILOVER_GOAL_S: Final = 5.0
LINK_SHARE_GOAL: Final = 0.9
"""Of a long link, while a backlog crosses it."""
AUDIT_GOAL_FACTOR: Final = 1.0
"""Time of an audit of both sides, as a share of a plain consumer's pass over one."""

LEDGER_SLOT_GOAL_S: Final = 3.0
LEDGER_FAILOVER_GOAL_S: Final = 5.0
LEDGER_GOAL_MB: Final = 300.0

_RECORDS_MIN: Final = 400
_PARTITIONS_MIN: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Shrinks every row alike, so that a smoke run walks the same path as a real one."""

    factor: float = 1.0

    def row(self, row: Row) -> Row:
        if self.factor == 1.0:
            return row
        if isinstance(row, CopyRow):
            records = max(_RECORDS_MIN, int(row.records * self.factor))
            return replace(row, records=records - records % row.partitions)
        if isinstance(row, LatencyRow):
            return replace(
                row,
                warmup_s=max(1.0, row.warmup_s * self.factor),
                seconds=max(3.0, row.seconds * self.factor),
            )
        if isinstance(row, TranslationRow):
            records = max(_RECORDS_MIN, int(row.records * self.factor))
            whole = row.partitions * row.parts
            return replace(
                row,
                records=max(whole, records - records % whole),
                settle_s=max(5.0, row.settle_s * self.factor),
            )
        if isinstance(row, AuditRow):
            records = max(_RECORDS_MIN, int(row.records * self.factor))
            return replace(row, records=records - records % row.partitions)
        if isinstance(row, FailoverRow):
            return replace(
                row,
                groups=max(4, int(row.groups * self.factor)),
                partitions=max(4, int(row.partitions * self.factor)),
            )
        if isinstance(row, LedgerRow):
            return replace(
                row,
                runs=max(_RECORDS_MIN, int(row.runs * self.factor)),
                lanes=max(_PARTITIONS_MIN, int(row.lanes * self.factor)),
                head_ticks=max(_PARTITIONS_MIN, int(row.head_ticks * self.factor)),
            )
        if isinstance(row, DrillRow):
            return replace(
                row,
                warmup_s=max(1.0, row.warmup_s * self.factor),
                laps=max(1, int(row.laps * self.factor)),
                lap_s=max(3.0, row.lap_s * self.factor),
            )
        return replace(
            row,
            partitions=max(_PARTITIONS_MIN, int(row.partitions * self.factor)),
            idle_s=max(2.0, row.idle_s * self.factor),
            busy_s=max(3.0, row.busy_s * self.factor),
            bytes_per_s=max(1_000_000, int(row.bytes_per_s * self.factor)),
        )


def choose_rows(names: tuple[str, ...], factor: float) -> tuple[Row, ...]:
    """The rows asked for in the table's order; all of them where none is named."""
    known = {row.name for row in ROWS}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"no such row: {', '.join(unknown)}; rows are {', '.join(sorted(known))}")
    scale = Scale(factor=factor)
    return tuple(scale.row(row) for row in ROWS if not names or row.name in names)


def run_order(systems: tuple[System, ...], round_index: int) -> tuple[System, ...]:
    """Back and forth, so that no system always runs after the same other one."""
    return systems if round_index % 2 == 0 else systems[::-1]
