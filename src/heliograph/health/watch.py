"""Watch a flow: look, judge, note, tell. Runs on the driver that leads the flow.

An alarm is in the ledger before anyone is told of it, and that it was told is noted after: a driver
that is killed in between leaves an alarm that its successor tells, once more at worst and never not
at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from heliograph.broker.clients import Clients
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.health.alarms import (
    Alarm,
    Patience,
    alarm_id,
    as_told,
    judge,
    open_subjects,
    to_tell,
)
from heliograph.health.conditions import conditions
from heliograph.health.horizons import with_horizon
from heliograph.health.note import (
    AlarmsNote,
    ForeignNote,
    Silence,
    alarms_entry,
    alarms_note,
    silenced_by,
    silences_of,
)
from heliograph.health.probes import Probes
from heliograph.health.sight import (
    WAITING,
    FlowSight,
    Foreign,
    LaneSight,
    LedgerFacts,
    Measured,
    WatchFigures,
    facts_of,
    lane_of_progress,
    own_topics,
)
from heliograph.lag.figures import LagReport, Motion
from heliograph.lag.lanes import STUCK_S
from heliograph.ledger.outage_note import OutageNote, outage_entry, outage_note, seen_at
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    FlowId,
    LaneId,
    LaneProgress,
    LoopPrevention,
    SlotId,
    TopicName,
    TopicPartition,
)
from heliograph.procedure.hooks import (
    HookEvent,
    HookOutcome,
    Json,
    Webhook,
    hook_event,
    post,
    run_command,
)
from heliograph.topics.naming import naming_policy

log = logging.getLogger("heliograph")

Progress = Callable[[], Mapping[LaneId, LaneProgress]]
Lags = Callable[[], LagReport]
SlotClocks = Callable[[], Mapping[SlotId, float]]
"""How many seconds the clock of each slot's machine is ahead of the driver's."""

_RECENT_S: Final = 10.0
"""How old what is known of the ledger may be. The lease reads it twice a second; once it cannot,
the flow has lapsed before this, and no look waits for a target that does not answer."""
_STANDBY_NOTE_MS: Final = 86_400_000
_AGAIN_S: Final = 10.0
_AGAIN_S_MAX: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What the ledger says, read in one go."""

    facts: LedgerFacts = field(default_factory=LedgerFacts)
    note: AlarmsNote = field(default_factory=AlarmsNote)
    silences: tuple[Silence, ...] = ()
    producer_id: int | None = None
    outage: OutageNote | None = None
    has_lanes: bool = False
    """Whether the flow ever had any."""

    @classmethod
    def of(cls, view: LedgerView, at_ms: int) -> _Seen:
        return cls(
            facts=facts_of(view, at_ms),
            note=alarms_note(view),
            silences=silences_of(view),
            producer_id=None if view.flow is None else view.flow.producer_id,
            outage=outage_note(view),
            has_lanes=view.lane_count > 0,
        )


class WatchJob:
    """Looks at one flow every so often, and keeps its alarms."""

    what: Final = "alarms"

    def __init__(
        self,
        config: MirrorConfig,
        flow: FlowConfig,
        clients: Clients,
        ledgers: LedgerService,
        progress: Progress,
        lags: Lags,
        slot_clocks: SlotClocks = dict,
    ) -> None:
        self.flow: Final[FlowId] = flow.id
        self.interval_s: Final[float] = interval_s(flow)
        self._config, self._settings = config, flow
        self._ledgers, self._progress, self._lags = ledgers, progress, lags
        self._slot_clocks = slot_clocks
        self._probes = Probes(config, flow.id, clients, author=ledgers.author)
        self._takes_writes: Final = config.loop_prevention_of(flow.id) is not LoopPrevention.NONE
        """Whether both sides write under one name: others' records on the target are wanted."""
        self._patience = Patience()
        self._writers: dict[TopicName, str] = {}
        self._teller = Teller(config, flow)
        self._seen = _Seen()
        self.measured: WatchFigures | None = None
        """Of the last look; None before it, and while the target cannot be reached."""
        self._measured = Measured()
        """Of the last look at which the target could be reached."""
        self._is_unwritten = False
        """Whether alarms were raised or told of while the ledger could not be had."""

    def step(self) -> None:
        at_ms = now_ms()
        seen = self._ledgers.ask_recent(self.flow, lambda view: _Seen.of(view, at_ms), _RECENT_S)
        if self._is_unwritten:
            seen = replace(seen, note=together(seen.note, self._seen.note))
        self._seen = seen
        lanes, before = self._lanes(at_ms), seen.note
        note = replace(
            before,
            foreign=() if self._takes_writes else grown(before.foreign, lanes, at_ms),
            standby_seen_ms=_seen_ms(before.standby_seen_ms, seen.facts.standbys, at_ms),
        )
        sight = self._sight(lanes, seen, note, at_ms)
        self.measured, self._measured = _figures(sight), sight.measured
        note = self._judged(sight, note, is_known=sight.is_known and bool(lanes))
        outage = seen_at(seen.outage, at_ms, goes_on=self._goes_on(sight, has_lanes=seen.has_lanes))
        entries = [alarms_entry(note)] if note != before or self._is_unwritten else []
        if outage is not None and outage != seen.outage:
            entries.append(outage_entry(outage))
        if entries:
            self._ledgers.note(self.flow, entries)
        told = self._told(note, at_ms)
        if told != note:
            self._ledgers.note(self.flow, [alarms_entry(told)])
        self._seen, self._is_unwritten = replace(seen, note=told), False

    def step_lapsed(self, why: str) -> None:
        """The ledger cannot be had, or nothing would have lapsed: what is raised is noted later.

        What was known last still holds: a canary that was due since then is late, and nothing
        ends because it cannot be looked at.
        """
        at_ms, self.measured = now_ms(), None
        sight = FlowSight(
            flow=self.flow,
            at_ms=at_ms,
            unknown=(why,),
            facts=self._seen.facts,
            measured=self._measured,
        )
        note = self._told(self._judged(sight, self._seen.note, is_known=False), at_ms)
        self._is_unwritten = self._is_unwritten or note != self._seen.note
        self._seen = replace(self._seen, note=note)

    def _goes_on(self, sight: FlowSight, *, has_lanes: bool) -> bool:
        """Whether no lane has something to mirror and does not, as far as is known."""
        if not sight.lanes:
            return not has_lanes
        lags = self._lags().lanes
        stuck = any(
            lag.motion is Motion.STUCK for lane, lag in lags.items() if lane.flow == self.flow
        )
        return (
            sight.is_known
            and not stuck
            and not any(_has_stopped(lane, sight.at_ms) for lane in sight.lanes)
        )

    def _judged(self, sight: FlowSight, note: AlarmsNote, *, is_known: bool) -> AlarmsNote:
        judged = judge(
            conditions(sight, self._settings, open_subjects(note.alarms)),
            note.alarms,
            self._patience,
            sight.at_ms,
            clear_s=self._settings.alarms.clear_s,
            is_known=is_known,
        )
        self._patience = judged.patience
        self._log(judged.raised, judged.ended, sight.at_ms)
        return replace(note, alarms=judged.alarms)

    def _told(self, note: AlarmsNote, at_ms: int) -> AlarmsNote:
        silenced = {
            alarm.key: silenced_by(alarm, self._seen.silences, at_ms) is not None
            for alarm in note.alarms
        }
        told = self._teller.tell(to_tell(note.alarms, silenced))
        return replace(note, alarms=as_told(note.alarms, told)) if told else note

    def finish(self) -> None:
        """A run that ends tells of nothing more."""

    def _lanes(self, at_ms: int) -> tuple[LaneSight, ...]:
        found = [at for lane, at in self._progress().items() if lane.flow == self.flow]
        own = own_topics(self._settings, {at.lane.source.topic for at in found})
        lags = self._lags().lanes
        lanes = [lane_of_progress(at, own, at_ms, lags.get(at.lane)) for at in found]
        waiting = {lane.topic for lane in lanes if lane.lag_records != 0}
        horizons = self._probes.horizons(waiting) if waiting else {}
        return tuple(with_horizon(lane, horizons.get(lane.topic)) for lane in lanes)

    def _sight(
        self,
        lanes: tuple[LaneSight, ...],
        seen: _Seen,
        note: AlarmsNote,
        at_ms: int,
    ) -> FlowSight:
        ledger = self._probes.ledger()
        return FlowSight(
            flow=self.flow,
            at_ms=at_ms,
            lanes=lanes,
            facts=seen.facts,
            measured=Measured(
                ledger_bytes=ledger.bytes,
                clocks_s=self._clocks(ledger.ahead_s, lanes, at_ms),
                certificates=self._probes.certificates(),
                foreign=self._foreign(note.foreign, lanes, at_ms, seen.producer_id),
                standby_seen_ms=note.standby_seen_ms,
            ),
        )

    def _clocks(
        self, ledger_ahead_s: float | None, lanes: tuple[LaneSight, ...], at_ms: int
    ) -> dict[str, float | None]:
        """All that can be compared with the driver's own."""
        controllers = {str(alias): ahead_s for alias, ahead_s in self._probes.clocks().items()}
        target = str(self.flow.target)
        # The broker of the ledger puts its time on leases: another machine than the controller.
        known = [each for each in (controllers[target], ledger_ahead_s) if each is not None]
        slots = {f"slot {slot}": ahead_s for slot, ahead_s in self._slot_clocks().items()}
        found = {**controllers, target: max(known, key=abs, default=None), **slots}
        newest_ms = max((lane.newest_ms or 0 for lane in lanes), default=0)
        if newest_ms - at_ms > 1000 * self._settings.alarms.clock_s:
            # Of producers, or of brokers that are not the controller: only that it is ahead shows.
            found[f"{self.flow.source} or its producers"] = (newest_ms - at_ms) / 1000
        return found

    def _foreign(
        self,
        noted: Iterable[ForeignNote],
        lanes: tuple[LaneSight, ...],
        at_ms: int,
        producer_id: int | None,
    ) -> dict[TopicName, Foreign]:
        policy = naming_policy(self._settings)
        found: dict[TopicName, Foreign] = {}
        for each in noted:
            if each.grew_ms == at_ms:
                target = policy.target_topic(each.topic)
                places = [
                    TopicPartition(topic=target, partition=lane.partition)
                    for lane in lanes
                    if lane.topic == each.topic and lane.foreign_records
                ]
                self._writers[each.topic] = self._probes.writers(places, producer_id)
            found[each.topic] = Foreign(
                records=each.records,
                grew_ms=each.grew_ms,
                writers=self._writers.get(each.topic, ""),
            )
        return found

    def _log(self, raised: Iterable[Alarm], ended: Iterable[Alarm], at_ms: int) -> None:
        for alarm in raised:
            by = silenced_by(alarm, self._seen.silences, at_ms)
            silent = "" if by is None else f" (silenced by {by.who})"
            log.warning("%s: alarm %s: %s%s", self.flow, alarm.name, alarm.text, silent)
        for alarm in ended:
            lasted_s = ((alarm.ended_ms or at_ms) - alarm.raised_ms) / 1000
            log.info("%s: alarm %s ended after %.0f s", self.flow, alarm.name, lasted_s)


class Teller:
    """The webhook and the command of a flow; what does not answer is tried again, ever later."""

    def __init__(self, config: MirrorConfig, flow: FlowConfig) -> None:
        self._config, self._flow = config, flow
        self._heard: dict[str, set[tuple[str, int, bool]]] = {}
        self._due_s, self._pause_s = float("-inf"), _AGAIN_S

    def tell(self, alarms: list[Alarm]) -> list[Alarm]:
        """Those that were told: all where all who are to hear have heard, else none."""
        if not alarms or monotonic_s() < self._due_s:
            return []
        outcomes = [self._to(name, run, alarms) for name, run in self._hooks()]
        if all(outcomes):
            self._due_s, self._pause_s = float("-inf"), _AGAIN_S
            self._heard.clear()
            return alarms
        self._due_s = monotonic_s() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _AGAIN_S_MAX)
        return []

    def _hooks(self) -> Iterator[tuple[str, Callable[[HookEvent], HookOutcome]]]:
        wants = self._flow.alarms
        if wants.webhook_url is not None:
            webhook = Webhook(wants.webhook_url, wants.webhook_token, wants.timeout_s)
            yield "alarms.webhook.url", lambda event: post("alarms.webhook.url", webhook, event)
        if (command := wants.command) is not None:
            yield (
                "alarms.command",
                lambda event: run_command("alarms.command", command, wants.timeout_s, event),
            )

    def _to(self, name: str, run: Callable[[HookEvent], HookOutcome], alarms: list[Alarm]) -> bool:
        """One that has heard of an alarm is not told again because another did not answer."""
        heard = self._heard.setdefault(name, set())
        news = [alarm for alarm in alarms if _news(alarm) not in heard]
        if not news:
            return True
        outcome = run(
            hook_event(
                self._config,
                self._flow.id,
                "alarms",
                primary=self._flow.id.source,
                detail={"alarms": [alarm_json(self._flow.id, alarm) for alarm in news]},
            )
        )
        if outcome.ok:
            heard.update(map(_news, news))
        else:
            log.error("%s: %s: %s", self._flow.id, outcome.name, outcome.told)
        return outcome.ok


def _news(alarm: Alarm) -> tuple[str, int, bool]:
    return alarm.name, alarm.raised_ms, alarm.is_open


def interval_s(flow: FlowConfig) -> float:
    """With a canary often enough to see within two of its intervals that one did not come."""
    wanted = float(flow.alarms.interval_s)
    return min(wanted, flow.canary.interval_s / 4) if flow.canary.enabled else wanted


def alarm_json(flow: FlowId, alarm: Alarm) -> dict[str, Json]:
    return {
        "id": alarm_id(str(flow), alarm.name),
        "alarm": alarm.name,
        "state": "raised" if alarm.is_open else "ended",
        "text": alarm.text,
        "raised_ms": alarm.raised_ms,
        "ended_ms": alarm.ended_ms,
    }


def _figures(sight: FlowSight) -> WatchFigures:
    left_s = [lane.tombstones_s for lane in sight.lanes if lane.tombstones_s is not None]
    return WatchFigures(measured=sight.measured, tombstones_s=min(left_s, default=None))


def grown(
    noted: Iterable[ForeignNote], lanes: Iterable[LaneSight], at_ms: int
) -> tuple[ForeignNote, ...]:
    """The counts with those that are more than was noted; counts of a lane never shrink."""
    now: dict[TopicName, int] = {}
    for lane in lanes:
        now[lane.topic] = now.get(lane.topic, 0) + lane.foreign_records
    known = {each.topic: each for each in noted}
    for topic, records in now.items():
        before = known.get(topic)
        if records > (0 if before is None else before.records):
            known[topic] = ForeignNote(topic=topic, records=records, grew_ms=at_ms)
    return tuple(known.values())


def together(noted: AlarmsNote, own: AlarmsNote) -> AlarmsNote:
    """What the ledger says, with what this driver raised or told of while it could not write."""
    mine = {(alarm.key, alarm.raised_ms): alarm for alarm in own.alarms}
    known = {(alarm.key, alarm.raised_ms) for alarm in noted.alarms}
    taken = {alarm.key for alarm in noted.alarms if alarm.is_open}
    added = [
        alarm
        for at, alarm in mine.items()
        if at not in known and not (alarm.is_open and alarm.key in taken)
    ]
    merged = [
        mine.get((alarm.key, alarm.raised_ms), alarm) if alarm.is_open else alarm
        for alarm in noted.alarms
    ]
    return replace(noted, alarms=(*merged, *added))


def _has_stopped(lane: LaneSight, at_ms: int) -> bool:
    """One that an operator paused is no outage: it is known, and goes on when told. Nor is one that
    waits for a moment, as it does now and then where it copies as fast as it can."""
    if lane.state == WAITING and lane.since_ms is not None:
        return at_ms - lane.since_ms >= 1000 * STUCK_S
    return lane.is_stalled


def _seen_ms(before_ms: int | None, standbys: int, at_ms: int) -> int | None:
    """Noted once a day while there is one: a note each time would fill the ledger."""
    if standbys and (before_ms is None or at_ms - before_ms > _STANDBY_NOTE_MS):
        return at_ms
    return before_ms
