from __future__ import annotations

import pickle

from pydantic import TypeAdapter

from heliograph.audit.findings import (
    FINDINGS_MAX,
    Finding,
    FindingKind,
    Tally,
    gathered,
    ranges_of,
    without,
)
from heliograph.model import OffsetRange


def finding(kind: FindingKind, source: int, target: int, note: str = "") -> Finding:
    return Finding(
        kind=kind,
        source=OffsetRange(start=source, end=source + 1),
        target=OffsetRange(start=target, end=target + 1),
        records=1,
        note=note,
    )


def test_neighbours_of_a_kind_are_one_range_and_others_are_not() -> None:
    tally = Tally()

    tally.add(finding(FindingKind.CHANGED, 5, 7, "value"))
    tally.add(finding(FindingKind.CHANGED, 6, 8, "value"))
    tally.add(finding(FindingKind.CHANGED, 7, 9, "key"))
    tally.add(finding(FindingKind.CHANGED, 9, 11, "key"))

    assert [(one.source, one.records) for one in tally.findings] == [
        (OffsetRange(start=5, end=7), 2),
        (OffsetRange(start=7, end=8), 1),
        (OffsetRange(start=9, end=10), 1),
    ]


def test_what_is_listed_is_bounded_and_what_is_counted_is_not() -> None:
    tally = Tally()

    for n in range(FINDINGS_MAX + 500):
        tally.add(finding(FindingKind.CHANGED, 2 * n, 2 * n))

    assert len(tally.findings) == FINDINGS_MAX
    assert tally.counts[FindingKind.CHANGED] == FINDINGS_MAX + 500


def test_counts_of_what_was_not_listed_survive_gathering() -> None:
    beyond = Tally()
    for n in range(FINDINGS_MAX + 7):
        beyond.add(finding(FindingKind.CHANGED, 2 * n, 2 * n))

    tally = gathered([finding(FindingKind.MISSING, 1, 1)], beyond)

    assert tally.counts == {FindingKind.CHANGED: FINDINGS_MAX + 7, FindingKind.MISSING: 1}


def test_repaired_offsets_are_taken_out_of_what_is_missing_and_nothing_else() -> None:
    missing = Finding(
        kind=FindingKind.MISSING,
        source=OffsetRange(start=10, end=20),
        target=OffsetRange(start=10, end=10),
        records=10,
    )
    repaired = [OffsetRange(start=0, end=11), OffsetRange(start=14, end=16)]

    left = without(missing, repaired)

    assert [one.source for one in left] == [
        OffsetRange(start=11, end=14),
        OffsetRange(start=16, end=20),
    ]
    changed = finding(FindingKind.CHANGED, 14, 14)
    assert without(changed, repaired) == [changed]


def test_offsets_in_any_order_become_ranges() -> None:
    assert ranges_of([7, 3, 4, 9, 8, 4]) == (
        OffsetRange(start=3, end=5),
        OffsetRange(start=7, end=10),
    )


def test_a_finding_survives_json_and_pickle() -> None:
    one = Finding(
        kind=FindingKind.FOREIGN,
        source=None,
        target=OffsetRange(start=1, end=2),
        records=1,
        note="x",
    )

    row = TypeAdapter(Finding).dump_python(one, mode="json")

    assert row == {
        "kind": "foreign",
        "source": None,
        "target": [1, 2],
        "records": 1,
        "note": "x",
    }
    assert TypeAdapter(Finding).validate_python(row) == one
    assert pickle.loads(pickle.dumps(one)) == one
