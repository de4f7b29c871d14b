"""One word for a flow, and whether it may be cut over. No I/O; runs anywhere.

    losing    records are lost, or the source has deleted what a lane wanted next
    stalled   a lane stands still, or the flow is not mirrored at all, or that cannot be known
    behind    all goes on, and records wait longer than `alarms.lag.seconds`, or a canary does, or
              retention deletes what waits within `alarms.overrun.seconds`
    healthy   none of it

The worst word counts, and every reason is told. Ready to cut over is a flow that is healthy, has
nothing left to copy, and of which all that matters is known: what is not known is a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from heliograph.config.health import AlarmsConfig, CutoverConfig
from heliograph.config.schema import FlowConfig
from heliograph.health.sight import STARTING, FlowSight, GroupsSight, LaneSight
from heliograph.lag.figures import NEVER
from heliograph.model import FlowId, StallReason
from heliograph.words import counted, in_words

NAMED_MAX: Final = 3
_LOSING: Final = frozenset({StallReason.RETENTION_OVERRUN, StallReason.TARGET_LOST_RECORDS})


class Word(StrEnum):
    HEALTHY = "healthy"
    BEHIND = "behind"
    STALLED = "stalled"
    LOSING = "losing"


_ORDER: Final = tuple(Word)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    word: Word
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutover:
    reasons: tuple[str, ...]
    """Why not yet; none: ready."""
    remarks: tuple[str, ...] = ()
    """What is left to do, and does not stand in the way."""

    @property
    def is_ready(self) -> bool:
        return not self.reasons

    @property
    def word(self) -> str:
        return "ready" if self.is_ready else "not yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowVerdict:
    flow: FlowId
    word: Word
    reasons: tuple[Reason, ...]
    """The worst first."""
    cutover: Cutover
    is_unknown: bool = False
    """Whether a cluster could not be read."""


def verdict(sight: FlowSight, flow: FlowConfig) -> FlowVerdict:
    """What is to be said of the flow, by what was seen of it."""
    reasons = sorted(
        (*_losing(sight, flow.alarms), *_stalled(sight), *_behind(sight, flow)),
        key=lambda reason: -_ORDER.index(reason.word),
    )
    word = reasons[0].word if reasons else Word.HEALTHY
    return FlowVerdict(
        flow=sight.flow,
        word=word,
        reasons=tuple(reasons),
        cutover=_cutover(sight, flow.cutover, reasons),
        is_unknown=bool(sight.unknown),
    )


def late_after_s(flow: FlowConfig) -> float:
    """How long a canary may be under way."""
    return flow.alarms.canary_s or flow.canary.interval_s / 2


def _losing(sight: FlowSight, alarms: AlarmsConfig) -> Iterator[Reason]:
    for reason in _LOSING:
        lanes = [lane for lane in sight.lanes if lane.is_stalled and lane.reason == reason.value]
        if lanes:
            yield Reason(word=Word.LOSING, text=f"{reason.value}: {named(lanes)}")
    gone = [lane for lane in sight.lanes if lane.is_deleted and not _is_losing(lane)]
    if gone:
        text = f"the source has deleted records that wait: {named(gone)}"
        yield Reason(word=Word.LOSING, text=text)
    for topic, losses in sorted(sight.facts.losses.items()):
        if sight.at_ms - losses.last_ms <= 1000 * alarms.loss_s:
            ago = _ago(sight.at_ms, losses.last_ms)
            text = f"{topic}: up to {counted(losses.records, 'record')} lost, the last {ago}"
            yield Reason(word=Word.LOSING, text=text)


def _stalled(sight: FlowSight) -> Iterator[Reason]:
    for unknown in sight.unknown:
        yield Reason(word=Word.STALLED, text=f"not known: {unknown}")
    if sight.idle_because:
        yield Reason(word=Word.STALLED, text=sight.idle_because)
    by_reason: dict[str, list[LaneSight]] = {}
    for lane in sight.lanes:
        if lane.is_stalled and not _is_losing(lane):
            by_reason.setdefault(lane.reason, []).append(lane)
    for reason, lanes in sorted(by_reason.items()):
        yield Reason(word=Word.STALLED, text=f"{reason}: {named(lanes)}")
    if sight.waiting:
        text = f"{counted(len(sight.waiting), 'lane')} not begun: {_some(sight.waiting)}"
        yield Reason(word=Word.STALLED, text=text)


def _is_losing(lane: LaneSight) -> bool:
    return lane.is_stalled and lane.reason in _LOSING


def _behind(sight: FlowSight, flow: FlowConfig) -> Iterator[Reason]:
    near = [lane for lane in sight.lanes if _is_near(lane, flow.alarms.overrun_s)]
    if near:
        first = min(near, key=lambda lane: lane.overrun_s or 0)
        when = "now" if not first.overrun_s else f"in {first.overrun_s:,.0f} s"
        text = f"{first.overrun_by} may delete records that wait {when}: {named(near)}"
        yield Reason(word=Word.BEHIND, text=text)
    for topic, letters in sorted(sight.facts.letters.items()):
        if sight.at_ms - letters.last_ms <= 1000 * flow.alarms.letters_s:
            ago = _ago(sight.at_ms, letters.last_ms)
            text = f"{topic}: {counted(letters.records, 'dead letter')}, the last {ago}"
            yield Reason(word=Word.BEHIND, text=text)
    if sight.idle_because:
        return
    limit_s = flow.alarms.lag_s
    late = [lane for lane in sight.lanes if (lane.lag_s or 0) > limit_s and not lane.is_stalled]
    if late:
        most_s = max(lane.lag_s or 0 for lane in late)
        text = f"records wait for {most_s:,.0f} s, more than {limit_s} s: {named(late)}"
        yield Reason(word=Word.BEHIND, text=text)
    for state, lanes in _held(sight.lanes):
        yield Reason(word=Word.BEHIND, text=f"{state}, and records wait: {named(lanes)}")
    blind = [lane for lane in sight.lanes if lane.goes_on and lane.lag_records is None]
    starting = [lane for lane in sight.lanes if lane.state == STARTING]
    if blind:
        yield Reason(word=Word.BEHIND, text=f"lag is not known: {named(blind)}")
    if starting:
        yield Reason(word=Word.BEHIND, text=f"starting: {named(starting)}")
    yield from _canary(sight, flow)


def _is_near(lane: LaneSight, limit_s: float) -> bool:
    left_s = NEVER if lane.overrun_s is None or lane.is_deleted else lane.overrun_s
    return left_s < lane.overrun_limit_s(limit_s)


def _held(lanes: Iterable[LaneSight]) -> Iterator[tuple[str, list[LaneSight]]]:
    """Lanes that wait for an operator or a driver, by their state, with something to copy."""
    held: dict[str, list[LaneSight]] = {}
    for lane in lanes:
        rests = not (lane.goes_on or lane.is_stalled or lane.state == STARTING)
        if rests and lane.lag_records != 0:
            held.setdefault(lane.state, []).append(lane)
    yield from sorted(held.items())


def _canary(sight: FlowSight, flow: FlowConfig) -> Iterator[Reason]:
    note = sight.facts.canary
    if not flow.canary.enabled or note is None:
        return
    late_s = note.late_s(sight.at_ms)
    if late_s > late_after_s(flow):
        why = f": {note.problem}" if note.problem else ""
        yield Reason(word=Word.BEHIND, text=f"the canary is late by {late_s:,.0f} s{why}")


def _cutover(sight: FlowSight, wants: CutoverConfig, reasons: Sequence[Reason]) -> Cutover:
    found = [reason.text for reason in reasons]
    users = [lane for lane in sight.lanes if not lane.is_own]
    if not sight.lanes and not sight.unknown and not sight.idle_because:
        found.append("no lane has begun")
    waiting = [lane for lane in users if lane.lag_records and not lane.is_stalled]
    if waiting:
        records = sum(lane.lag_records or 0 for lane in waiting)
        found.append(f"{counted(records, 'record')} not copied yet: {named(waiting)}")
    writing = [lane for lane in users if _is_written(lane, sight.at_ms, wants.quiet_s)]
    if writing:
        found.append(f"producers still write: {named(writing)}")
    found += _audit_reasons(sight, wants)
    found += _drill_reasons(sight, wants)
    remarks: tuple[str, ...] = ()
    if sight.groups is None:
        found.append("not known: consumer groups were not read")
    else:
        found += _group_reasons(sight.groups)
        if sight.groups.behind:
            remarks = (f"a failover writes offsets of: {_some(sight.groups.behind)}",)
    return Cutover(reasons=tuple(dict.fromkeys(found)), remarks=remarks)


def _is_written(lane: LaneSight, at_ms: int, quiet_s: int) -> bool:
    """Timestamps of producers may be old or wrong, so a log that grows counts as well."""
    recent = lane.newest_ms is not None and at_ms - lane.newest_ms < 1000 * quiet_s
    return bool(lane.grew) or recent


def _audit_reasons(sight: FlowSight, wants: CutoverConfig) -> Iterator[str]:
    audit = sight.facts.audit
    if audit is not None and audit.differs:
        yield f"the last audit found {counted(audit.differs, 'record')} that differ"
    if not wants.audit_s:
        return
    if audit is None:
        yield "no audit was made: `heliograph audit`"
    elif sight.at_ms - audit.at_ms > 1000 * wants.audit_s:
        limit = in_words(wants.audit_s)
        yield f"the last audit was {_ago(sight.at_ms, audit.at_ms)}, more than {limit}"


def _drill_reasons(sight: FlowSight, wants: CutoverConfig) -> Iterator[str]:
    drill = sight.facts.drill
    if drill is not None and drill.verdict != "pass":
        yield f"the last drill {drill.sentence}"
    if not wants.drill_s:
        return
    if drill is None:
        yield "no drill was made: `heliograph drill`"
    elif sight.at_ms - drill.at_ms > 1000 * wants.drill_s:
        limit = in_words(wants.drill_s)
        yield f"the last drill was {_ago(sight.at_ms, drill.at_ms)}, more than {limit}"


def _group_reasons(groups: GroupsSight) -> Iterator[str]:
    for names, words in (
        (groups.untranslated, "groups whose offsets cannot be translated"),
        (groups.unknown, "not known: groups"),
    ):
        if names:
            yield f"{words}: {_some(names)}"


def named(lanes: Sequence[LaneSight]) -> str:
    """`orders-0, orders-1, orders-2 and 7 more`."""
    return _some(list(map(str, lanes)))


def _some(names: Sequence[str]) -> str:
    first = ", ".join(names[:NAMED_MAX])
    return f"{first} and {len(names) - NAMED_MAX:,} more" if len(names) > NAMED_MAX else first


def _ago(now_ms: int, at_ms: int) -> str:
    seconds = max(0, now_ms - at_ms) // 1000
    for size, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if seconds >= size:
            return f"{counted(seconds // size, unit)} ago"
    return f"{counted(seconds, 'second')} ago"
