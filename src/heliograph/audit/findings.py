"""What an audit found, gathered unit by unit. Runs anywhere; everything here pickles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from heliograph.audit.units import AuditUnit
from heliograph.ledger.memo import OffsetPair
from heliograph.model import LaneId, OffsetRange, TopicPartition

FINDINGS_MAX: Final = 1_000
"""Of one unit; the counts stay true."""


class FindingKind(StrEnum):
    MISSING = "missing"
    """On the source, mirrored by the ledger's word, not on the target."""
    REPEATED = "repeated"
    """More often on the target than on the source."""
    CHANGED = "changed"
    """In the right place, with other content."""
    SWAPPED = "swapped"
    """On the target, in another order."""
    FOREIGN = "foreign"
    """On the target, and never on the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Records that differ in one way. A range without offsets says where they would be."""

    kind: FindingKind
    source: OffsetPair | None
    """None where the source has nothing like it."""
    target: OffsetPair | None
    records: int
    note: str = ""
    """Which part differs, or what else is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitResult:
    lane: LaneId
    target: TopicPartition
    start_position: int
    end_position: int
    records: int
    """Compared with the other side."""
    equal_records: int
    """Of `records`, found the same."""
    bytes: int
    """Read from both sides."""
    unopened_records: int = 0
    """Of `records`, in batches that were equal byte by byte."""
    expired_records: int = 0
    """Gone by retention or compaction on one side; no fault."""
    left_out_records: int = 0
    """Of the source, that the flow's transforms drop or fail on; those are nowhere compared."""
    brought_records: int = 0
    """Of the source, that a mirror brought there and the flow does not send on."""
    others_records: int = 0
    """Of the target, that others wrote there under the same names."""
    findings: tuple[Finding, ...] = ()
    counts: Mapping[FindingKind, int] = field(default_factory=dict)
    """Records of each kind, whatever `findings` has room for."""
    repaired: tuple[OffsetRange, ...] = ()
    """Source offsets of records that an earlier audit appended again, as their header says."""

    timestamps_compared: bool = True
    """Not where the target's topic has the time of the append instead."""

    @property
    def repaired_records(self) -> int:
        return sum(part.count for part in self.repaired)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitOutcome:
    """What became of a unit that somebody was told to compare."""

    unit: AuditUnit
    result: UnitResult | None
    problem: str = ""
    """Why there is no result."""


class Tally:
    """Findings of one unit as they come, neighbours put together."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.counts: Counter[FindingKind] = Counter()

    def add(self, finding: Finding) -> None:
        self.counts[finding.kind] += finding.records
        joined = _joined(self.findings[-1], finding) if self.findings else None
        if joined is not None:
            self.findings[-1] = joined
        elif len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)


def gathered(findings: Iterable[Finding], more: Tally) -> Tally:
    """All of them in the order of the target, neighbours put together."""
    tally = Tally()
    for finding in sorted([*findings, *more.findings], key=_place):
        tally.add(finding)
    for finding in more.findings:
        tally.counts[finding.kind] -= finding.records
    tally.counts += more.counts
    return tally


def ranges_of(offsets: Iterable[int]) -> tuple[OffsetRange, ...]:
    """Offsets in any order as ascending ranges."""
    found: list[list[int]] = []
    for offset in sorted(set(offsets)):
        if found and found[-1][1] == offset:
            found[-1][1] = offset + 1
        else:
            found.append([offset, offset + 1])
    return tuple(OffsetRange(start=start, end=end) for start, end in found)


def without(finding: Finding, repaired: Iterable[OffsetRange]) -> list[Finding]:
    """What is left of something missing when these source offsets were appended again."""
    if finding.kind is not FindingKind.MISSING or finding.source is None:
        return [finding]
    left = [finding.source]
    for part in repaired:
        left = [piece for whole in left for piece in _less(whole, part)]
    return [replace(finding, source=piece, records=piece.count) for piece in left if piece.count]


def _less(whole: OffsetRange, part: OffsetRange) -> list[OffsetRange]:
    if part.end <= whole.start or part.start >= whole.end:
        return [whole]
    pieces = []
    if part.start > whole.start:
        pieces.append(OffsetRange(start=whole.start, end=part.start))
    if part.end < whole.end:
        pieces.append(OffsetRange(start=part.end, end=whole.end))
    return pieces


def _place(finding: Finding) -> tuple[int, int]:
    at = finding.target or finding.source
    then = finding.source or finding.target
    return (at.start if at else 0, then.start if then else 0)


def _joined(before: Finding, after: Finding) -> Finding | None:
    """Both as one where they are of a kind and follow one another on both sides."""
    if before.kind is not after.kind or before.note != after.note:
        return None
    if before.kind is FindingKind.SWAPPED:
        return None
    source, target = _follow(before.source, after.source), _follow(before.target, after.target)
    if source is False or target is False:
        return None
    return replace(
        before,
        source=_span(before.source, after.source),
        target=_span(before.target, after.target),
        records=before.records + after.records,
    )


def _follow(before: OffsetRange | None, after: OffsetRange | None) -> bool:
    if before is None or after is None:
        return before is after
    return before.end == after.start


def _span(before: OffsetRange | None, after: OffsetRange | None) -> OffsetRange | None:
    if before is None or after is None:
        return None
    return OffsetRange(start=before.start, end=after.end)
