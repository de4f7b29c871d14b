"""Whatever is done to a copy, an audit names it, and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.audit.align import edits_between, next_agreement
from heliograph.audit.compare import Finding, FindingKind, UnitResult, compare_unit
from heliograph.audit.units import AuditUnit
from heliograph.ledger.runs import Run, Runs
from heliograph.model import (
    ClusterAlias,
    FlowId,
    LaneId,
    OffsetRange,
)
from tests.kit.batches import NOW_MS, Record
from tests.kit.memory_log import PARTITION, MemoryCluster, in_batches

COUNT = 120
LANE = LaneId(flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")), source=PARTITION)
SLOW = settings(deadline=None, max_examples=40)
SIZES = st.lists(st.integers(1, 30), min_size=1, max_size=4)


@SLOW
@given(SIZES, SIZES, st.sampled_from([0, 2, 3, 4]), st.integers(20, COUNT))
def test_a_copy_cut_into_other_batches_is_equal(
    ours: list[int], theirs: list[int], codec: int, unit_records: int
) -> None:
    records = _records()
    source, target = _clusters(records, records, ours, theirs, codec)

    results = _audit(source, target, unit_records)

    assert _findings(results) == []
    assert sum(one.records for one in results) == COUNT
    assert sum(one.expired_records for one in results) == 0


@SLOW
@given(
    st.sampled_from(["missing", "repeated", "changed", "header", "swapped", "foreign"]),
    st.integers(0, COUNT - 2),
    SIZES,
    SIZES,
    st.integers(20, COUNT),
)
def test_one_fault_is_one_finding_in_its_place_however_units_are_cut(
    fault: str, at: int, ours: list[int], theirs: list[int], unit_records: int
) -> None:
    records = _records()
    copy = _faulty(records, fault, at)
    source, target = _clusters(records, copy, ours, theirs, 0)

    results = _audit(source, target, unit_records)

    assert _spans(_findings(results)) == [_expected(fault, at)]


@SLOW
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["missing", "repeated", "changed", "header", "swapped", "foreign"]),
            st.integers(12, 40),
        ),
        min_size=2,
        max_size=8,
    ),
    SIZES,
    SIZES,
    st.integers(10, COUNT),
)
def test_faults_that_are_apart_are_each_found_in_their_place(
    faults: list[tuple[str, int]], ours: list[int], theirs: list[int], unit_records: int
) -> None:
    copy, wanted, at, shift = _records(), [], 0, 0
    for fault, further in faults:
        at += further
        if at >= COUNT - 1:
            break
        copy = _faulty(copy, fault, at + shift)
        kind, source, (start, end), note = _expected(fault, at)
        wanted.append((kind, source, (start + shift, end + shift), note))
        shift += {"missing": -1, "foreign": 1, "repeated": 1}.get(fault, 0)
    copy = [
        replace(one, value=b"x%d" % n) if one.key == b"x" else one for n, one in enumerate(copy)
    ]
    source_log, target_log = _clusters(_records(), _renumbered(copy), ours, theirs, 0)

    results = _audit(source_log, target_log, unit_records)

    assert _placed(_spans(_findings(results))) == _placed(wanted)
    assert sum(one.records for one in results) == COUNT


@SLOW
@given(
    st.sets(st.integers(0, COUNT - 1), max_size=60),
    st.sets(st.integers(0, COUNT - 1), max_size=60),
    SIZES,
    SIZES,
    st.integers(20, COUNT),
)
def test_what_compaction_removed_on_either_side_is_expired_and_no_fault(
    ours: set[int], theirs: set[int], our_sizes: list[int], their_sizes: list[int], unit: int
) -> None:
    records = _records()
    left = [one for one in records if one.offset not in ours]
    right = [one for one in records if one.offset not in theirs]
    if not left or not right or max(theirs, default=0) == COUNT - 1:
        return
    source = MemoryCluster("A", in_batches(left, our_sizes))
    target = MemoryCluster("B", in_batches(right, their_sizes))

    results = _audit(source, target, unit)

    assert _findings(results) == []
    assert sum(one.expired_records for one in results) == len(ours | theirs)
    assert sum(one.records for one in results) == COUNT - len(ours | theirs)


@SLOW
@given(
    st.lists(
        st.sampled_from(["record", "record", "record", "gap", "foreign"]), min_size=3, max_size=90
    ),
    SIZES,
    SIZES,
    st.integers(3, 40),
    st.booleans(),
)
def test_gaps_on_the_source_are_nothing_and_others_records_between_runs_are_foreign(
    events: list[str], ours: list[int], theirs: list[int], unit_records: int, is_changed: bool
) -> None:
    made = _lane(["record", *events, "record"])
    copy = list(made.copy)
    if is_changed:
        copy[0] = replace(copy[0], value=b"changed")
    source = MemoryCluster("A", in_batches(made.records, ours))
    target = MemoryCluster("B", in_batches(copy, theirs))

    results = _compare(source, target, made.units(unit_records, target.end))

    found = _findings(results)
    foreign = [one for one in found if one.kind is FindingKind.FOREIGN]
    offsets = [n for one in foreign if one.target for n in range(one.target.start, one.target.end)]
    assert offsets == made.foreign
    assert [one.kind.value for one in found if one.kind is not FindingKind.FOREIGN] == (
        ["changed"] if is_changed else []
    )
    assert sum(one.records for one in results) == len(made.records)


@given(st.lists(st.integers(0, 5), max_size=40), st.lists(st.integers(0, 5), max_size=40))
def test_edits_lead_from_one_side_to_the_other(ours: list[int], theirs: list[int]) -> None:
    edits = edits_between(ours, theirs)

    built, at = [], 0
    for edit in edits:
        built += ours[at : edit.source_start]
        built += theirs[edit.target_start : edit.target_end]
        at = edit.source_end
    assert built + ours[at:] == theirs


@given(st.lists(st.integers(0, 5), max_size=40), st.lists(st.integers(0, 5), max_size=40))
def test_where_both_sides_agree_again_they_do(ours: list[int], theirs: list[int]) -> None:
    found = next_agreement(ours, theirs, at_end=True)

    assert found is not None
    x, y = found
    agreeing = min(8, len(ours) - x, len(theirs) - y)
    assert ours[x : x + agreeing] == theirs[y : y + agreeing]


@dataclass(slots=True)
class _Lane:
    records: list[Record] = field(default_factory=list)
    copy: list[Record] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    foreign: list[int] = field(default_factory=list)

    def units(self, unit_records: int, target_end: int) -> list[AuditUnit]:
        runs, count = Runs(self.runs), len(self.records)
        return [
            AuditUnit(
                lane=LANE,
                target=PARTITION,
                start_position=start,
                end_position=min(count, start + unit_records),
                runs=(
                    Run(
                        position=start,
                        source_offset=runs.source_offset_at(start),
                        target_offset=runs.target_offset_at(start),
                    ),
                    *(run for run in runs if start < run.position < start + unit_records),
                ),
                source_start=runs.source_offset_at(start - 1) + 1 if start else None,
                target_start=runs.target_offset_at(start - 1) + 1 if start else None,
                target_end=target_end if start + unit_records >= count else None,
            )
            for start in range(0, count, unit_records)
        ]


def _lane(events: list[str]) -> _Lane:
    """A lane as a mirror leaves it: gaps of the source begin runs, and so do others' records."""
    made = _Lane()
    source = target = 0
    is_broken = True
    for event in events:
        if event == "gap":
            source, is_broken = source + 1, True
        elif event == "foreign":
            made.copy.append(Record(offset=target, key=b"x", value=b"foreign %d" % target))
            made.foreign.append(target)
            target, is_broken = target + 1, True
        else:
            position = len(made.records)
            if is_broken:
                made.runs.append(Run(position=position, source_offset=source, target_offset=target))
            one = Record(offset=source, key=b"k%d" % source, timestamp_ms=NOW_MS + source)
            made.records.append(one)
            made.copy.append(replace(one, offset=target))
            source, target, is_broken = source + 1, target + 1, False
    return made


def _records() -> list[Record]:
    return [
        Record(
            offset=n,
            key=b"k%d" % n,
            value=b"v%d" % n,
            timestamp_ms=NOW_MS + n,
            headers=((b"h", b"%d" % n),),
        )
        for n in range(COUNT)
    ]


def _faulty(records: list[Record], fault: str, at: int) -> list[Record]:
    copy = list(records)
    one = copy[at]
    if fault == "missing":
        del copy[at]
    elif fault == "repeated":
        copy.insert(at + 1, one)
    elif fault == "changed":
        copy[at] = replace(one, value=b"V" + (one.value or b"")[1:])
    elif fault == "header":
        copy[at] = replace(one, headers=((b"h", b"other"),))
    elif fault == "swapped":
        copy[at], copy[at + 1] = copy[at + 1], copy[at]
    else:
        copy.insert(at, Record(offset=0, key=b"x", value=b"foreign"))
    return _renumbered(copy)


def _renumbered(records: list[Record]) -> list[Record]:
    return [replace(one, offset=n) for n, one in enumerate(records)]


def _expected(fault: str, at: int) -> tuple[str, Any, Any, str]:
    return {
        "missing": ("missing", (at, at + 1), (at, at), ""),
        "repeated": ("repeated", (at, at + 1), (at + 1, at + 2), ""),
        "changed": ("changed", (at, at + 1), (at, at + 1), "value"),
        "header": ("changed", (at, at + 1), (at, at + 1), "headers"),
        "swapped": ("swapped", (at, at + 2), (at, at + 2), ""),
        "foreign": ("foreign", None, (at, at + 1), ""),
    }[fault]


def _clusters(
    records: list[Record], copy: list[Record], ours: list[int], theirs: list[int], codec: int
) -> tuple[MemoryCluster, MemoryCluster]:
    return (
        MemoryCluster("A", in_batches(records, ours, codec)),
        MemoryCluster("B", in_batches(copy, theirs, codec)),
    )


def _audit(source: MemoryCluster, target: MemoryCluster, unit_records: int) -> list[UnitResult]:
    units = [
        AuditUnit(
            lane=LANE,
            target=PARTITION,
            start_position=start,
            end_position=min(COUNT, start + unit_records),
            runs=(Run(position=start, source_offset=start, target_offset=start),),
            source_start=start or None,
            target_start=start or None,
            target_end=target.end if start + unit_records >= COUNT else None,
        )
        for start in range(0, COUNT, unit_records)
    ]

    return _compare(source, target, units)


def _compare(
    source: MemoryCluster, target: MemoryCluster, units: list[AuditUnit]
) -> list[UnitResult]:
    async def compare() -> list[UnitResult]:
        return [await compare_unit(source, target, unit) for unit in units]

    return asyncio.run(compare())


def _findings(results: list[UnitResult]) -> list[Finding]:
    return [one for result in results for one in result.findings]


def _spans(findings: list[Finding]) -> list[tuple[str, Any, Any, str]]:
    return [(one.kind.value, _span(one.source), _span(one.target), one.note) for one in findings]


def _span(part: OffsetRange | None) -> tuple[int, int] | None:
    return None if part is None else (part.start, part.end)


def _placed(found: list[tuple[str, Any, Any, str]]) -> list[str]:
    """Comparable; which of two equal records is the one too many, nobody can tell."""
    return sorted(
        str((kind, source, None if kind == "repeated" else target, note))
        for kind, source, target, note in found
    )
