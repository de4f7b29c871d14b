"""One audit of a flow from plan to report, whoever compares the units. Runs on the driver.

Units are handed to a runner (a Spark job, see `audit.job`) and come back in any order. How far
each lane was compared without a gap is noted in the ledger every few seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from heliograph.audit.findings import Finding, FindingKind, UnitOutcome, UnitResult, without
from heliograph.audit.plan import (
    AuditOptions,
    LanePlan,
    LaneProgressNote,
    end_memo,
    lane_memo,
    plan_lanes,
    round_robin,
)
from heliograph.audit.units import AuditUnit
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.copy.flow import producers_of_mirrors
from heliograph.errors import BrokerError, MirrorError
from heliograph.inspect.status import StatusReader
from heliograph.ledger.access import open_ledger
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.locations import Wanted
from heliograph.model import FlowId, LaneId, TopicName, TopicPartition
from heliograph.words import counted

_NOTE_S: Final = 5.0
_WRITE_S_MAX: Final = 30.0


class NothingMirrored(MirrorError):
    """The flow mirrors none of the topics that were asked for."""


Runner = Callable[[Sequence[AuditUnit], Callable[[UnitOutcome], None]], None]
"""Compares units, in any order, and tells of each when it is done, in the caller's thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneFinding:
    lane: LaneId
    target: TopicPartition
    finding: Finding


@dataclass(slots=True, kw_only=True)
class TopicTally:
    """What was seen of one topic."""

    topic: TopicName
    target_topic: TopicName
    lanes: int = 0
    records: int = 0
    bytes: int = 0
    unopened_records: int = 0
    expired_records: int = 0
    left_out_records: int = 0
    brought_records: int = 0
    others_records: int = 0
    repaired_records: int = 0
    timestamps_compared: bool = True
    counts: Counter[FindingKind] = field(default_factory=Counter)

    def add(self, result: UnitResult) -> None:
        self.records += result.records
        self.bytes += result.bytes
        self.unopened_records += result.unopened_records
        self.expired_records += result.expired_records
        self.left_out_records += result.left_out_records
        self.brought_records += result.brought_records
        self.others_records += result.others_records
        self.repaired_records += result.repaired_records
        self.timestamps_compared &= result.timestamps_compared


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    flow: FlowId
    topics: tuple[TopicTally, ...]
    findings: tuple[LaneFinding, ...]
    """In order of lane and target offset; of very many only the first of each unit."""
    problems: tuple[str, ...]
    """What could not be compared, and why."""
    compared_units: int
    unit_count: int
    seconds: float
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> Mapping[FindingKind, int]:
        return sum((topic.counts for topic in self.topics), Counter())

    @property
    def records(self) -> int:
        return sum(topic.records for topic in self.topics)

    @property
    def differs(self) -> bool:
        return any(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditProgress:
    records: int
    records_total: int
    bytes: int
    differing_records: int


OnProgress = Callable[[AuditProgress], None]


def audit_flow(
    config: MirrorConfig,
    flow: FlowId,
    choice: AuditOptions,
    wanted: Wanted,
    run: Runner,
    on_progress: OnProgress = lambda _: None,
) -> AuditReport:
    """Compare what `choice` says. Raises `MirrorError` where that cannot even begin."""
    began_s = monotonic_s()
    plans = asyncio.run(_planned(config, flow, choice, wanted))
    course = _Course(plans, keeps_notes=choice.sample >= 1)
    noted_s = monotonic_s()
    notes: list[str] = []

    def note(*, is_over: bool) -> None:
        try:
            asyncio.run(_note(config, flow, course.memos(is_over=is_over)))
        except BrokerError as exc:
            # Comparing needs no right to write; only taking it up again does.
            notes[:] = [f"how far this came could not be noted in the ledger: {exc}"]

    def hear(outcome: UnitOutcome) -> None:
        nonlocal noted_s
        course.hear(outcome)
        on_progress(course.progress)
        if monotonic_s() - noted_s > _NOTE_S and not notes:
            note(is_over=False)
            noted_s = monotonic_s()

    units = list(round_robin(plans))
    try:
        if units:
            run(units, hear)
    finally:
        is_over = course.heard == len(units) and not course.problems
        if units or any(plan.baseline is not None for plan in plans):
            note(is_over=is_over)
    return course.report(flow, monotonic_s() - began_s, tuple(notes))


async def _planned(
    config: MirrorConfig, flow: FlowId, choice: AuditOptions, wanted: Wanted
) -> list[LanePlan]:
    reader = StatusReader(config, wanted)
    settings = config.flow(flow)
    try:
        locations = await reader.locations(settings)
        if not locations:
            raise NothingMirrored(f"{flow}: no topic that was asked for is mirrored")
        ledger = reader.ledger(flow)
        return await plan_lanes(
            reader.source(flow),
            reader.target(flow),
            locations,
            ledger.view,
            choice,
            read_committed=settings.read_committed,
            brought=await producers_of_mirrors(config, flow, reader.source(flow)),
        )
    finally:
        await reader.close()


async def _note(config: MirrorConfig, flow: FlowId, memos: Collection[MemoEntry]) -> None:
    if memos:
        async with open_ledger(config, flow) as ledger:
            ledger.store.write_soon(memos)
            await ledger.store.flush(_WRITE_S_MAX)


class _Course:
    """Outcomes as they come in."""

    def __init__(self, plans: Sequence[LanePlan], *, keeps_notes: bool) -> None:
        self._plans = {plan.lane: plan for plan in plans}
        self._keeps_notes = keeps_notes
        self._results: defaultdict[LaneId, dict[int, UnitResult]] = defaultdict(dict)
        self._total = sum(plan.records for plan in plans)
        self.heard = 0
        self.problems = [f"{plan.lane.source}: {plan.problem}" for plan in plans if plan.problem]

    def hear(self, outcome: UnitOutcome) -> None:
        self.heard += 1
        unit = outcome.unit
        if outcome.result is None:
            where = f"{unit.lane.source} [{unit.start_position}, {unit.end_position})"
            self.problems.append(f"{where}: {outcome.problem}")
        else:
            self._results[unit.lane][unit.start_position] = outcome.result

    @property
    def progress(self) -> AuditProgress:
        results = [one for lane in self._results.values() for one in lane.values()]
        return AuditProgress(
            records=sum(one.records + one.expired_records for one in results),
            records_total=self._total,
            bytes=sum(one.bytes for one in results),
            differing_records=sum(sum(one.counts.values()) for one in results),
        )

    def memos(self, *, is_over: bool) -> list[MemoEntry]:
        if not self._keeps_notes:
            return []
        memos: list[MemoEntry] = []
        for lane, plan in self._plans.items():
            position = self._compared_to(plan)
            if position is None:
                continue
            findings = [*plan.noted, *self._left(plan)[0]]
            note = LaneProgressNote(
                position=position, at_ms=now_ms(), is_over=is_over, findings=tuple(findings)
            )
            memos.append(lane_memo(lane.source, note))
        if is_over:
            counts: Counter[FindingKind] = Counter()
            for plan in self._plans.values():
                counts += self._left(plan)[1]
            records = sum(one.records for lane in self._results.values() for one in lane.values())
            memos.append(end_memo(at_ms=now_ms(), records=records, counts=counts))
        return memos

    def report(self, flow: FlowId, seconds: float, notes: tuple[str, ...]) -> AuditReport:
        topics: dict[TopicName, TopicTally] = {}
        findings: list[LaneFinding] = []
        for lane, plan in sorted(self._plans.items()):
            name = lane.source.topic
            tally = topics.setdefault(name, TopicTally(topic=name, target_topic=plan.target.topic))
            tally.lanes += 1
            tally.expired_records += plan.expired_records
            for result in self._results[lane].values():
                tally.add(result)
            left, counts = self._left(plan)
            tally.counts += counts
            for one in plan.noted:
                tally.counts[one.kind] += one.records
            findings += [
                LaneFinding(lane=lane, target=plan.target, finding=one)
                for one in (*plan.noted, *left)
            ]
        return AuditReport(
            flow=flow,
            topics=tuple(topics.values()),
            findings=tuple(findings),
            problems=tuple(self.problems),
            compared_units=sum(len(lane) for lane in self._results.values()),
            unit_count=sum(plan.unit_count for plan in self._plans.values()),
            seconds=seconds,
            notes=(*notes, *self._words_on_earlier()),
        )

    def _words_on_earlier(self) -> list[str]:
        """`equal` must not be read as said of what nobody looked at."""
        counts = [plan.earlier_records for plan in self._plans.values() if plan.earlier_records]
        if not counts:
            return []
        told = f"{counted(sum(counts), 'record')} of the target, in front of "
        told += counted(len(counts), "lane")
        return [f"not compared: {told}: there before the lanes began (MirrorMaker 2's, or others')"]

    def _compared_to(self, plan: LanePlan) -> int | None:
        """Up to where the lane was compared without a gap; None where it was not begun."""
        position = plan.baseline
        for unit in plan.units:
            result = self._results[plan.lane].get(unit.start_position)
            if result is None:
                break
            position = result.end_position
        return position

    def _left(self, plan: LanePlan) -> tuple[list[Finding], Counter[FindingKind]]:
        """Findings of a lane without what was missing and has been appended again."""
        results = self._results[plan.lane]
        repaired = [*plan.repaired, *(part for one in results.values() for part in one.repaired)]
        left: list[Finding] = []
        counts: Counter[FindingKind] = Counter()
        for start in sorted(results):
            result = results[start]
            counts.update(result.counts)
            for finding in result.findings:
                rest = without(finding, repaired)
                counts[finding.kind] -= finding.records - sum(one.records for one in rest)
                left += rest
        return left, +counts
