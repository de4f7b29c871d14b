"""What is wrong with a flow, or nearly, or not any more, kind by kind. No I/O; runs anywhere.

A condition is about a subject: the flow, a topic, a cluster, a certificate. `BAD` raises an alarm,
`GOOD` ends one after a while, and between the two limits, or where a thing is not known, an alarm
stays what it is: it does not come and go with a figure that wavers around its limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final

from heliograph.config.schema import FlowConfig
from heliograph.health.sight import FlowSight, LaneSight
from heliograph.health.verdict import late_after_s, named
from heliograph.lag.figures import NEVER
from heliograph.model import TopicName
from heliograph.words import counted

SUBJECTS_MAX: Final = 20
"""Topics with an alarm of their own, of each kind; the others share one."""
OTHERS: Final = "*"
"""The subject of that one."""
_TEXT_CHARS_MAX: Final = 300
_DAY_S: Final = 86_400
_STANDBY_DAYS: Final = 7


class Kind(StrEnum):
    STALL = "stall"
    LAG = "lag"
    OVERRUN = "overrun"
    TOMBSTONES = "tombstones"
    LOSS = "loss"
    LETTERS = "letters"
    FOREIGN = "foreign"
    CANARY = "canary"
    DRILL = "drill"
    AUDIT = "audit"
    STANDBY = "standby"
    LEDGER = "ledger"
    CLOCK = "clock"
    CERTIFICATE = "certificate"
    UNKNOWN = "unknown"


OF_LANES: Final = frozenset(
    {
        Kind.STALL,
        Kind.LAG,
        Kind.OVERRUN,
        Kind.TOMBSTONES,
        Kind.LOSS,
        Kind.LETTERS,
        Kind.FOREIGN,
    }
)
"""Those whose subjects are topics."""


class Level(Enum):
    GOOD = "good"
    BETWEEN = "between"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    kind: Kind
    subject: str = ""
    """A topic, a cluster, a certificate; nothing for the flow as a whole."""
    level: Level
    text: str = ""
    lasts_s: float = 0.0
    """How long it must be bad before an alarm is raised."""

    @property
    def key(self) -> tuple[Kind, str]:
        return self.kind, self.subject


def conditions(
    sight: FlowSight, flow: FlowConfig, open_subjects: Mapping[Kind, frozenset[str]] | None = None
) -> tuple[Condition, ...]:
    """All that is bad or between; what is not in the answer is good.

    `open_subjects` have an alarm already: they keep it where there are more than `SUBJECTS_MAX`.
    """
    found: list[Condition] = []
    for of_topic in (_stall, _lag, _overrun, _tombstones):
        found += _by_topic(sight, flow, of_topic)
    found += _losses(sight, flow)
    found += _letters(sight, flow)
    found += _foreign(sight, flow)
    found = [*_bounded(found, open_subjects or {})]
    for of_flow in (_canary, _proofs, _standby, _ledger, _clocks, _certificates, _unknown):
        found += of_flow(sight, flow)
    return tuple(found)


Judge = Callable[[LaneSight, FlowSight, FlowConfig], Condition | None]


def _by_topic(sight: FlowSight, flow: FlowConfig, judge: Judge) -> Iterator[Condition]:
    """One for each topic: that of its worst lane, naming all that are as bad."""
    worst: dict[TopicName, tuple[Condition, list[LaneSight]]] = {}
    for lane in sight.lanes:
        made = judge(lane, sight, flow)
        if made is None or made.level is Level.GOOD:
            continue
        before = worst.get(lane.topic)
        if before is None or (made.level is Level.BAD and before[0].level is Level.BETWEEN):
            worst[lane.topic] = made, [lane]
        elif made.level is before[0].level:
            before[1].append(lane)
    for made, lanes in worst.values():
        yield _condition(
            made.kind,
            made.subject,
            made.level,
            f"{made.text}: {named(lanes)}",
            lasts_s=made.lasts_s,
        )


def _condition(
    kind: Kind, subject: str, level: Level, text: str, *, lasts_s: float = 0.0
) -> Condition:
    shown = "".join(char if char.isprintable() else " " for char in text)
    return Condition(
        kind=kind, subject=subject, level=level, text=shown[:_TEXT_CHARS_MAX], lasts_s=lasts_s
    )


def _stall(lane: LaneSight, sight: FlowSight, flow: FlowConfig) -> Condition | None:
    if not lane.is_stalled:
        # A lane that is only starting may be the stalled one, in another slot.
        between = lane.state == "starting"
        return _condition(Kind.STALL, lane.topic, Level.BETWEEN, "starting") if between else None
    lasted_s = 0.0 if lane.since_ms is None else (sight.at_ms - lane.since_ms) / 1000
    bad = not lane.retrying or lasted_s >= flow.alarms.stall_s
    return _condition(
        Kind.STALL,
        lane.topic,
        Level.BAD if bad else Level.BETWEEN,
        f"{lane.reason}{f' ({lane.detail})' if lane.detail else ''}"[:200],
    )


def _lag(lane: LaneSight, sight: FlowSight, flow: FlowConfig) -> Condition | None:
    limit_s = flow.alarms.lag_s
    if lane.lag_s is None:
        return _condition(Kind.LAG, lane.topic, Level.BETWEEN, "lag is not known")
    if lane.lag_s <= limit_s / 2:
        return None
    level = Level.BAD if lane.lag_s > limit_s else Level.BETWEEN
    text = f"records wait for {lane.lag_s:,.0f} s, more than {limit_s} s"
    # What was written long ago is only just read: a lane that comes back is not late at once.
    return _condition(Kind.LAG, lane.topic, level, text, lasts_s=min(30.0, limit_s / 2))


def _overrun(lane: LaneSight, sight: FlowSight, flow: FlowConfig) -> Condition | None:
    if lane.is_deleted:
        text = "the source has deleted records that wait"
        return _condition(Kind.OVERRUN, lane.topic, Level.BAD, text)
    return _left(
        Kind.OVERRUN,
        lane,
        lane.overrun_s,
        lane.overrun_limit_s(flow.alarms.overrun_s),
        f"{lane.overrun_by or 'retention'} deletes records that wait",
    )


def _tombstones(lane: LaneSight, sight: FlowSight, flow: FlowConfig) -> Condition | None:
    whole_s = NEVER if lane.delete_retention_s is None else lane.delete_retention_s
    return _left(
        Kind.TOMBSTONES,
        lane,
        lane.tombstones_s,
        # A time that is short must not be an alarm all the time.
        min(flow.alarms.tombstones_s, whole_s / 2),
        "compaction deletes tombstones that wait, and their keys stay on the target",
    )


def _left(
    kind: Kind,
    lane: LaneSight,
    left_s: float | None,
    limit_s: float,
    what: str,
) -> Condition | None:
    """Of a time that runs out."""
    if left_s is None:
        # Idle lanes have nothing that could be deleted, whatever the retention is.
        unknown = lane.lag_records != 0
        return _condition(kind, lane.topic, Level.BETWEEN, "not known") if unknown else None
    if left_s >= 1.5 * limit_s:
        return None
    level = Level.BAD if left_s < limit_s else Level.BETWEEN
    when = "now" if left_s <= 0 else f"in {left_s:,.0f} s"
    return _condition(kind, lane.topic, level, f"{what} {when}")


def _losses(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    for topic, losses in sorted(sight.facts.losses.items()):
        if sight.at_ms - losses.last_ms <= 1000 * flow.alarms.loss_s:
            text = f"up to {counted(losses.records, 'record')} were gone before they were copied"
            yield _condition(Kind.LOSS, topic, Level.BAD, text)


def _letters(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    for topic, letters in sorted(sight.facts.letters.items()):
        if sight.at_ms - letters.last_ms <= 1000 * flow.alarms.letters_s:
            text = f"{counted(letters.records, 'record')} went to the dead-letter topic so far"
            yield _condition(Kind.LETTERS, topic, Level.BAD, text)


def _foreign(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    for topic, foreign in sorted(sight.measured.foreign.items()):
        if sight.at_ms - foreign.grew_ms <= 1000 * flow.alarms.foreign_s:
            text = f"{counted(foreign.records, 'record')} of other writers on the target"
            by = f": {foreign.writers}" if foreign.writers else ""
            yield _condition(Kind.FOREIGN, topic, Level.BAD, text + by)


def _bounded(
    found: Iterable[Condition], open_subjects: Mapping[Kind, frozenset[str]]
) -> Iterator[Condition]:
    """At most so many subjects of a kind; the rest is one condition, as bad as the worst."""
    by_kind: dict[Kind, list[Condition]] = {}
    for each in found:
        by_kind.setdefault(each.kind, []).append(each)
    for kind, several in by_kind.items():
        known = open_subjects.get(kind, frozenset())
        # Those that are told already stay; then the bad before those between.
        ranked = sorted(
            several, key=lambda one: (one.subject not in known, _rank(one), one.subject)
        )
        yield from ranked[:SUBJECTS_MAX]
        rest = ranked[SUBJECTS_MAX:]
        if rest:
            yield _others(kind, rest)


def _rank(condition: Condition) -> int:
    return 0 if condition.level is Level.BAD else 1


def _others(kind: Kind, rest: Sequence[Condition]) -> Condition:
    bad = [one for one in rest if one.level is Level.BAD]
    level = Level.BAD if bad else Level.BETWEEN
    text = f"{counted(len(bad or rest), 'more topic')}, the first {(bad or rest)[0].subject}"
    return _condition(kind, OTHERS, level, text, lasts_s=rest[0].lasts_s)


def _canary(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    note = sight.facts.canary
    if not flow.canary.enabled:
        return
    if note is None:
        yield _condition(Kind.CANARY, "", Level.BETWEEN, "no canary was sent yet")
        return
    limit_s, late_s = late_after_s(flow), note.late_s(sight.at_ms)
    track = note.track(str(sight.flow))
    took_s = 0.0 if track is None or track.latency_ms is None else track.latency_ms / 1000
    why = f": {note.problem}" if note.problem else ""
    if late_s > limit_s:
        text = f"the canary is late by {late_s:,.0f} s{why}"
        yield _condition(Kind.CANARY, "", Level.BAD, text)
    elif took_s > limit_s:
        yield _condition(Kind.CANARY, "", Level.BAD, f"the last canary took {took_s:,.1f} s")
    elif late_s > limit_s / 2 or note.waiting_ms is not None:
        yield _condition(Kind.CANARY, "", Level.BETWEEN, "a canary is under way")


def _proofs(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    drill, audit = sight.facts.drill, sight.facts.audit
    if drill is not None and drill.verdict != "pass":
        yield _condition(Kind.DRILL, "", Level.BAD, f"the last drill {drill.sentence}")
    if audit is not None and audit.differs:
        text = f"the last audit found {counted(audit.differs, 'record')} that differ"
        yield _condition(Kind.AUDIT, "", Level.BAD, text)


def _standby(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    wants, seen_ms = flow.alarms.standby, sight.measured.standby_seen_ms
    if wants == "off" or sight.facts.standbys:
        return
    if wants == "seen":
        recent_ms = 1000 * _DAY_S * _STANDBY_DAYS
        if seen_ms is None or sight.at_ms - seen_ms > recent_ms:
            return
    yield _condition(
        Kind.STANDBY,
        "",
        Level.BAD,
        "no driver stands by for the flow",
        lasts_s=flow.alarms.standby_s,
    )


def _ledger(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    size, limit = sight.measured.ledger_bytes, flow.alarms.ledger_bytes
    if size is None:
        yield _condition(Kind.LEDGER, "", Level.BETWEEN, "its size is not known")
    elif size > 0.9 * limit:
        level = Level.BAD if size > limit else Level.BETWEEN
        text = f"the ledger has {size:,} bytes, more than {limit:,}"
        yield _condition(Kind.LEDGER, "", level, text)


def _clocks(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    limit_s = flow.alarms.clock_s
    for cluster, ahead_s in sorted(sight.measured.clocks_s.items()):
        if ahead_s is None:
            yield _condition(Kind.CLOCK, cluster, Level.BETWEEN, "its clock is not known")
            continue
        if abs(ahead_s) <= limit_s / 2:
            continue
        level = Level.BAD if abs(ahead_s) > limit_s else Level.BETWEEN
        way = "ahead of" if ahead_s > 0 else "behind"
        text = f"the clock of {cluster} is {abs(ahead_s):,.1f} s {way} the driver's"
        yield _condition(Kind.CLOCK, cluster, level, text)


def _certificates(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    for each in sight.measured.certificates:
        left_s = (each.ends_ms - sight.at_ms) / 1000
        if left_s < _DAY_S * flow.alarms.certificate_days:
            when = f"in {left_s / _DAY_S:,.1f} days" if left_s > 0 else "already"
            text = f"the certificate of {each.whose} ends {when}"
            yield _condition(Kind.CERTIFICATE, each.whose, Level.BAD, text)


def _unknown(sight: FlowSight, flow: FlowConfig) -> Iterator[Condition]:
    if sight.unknown:
        text = "; ".join(sight.unknown)
        yield _condition(Kind.UNKNOWN, "", Level.BAD, text, lasts_s=flow.alarms.stall_s)
