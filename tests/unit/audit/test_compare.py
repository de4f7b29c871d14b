"""Single cases that say what no random copy would: damage, append times, moved records, repairs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from heliograph.audit.compare import FindingKind, UnitResult, compare_unit
from heliograph.audit.origin import ORIGIN_HEADER, origin_of
from heliograph.audit.units import AuditUnit
from heliograph.ledger.runs import Run
from heliograph.model import (
    ClusterAlias,
    FlowId,
    LaneId,
    OffsetRange,
)
from heliograph.wire.batch import LOG_APPEND_TIME_BIT
from tests.kit.batches import NOW_MS, Record, batch_of
from tests.kit.memory_log import PARTITION, MemoryCluster, in_batches

COUNT = 40
LANE = LaneId(flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")), source=PARTITION)


def test_a_batch_that_fails_its_checksum_is_changed_and_the_others_are_equal() -> None:
    batches = in_batches(records(), [10])
    damaged = bytearray(batches[2])
    damaged[-2] ^= 0x01  # the last byte of a value: it still decodes

    result = compared(batches, [*batches[:2], memoryview(damaged), batches[3]])

    (found,) = result.findings
    assert (found.kind, found.source, found.note) == (
        FindingKind.CHANGED,
        OffsetRange(start=20, end=30),
        "the target's bytes are damaged",
    )
    assert result.unopened_records == 30


def test_a_target_with_append_times_is_compared_without_timestamps() -> None:
    late = [
        batch_of(
            *records()[start : start + 10],
            base_offset=start,
            attributes=LOG_APPEND_TIME_BIT,
            max_timestamp_ms=NOW_MS + 999_999,
        )
        for start in range(0, COUNT, 10)
    ]

    result = compared(in_batches(records(), [10]), late)

    assert not result.findings
    assert not result.timestamps_compared
    assert result.records == COUNT


def test_append_times_of_the_source_are_create_times_of_its_copy() -> None:
    at_ms = NOW_MS + 5
    stamped = batch_of(
        *records(), base_offset=0, attributes=LOG_APPEND_TIME_BIT, max_timestamp_ms=at_ms
    )
    copy = [replace(one, timestamp_ms=at_ms) for one in records()]

    result = compared([stamped], in_batches(copy, [7]))

    assert not result.findings
    assert result.timestamps_compared


def test_two_records_that_changed_places_from_afar_are_both_swapped() -> None:
    copy = records()
    copy[5], copy[30] = replace(copy[30], offset=5), replace(copy[5], offset=30)

    result = compared(in_batches(records(), [10]), in_batches(copy, [10]))

    assert [(one.kind, one.source, one.target) for one in result.findings] == [
        (FindingKind.SWAPPED, OffsetRange(start=30, end=31), OffsetRange(start=5, end=6)),
        (FindingKind.SWAPPED, OffsetRange(start=5, end=6), OffsetRange(start=30, end=31)),
    ]


def test_a_target_that_ends_early_misses_the_rest() -> None:
    result = compared(in_batches(records(), [10]), in_batches(records()[:33], [10]))

    (found,) = result.findings
    assert (found.kind, found.source) == (FindingKind.MISSING, OffsetRange(start=33, end=40))
    assert found.records == 7
    assert result.expired_records == 0


def test_what_lies_before_either_log_start_is_expired() -> None:
    source = MemoryCluster("A", in_batches(records()[10:], [10]), log_start=10)
    target = MemoryCluster("B", in_batches(records()[5:], [10]), log_start=15)

    result = between(source, target)

    assert not result.findings
    assert (result.expired_records, result.records) == (15, 25)


def test_records_the_mirror_itself_wrote_since_are_not_foreign() -> None:
    since = batch_of(Record(offset=COUNT, value=b"newer"), base_offset=COUNT)  # by producer 4711
    batches = in_batches(records(), [10])

    own = compared(batches, [*batches, since], producer_id=4711)
    others = compared(batches, [*batches, since], producer_id=1)

    assert not own.findings
    assert [one.kind for one in others.findings] == [FindingKind.FOREIGN]


def test_a_repaired_record_is_known_by_its_header_unless_it_lies() -> None:
    original = records()[3]
    honest = repaired(original, origin_of(LANE, 3), COUNT)
    liar = replace(honest, offset=COUNT + 1, value=b"other")
    batches = in_batches(records(), [10])
    appended = in_batches([honest, liar], [2])

    result = compared(batches, [*batches, *appended])

    assert result.repaired == (OffsetRange(start=3, end=4),)
    (found,) = result.findings
    assert found.kind is FindingKind.FOREIGN
    assert found.note == "says that it is source 3, but differs from it"


def test_a_source_record_that_the_ledger_skipped_is_missing() -> None:
    runs = (
        Run(position=0, source_offset=0, target_offset=0),
        Run(position=10, source_offset=12, target_offset=10),
    )
    copy = [replace(one, offset=n) for n, one in enumerate([*records()[:10], *records()[12:]])]

    result = between(
        MemoryCluster("A", in_batches(records(), [10])),
        MemoryCluster("B", in_batches(copy, [10])),
        runs=runs,
        end_position=COUNT - 2,
    )

    (found,) = result.findings
    assert (found.kind, found.source) == (FindingKind.MISSING, OffsetRange(start=10, end=12))
    assert result.records == COUNT - 2


def records() -> list[Record]:
    return [
        Record(offset=n, key=b"k%d" % n, value=b"v%d" % n, timestamp_ms=NOW_MS + n)
        for n in range(COUNT)
    ]


def repaired(record: Record, origin: bytes, offset: int) -> Record:
    return replace(record, offset=offset, headers=((ORIGIN_HEADER.encode(), origin),))


def compared(
    ours: list[memoryview], theirs: list[memoryview], *, producer_id: int = -1
) -> UnitResult:
    source, target = MemoryCluster("A", ours), MemoryCluster("B", theirs)
    return between(source, target, producer_id=producer_id)


def between(
    source: MemoryCluster,
    target: MemoryCluster,
    *,
    runs: tuple[Run, ...] = (Run(position=0, source_offset=0, target_offset=0),),
    end_position: int = COUNT,
    producer_id: int = -1,
) -> UnitResult:
    unit = AuditUnit(
        lane=LANE,
        target=PARTITION,
        start_position=0,
        end_position=end_position,
        runs=runs,
        target_end=target.end,
        producer_id=producer_id,
    )
    return asyncio.run(compare_unit(source, target, unit))
