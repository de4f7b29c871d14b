"""Records without a counterpart, and what each of them is. Runs on driver and executors.

A target record that the map does not know may repeat a mirrored one, stand for one that was
missing, be one that stands elsewhere than it should, or be nobody's. Only its content tells, so
the source is searched for it: first near by, then the unit, then where its timestamp points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.audit.findings import Finding, FindingKind, Tally, gathered, ranges_of
from heliograph.audit.origin import is_replayed, repaired_offset, without_origin
from heliograph.audit.reading import Damaged, LogReader, Record
from heliograph.audit.source_side import source_reader
from heliograph.audit.units import AuditUnit
from heliograph.broker.cluster import Cluster
from heliograph.errors import BrokerError
from heliograph.model import OffsetRange

KEPT_MAX: Final = 10_000
"""Records of each kind kept with their content; of more than that only the places are known."""
_NEAR_RECORDS: Final = 4_096
_NEAR_MAX: Final = 16
_TIMES_MAX: Final = 64
_STEP_RECORDS: Final = 20_000
_PARTS: Final = ("timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Extra:
    target_offset: int
    content: Record
    source_offset: int
    """Of the source record that follows it."""


@dataclass(frozen=True, slots=True)
class _Changed:
    source_offset: int
    target_offset: int
    ours: Record
    theirs: Record


class FindingCollector:
    """All that differs in one unit, until `judged` says what it is."""

    def __init__(self, unit: AuditUnit) -> None:
        self._unit = unit
        self._extras: list[Extra] = []
        self._missing: dict[int, tuple[int, Record]] = {}
        self._changed: list[_Changed] = []
        self._sure = Tally()
        self.is_timeless = False
        """Whether contents were gathered without their timestamps."""

    def missing(self, source_offset: int, target_offset: int, content: Record) -> None:
        if len(self._missing) < KEPT_MAX:
            self._missing[source_offset] = target_offset, content
        else:
            self._sure.add(_missing(source_offset, target_offset))

    def extra(self, extra: Extra) -> None:
        if len(self._extras) < KEPT_MAX:
            self._extras.append(extra)
        else:
            self._sure.add(_foreign(extra.target_offset))

    def changed(self, source_offset: int, target_offset: int, ours: Record, theirs: Record) -> None:
        changed = _Changed(source_offset, target_offset, ours, theirs)
        if len(self._changed) < KEPT_MAX:
            self._changed.append(changed)
        else:
            self._sure.add(_change(changed))

    def swapped(self, source: OffsetRange, target: OffsetRange) -> None:
        kind = FindingKind.SWAPPED
        self._sure.add(Finding(kind=kind, source=source, target=target, records=source.count))

    def forget(self) -> None:
        """The unit is begun anew."""
        self._extras.clear()
        self._missing.clear()
        self._changed.clear()
        self._sure = Tally()

    async def judged(
        self, source: Cluster, target: Cluster, *, searches_far: bool = True
    ) -> tuple[Tally, tuple[OffsetRange, ...]]:
        """Every finding, and the source offsets that an earlier repair appended again.

        Without `searches_far` a record that nothing explains is looked for in the unit alone.
        """
        findings = self._changes()
        repaired: list[int] = []
        unknown: list[Extra] = []
        absent = {content: offset for offset, (_, content) in self._missing.items()}
        claims: list[tuple[Extra, int]] = []
        for extra in self._extras:
            claimed = _claimed(self._unit, extra.content)
            if claimed is not None:
                claims.append((extra, claimed))
            elif extra.content in absent and absent[extra.content] in self._missing:
                offset = absent[extra.content]
                del self._missing[offset]
                findings.append(_elsewhere(offset, extra.target_offset))
            else:
                unknown.append(extra)
        for extra, offset in claims:
            if await _is_as_claimed(source, self._unit, extra, offset):
                repaired.append(offset)
            else:
                note = f"says that it is source {offset}, but differs from it"
                findings.append(_foreign(extra.target_offset, note))
        originals = await self._originals(source, target, unknown, searches_far=searches_far)
        for extra in unknown:
            original = originals.get(extra.content)
            findings.append(
                _foreign(extra.target_offset)
                if original is None
                else _repeated(original, extra.target_offset)
            )
        findings += [_missing(offset, at) for offset, (at, _) in self._missing.items()]
        return gathered(findings, self._sure), ranges_of(repaired)

    async def _originals(
        self, source: Cluster, target: Cluster, extras: list[Extra], *, searches_far: bool
    ) -> dict[Record, int]:
        """Source offsets of records with the content of these; what is nowhere is left out."""
        search = _Search(source, target, self._unit, is_timeless=self.is_timeless)
        search.wanted = {one.content for one in extras if not isinstance(one.content, Damaged)}
        span = self._unit.source_range
        nears = sorted({one.source_offset // _NEAR_RECORDS for one in extras})[:_NEAR_MAX]
        for near in nears if searches_far else ():
            await search.over(max(0, (near - 1) * _NEAR_RECORDS), 3 * _NEAR_RECORDS)
        await search.over(span.start, span.count)
        for content in list(search.wanted)[:_TIMES_MAX] if searches_far else ():
            if content in search.wanted and not isinstance(content, Damaged) and content[0] > 0:
                offsets = await source.list_offsets([self._unit.lane.source], content[0])
                at = offsets[self._unit.lane.source]
                if not isinstance(at, BrokerError) and at >= 0:
                    await search.over(at, _STEP_RECORDS)
        return search.found

    def _changes(self) -> list[Finding]:
        """Changed records; two that have each other's content have changed places."""
        by_contents = {(one.ours, one.theirs): one for one in self._changed}
        findings: list[Finding] = []
        for one in self._changed:
            other = by_contents.get((one.theirs, one.ours))
            if other is None:
                findings.append(_change(one))
            else:
                findings.append(_elsewhere(one.source_offset, other.target_offset))
        return findings


def _change(changed: _Changed) -> Finding:
    return Finding(
        kind=FindingKind.CHANGED,
        source=_one(changed.source_offset),
        target=_one(changed.target_offset),
        records=1,
        note=_differing_parts(changed.ours, changed.theirs),
    )


def _differing_parts(ours: Record, theirs: Record) -> str:
    if isinstance(ours, Damaged) or isinstance(theirs, Damaged):
        side = "source" if isinstance(ours, Damaged) else "target"
        return f"the {side}'s bytes are damaged"
    return ", ".join(
        part for part, one, other in zip(_PARTS, ours, theirs, strict=True) if one != other
    )


def _missing(source_offset: int, target_offset: int) -> Finding:
    return Finding(
        kind=FindingKind.MISSING,
        source=_one(source_offset),
        target=OffsetRange(start=target_offset, end=target_offset),
        records=1,
    )


def _foreign(target_offset: int, note: str = "") -> Finding:
    return Finding(
        kind=FindingKind.FOREIGN, source=None, target=_one(target_offset), records=1, note=note
    )


def _repeated(source_offset: int, target_offset: int) -> Finding:
    return Finding(
        kind=FindingKind.REPEATED,
        source=_one(source_offset),
        target=_one(target_offset),
        records=1,
    )


def _elsewhere(source_offset: int, target_offset: int) -> Finding:
    return Finding(
        kind=FindingKind.SWAPPED,
        source=_one(source_offset),
        target=_one(target_offset),
        records=1,
        note="is there, in another place",
    )


def _one(offset: int) -> OffsetRange:
    return OffsetRange(start=offset, end=offset + 1)


def _claimed(unit: AuditUnit, content: Record) -> int | None:
    return None if isinstance(content, Damaged) else repaired_offset(unit.lane, content)


async def _is_as_claimed(source: Cluster, unit: AuditUnit, extra: Extra, offset: int) -> bool:
    """Whether a repaired record is the one it stands for; a source that lost it cannot object, and
    of a record that was replayed it is another's to say."""
    if not isinstance(extra.content, Damaged) and is_replayed(extra.content):
        return True
    side = LogReader(source, unit.lane.source, offset, read_committed=unit.read_committed)
    try:
        offsets, contents = await side.window(1)
    finally:
        await side.close()
    if not offsets or offsets[0] != offset:
        return True
    if isinstance(extra.content, Damaged) or isinstance(contents[0], Damaged):
        return False
    ours, theirs = contents[0], without_origin(extra.content)
    # A target with append times has lost the source's.
    return ours[1:] == theirs[1:]


class _Search:
    """For records by their content, in stretches of the source."""

    def __init__(
        self, source: Cluster, target: Cluster, unit: AuditUnit, *, is_timeless: bool
    ) -> None:
        self._source, self._target = source, target
        self._unit, self._is_timeless = unit, is_timeless
        self.wanted: set[Record] = set()
        self.found: dict[Record, int] = {}

    async def over(self, start: int, records: int) -> None:
        """Move what is among these source records from `wanted` to `found`."""
        if not self.wanted:
            return
        side = source_reader(
            self._source, self._target, self._unit, start, likely_end=start + records
        )
        side.is_timeless = self._is_timeless
        left = records
        try:
            while left > 0 and self.wanted:
                offsets, contents = await side.window(min(left, _STEP_RECORDS))
                if not offsets:
                    return
                for offset, content in zip(offsets, contents, strict=True):
                    if content in self.wanted:
                        self.wanted.discard(content)
                        self.found[content] = offset
                side.take(len(offsets))
                left -= len(offsets)
        finally:
            await side.close()
