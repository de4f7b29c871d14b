"""What a drill found, and whether that is good enough. Values; runs on the driver."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from heliograph.audit.findings import FindingKind
from heliograph.drill.sample import SampleFinding
from heliograph.model import FlowId, TopicPartition

SAMPLE_RECORDS_DEFAULT: Final = 1_000
_NAMED_MAX: Final = 20
"""Findings and partitions told one by one; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    sample_records: int = SAMPLE_RECORDS_DEFAULT
    """Compared at most, of each group and partition that is sampled."""
    group: str | None = None
    """A regex of group ids; None is all that the flow follows."""
    rpo_s_max: float | None = None
    rto_s_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillStep:
    name: str
    seconds: float
    told: str
    in_rto: bool = True
    """Whether a failover would have to do it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneExposure:
    """What would be lost of one lane if the source were gone at this moment."""

    source: TopicPartition
    state: str
    detail: str
    lag_records: int | None
    lag_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExposure:
    topic: str
    lanes: int
    lag_records: int | None
    lag_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedPartition:
    source: TopicPartition
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRecords:
    """Mirrored records that a group has not read and would never read."""

    source: TopicPartition
    from_offset: int
    """Where the group stands on the source."""
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDrill:
    """One group: where it would go on, and what that would cost it."""

    group: str
    partitions: int
    """Committed in the name of its shadow."""
    repeated_records: int
    """Mirrored records it has read and would read again."""
    skipped: tuple[SkippedRecords, ...] = ()
    unplaced: tuple[UnplacedPartition, ...] = ()
    notes: tuple[str, ...] = ()
    sampled_partitions: int = 0
    equal_records: int = 0
    others_records: int = 0
    findings: tuple[SampleFinding, ...] = ()

    @property
    def skipped_records(self) -> int:
        return sum(one.records for one in self.skipped)

    @property
    def lost_records(self) -> int:
        return self._found(FindingKind.MISSING)

    @property
    def changed_records(self) -> int:
        return self._found(FindingKind.CHANGED)

    @property
    def disordered_records(self) -> int:
        return self._found(FindingKind.SWAPPED)

    @property
    def compared_records(self) -> int:
        return self.equal_records + sum(one.records for one in self.findings)

    @property
    def is_well(self) -> bool:
        return not (self.unplaced or self.findings or self.skipped)

    def _found(self, kind: FindingKind) -> int:
        return sum(one.records for one in self.findings if one.kind is kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillReport:
    flow: FlowId
    began_ms: int
    ended_ms: int
    host: str
    carried_by: str
    """The driver that mirrors the flow; empty where none does."""
    options: DrillOptions
    steps: tuple[DrillStep, ...]
    lanes: tuple[LaneExposure, ...]
    groups: tuple[GroupDrill, ...]
    notes: tuple[str, ...] = ()

    @property
    def rpo_records(self) -> int | None:
        """Source offsets that are not on the target; None as soon as one lane does not tell."""
        return _total(lane.lag_records for lane in self.lanes)

    @property
    def rpo_s(self) -> float | None:
        """Age of the oldest record that is not on the target; None where it is not known."""
        found = [lane.lag_s for lane in self.lanes]
        if any(seconds is None for seconds in found):
            return None
        return max((seconds for seconds in found if seconds is not None), default=0.0)

    @property
    def rto_s(self) -> float:
        return sum(step.seconds for step in self.steps if step.in_rto)

    @property
    def repeated_records(self) -> int:
        return sum(group.repeated_records for group in self.groups)

    @property
    def lost_records(self) -> int:
        """Never read by a group: skipped by its place, or missing where it goes on."""
        # A record that its place skips may be in the sample too, where it counts as lost.
        return sum(max(group.skipped_records, group.lost_records) for group in self.groups)

    @property
    def differing_records(self) -> int:
        return sum(group.changed_records + group.disordered_records for group in self.groups)

    @property
    def compared_records(self) -> int:
        return sum(group.compared_records for group in self.groups)

    @property
    def is_rpo_exceeded(self) -> bool:
        """Also where a limit was set and the RPO is not known."""
        most_s = self.options.rpo_s_max
        return most_s is not None and (self.rpo_s is None or self.rpo_s > most_s)

    @property
    def is_rto_exceeded(self) -> bool:
        return self.options.rto_s_max is not None and self.rto_s > self.options.rto_s_max

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the drill failed, a sentence each; none where it passed."""
        return tuple(_reasons(self))

    @property
    def passed(self) -> bool:
        return not self.reasons

    @property
    def verdict(self) -> str:
        return "pass" if self.passed else "fail"

    @property
    def topics(self) -> tuple[TopicExposure, ...]:
        return tuple(_topics(self.lanes))


def as_document(report: DrillReport) -> dict[str, Any]:
    """For `--json`; numbers that are not known are null."""
    return {
        "flow": str(report.flow),
        "verdict": report.verdict,
        "reasons": list(report.reasons),
        "began_ms": report.began_ms,
        "ended_ms": report.ended_ms,
        "host": report.host,
        "carried_by": report.carried_by or None,
        "options": asdict(report.options),
        "rpo": {"records": report.rpo_records, "seconds": report.rpo_s},
        "rto": {"seconds": report.rto_s},
        "repeated_records": report.repeated_records,
        "lost_records": report.lost_records,
        "differing_records": report.differing_records,
        "compared_records": report.compared_records,
        "steps": [asdict(step) for step in report.steps],
        "topics": [asdict(topic) for topic in report.topics],
        "lanes": [
            {
                "topic": lane.source.topic,
                "partition": lane.source.partition,
                "state": lane.state,
                "detail": lane.detail or None,
                "lag_records": lane.lag_records,
                "lag_s": lane.lag_s,
            }
            for lane in report.lanes
        ],
        "groups": [_group_document(group) for group in report.groups],
        "notes": list(report.notes),
    }


def _group_document(group: GroupDrill) -> dict[str, Any]:
    return {
        "group": group.group,
        "partitions": group.partitions,
        "repeated_records": group.repeated_records,
        "skipped_records": group.skipped_records,
        "sampled_partitions": group.sampled_partitions,
        "equal_records": group.equal_records,
        "others_records": group.others_records,
        "lost_records": group.lost_records,
        "changed_records": group.changed_records,
        "disordered_records": group.disordered_records,
        "skipped": [
            {
                "topic": one.source.topic,
                "partition": one.source.partition,
                "from_offset": one.from_offset,
                "records": one.records,
            }
            for one in group.skipped
        ],
        "unplaced": [
            {"topic": one.source.topic, "partition": one.source.partition, "why": one.why}
            for one in group.unplaced
        ],
        "findings": [_finding_document(one) for one in group.findings],
        "notes": list(group.notes),
    }


def _finding_document(finding: SampleFinding) -> dict[str, Any]:
    target = finding.target_offsets
    return {
        "kind": finding.kind.value,
        "topic": finding.source.topic,
        "partition": finding.source.partition,
        "source_start": finding.source_offsets.start,
        "source_end": finding.source_offsets.end,
        "target_topic": finding.target.topic,
        "target_start": None if target is None else target.start,
        "target_end": None if target is None else target.end,
        "records": finding.records,
        "note": finding.note or None,
    }


def _reasons(report: DrillReport) -> Iterator[str]:
    for lane in report.lanes:
        if lane.state.startswith("stalled"):
            yield f"{lane.source} is {lane.state}" + (f": {lane.detail}" if lane.detail else "")
    for group in report.groups:
        told = [f"group {group.group}: {text}" for text in _troubles(group)]
        yield from told[:_NAMED_MAX]
        if len(told) > _NAMED_MAX:
            yield f"group {group.group}: and {len(told) - _NAMED_MAX} more"
    rpo_s, options = report.rpo_s, report.options
    if report.is_rpo_exceeded and rpo_s is None:
        yield f"RPO in seconds is not known, and {options.rpo_s_max:g} s are allowed"
    elif report.is_rpo_exceeded:
        yield f"RPO is {rpo_s:.1f} s, more than the {options.rpo_s_max:g} s that are allowed"
    if report.is_rto_exceeded:
        yield f"RTO is {report.rto_s:.1f} s, more than the {options.rto_s_max:g} s that are allowed"


def _troubles(group: GroupDrill) -> Iterator[str]:
    for skipped in group.skipped:
        yield (
            f"it would never read {skipped.records:,} mirrored records of {skipped.source}, "
            f"from source offset {skipped.from_offset} on"
        )
    for unplaced in group.unplaced:
        yield f"{unplaced.source} has no place on the target: {unplaced.why}"
    yield from map(str, group.findings)


def visible(name: str) -> str:
    """Characters that cannot be seen as escapes: some would turn the text around them."""
    if name.isprintable():
        return name
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in name
    )


def seconds_text(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return f"{seconds:,.2f} s" if seconds < 10 else f"{seconds:,.1f} s"


def _topics(lanes: Iterable[LaneExposure]) -> Iterator[TopicExposure]:
    topics: defaultdict[str, list[LaneExposure]] = defaultdict(list)
    for lane in lanes:
        topics[lane.source.topic].append(lane)
    for topic, own in sorted(topics.items()):
        seconds = [lane.lag_s for lane in own]
        known = [each for each in seconds if each is not None]
        yield TopicExposure(
            topic=topic,
            lanes=len(own),
            lag_records=_total(lane.lag_records for lane in own),
            lag_s=max(known) if len(known) == len(seconds) else None,
        )


def _total(numbers: Iterable[int | None]) -> int | None:
    """None as soon as one is not known: half a loss would look like all of it."""
    known = 0
    for number in numbers:
        if number is None:
            return None
        known += number
    return known
