"""The life of each slot: started, running, silent, replaced. Runs on the driver's loop.

Knows jobs and sessions by their seams, so that every sequence of events can be played in a test.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from heliograph.clock import monotonic_s
from heliograph.engine.cpu_share import CpuShare
from heliograph.engine.jobs import Job, JobEnded
from heliograph.engine.link import Session
from heliograph.engine.messages import Configure, Drain, Figures, Progress, Settled, Stop
from heliograph.engine.roster import Order, Roster
from heliograph.engine.tally import SlotTally
from heliograph.engine.task import Outcome, SlotResult
from heliograph.model import FlowId, Lane, LaneId, LaneLoad, LaneProgress, SlotId
from heliograph.processes import is_alive, machine_id

_log: Final = logging.getLogger(__name__)
TICK_S: Final = 0.1
_SILENT_SHARE: Final = 0.5
"""A slot unheard for this part of its lease is shown as silent."""
_LEASE_MARGIN_SHARE: Final = 0.05
"""Clocks of two machines may run apart by this much and the lease still holds."""
_BACKOFF_S: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
_HEALTHY_S: Final = 30.0
_RATE_WINDOW_S: Final = 10.0
_DIVIDE_S: Final = 2.0
"""How often limits are divided among slots anew."""


_TALLY_S: Final = 1.0


class SlotState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    SILENT = "silent"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHealth:
    slot: SlotId
    state: SlotState
    generation: int
    replaced: int
    """How often the slot was lost and started anew."""
    attempt: str
    """Spark's id of the task attempt; empty before the slot said hello."""
    pid: int
    lanes: int
    silent_ms: int
    detail: str
    """Why it was last replaced, or ended."""
    cpu_share: float = 0.0
    """Cores that its process used lately."""


@dataclass(slots=True, kw_only=True)
class _SlotRecord:
    """One slot and the job that fills it at the moment."""

    slot: SlotId
    generation: int
    job: Job | None = None
    session: Session | None = None
    heard_s: float | None = None
    """When this generation was last heard; None while it never was, and so holds nothing."""
    hello_s: float = 0.0
    machine: str = ""
    pid: int = 0
    attempt: str = ""
    job_ended: bool = False
    settlement: SlotResult | None = None
    replaced: int = 0
    failures: int = 0
    start_at_s: float = 0.0
    leaving: bool = False
    detail: str = ""
    cpu: CpuShare = field(default_factory=CpuShare)


@dataclass(slots=True)
class _Rate:
    bytes_per_s: float = 0.0
    bytes_per_record: float = 0.0
    at_s: float = field(default_factory=monotonic_s)


Submit = Callable[[SlotId, int, JobEnded], Job]
"""Starts the job of a slot's generation; may call back from any thread."""


class SlotSupervisor:
    """Implements `link.Listener`; `tick` is called about every `TICK_S`."""

    def __init__(
        self,
        *,
        lease_s: float,
        submit: Submit,
        post: Callable[[Callable[[], None]], None],
        on_change: Callable[[], None] = lambda: None,
        clock_s: Callable[[], float] = monotonic_s,
    ) -> None:
        """`post` calls on the loop what a job's thread has to say; `on_change` hears that a slot
        has told something, has ended or was given up."""
        self._lease_s, self._submit, self._post, self._clock_s = lease_s, submit, post, clock_s
        self._on_change = on_change
        self._machine = machine_id()
        self._posts: dict[SlotId, _SlotRecord] = {}
        self._generations: dict[SlotId, int] = {}
        self._progress: dict[LaneId, LaneProgress] = {}
        self._snapshot: Mapping[LaneId, LaneProgress] | None = None
        """Of `_progress`; None once that has changed."""
        self._rates: dict[LaneId, _Rate] = {}
        self._configured: Configure | None = None
        self._closing = False
        self._is_held = False
        self.roster = Roster()
        self.tally = SlotTally()
        self._divided_s = self._tallied_s = 0.0

    # What the owner asks.

    def keep(self, wanted: frozenset[SlotId]) -> None:
        """There should be these slots; others settle and end."""
        for slot in sorted(wanted):
            post = self._posts.setdefault(slot, _SlotRecord(slot=slot, generation=0))
            post.leaving = False
        for post in self._posts.values():
            if post.slot not in wanted and not post.leaving:
                post.leaving = True
                self._dismiss(post)
        self.tick()

    def give_up(self, slot: SlotId, why: str) -> None:
        """End the slot's task, whatever it does, and start another; its lanes wait for its end."""
        post = self._posts.get(slot)
        if post is None or post.job is None or post.job_ended:
            return
        _log.warning("slot %d is ended: %s", slot, why)
        if post.session is not None:
            post.session.send(Stop())
        post.job.cancel()

    def want(
        self,
        assignment: Mapping[SlotId, Iterable[Lane]],
        abandoned: frozenset[FlowId] = frozenset(),
        stuck: frozenset[LaneId] = frozenset(),
    ) -> None:
        self.tell(self.roster.want(assignment, abandoned, stuck))
        self.tally.lanes.sample(self.progress())
        for lane_id in [i for i in self._progress if not self.roster.is_wanted(i)]:
            self._snapshot = None
            del self._progress[lane_id]
            self._rates.pop(lane_id, None)

    def tell(self, orders: list[Order]) -> None:
        for slot, message in orders:
            post = self._posts.get(slot)
            if post is not None and post.session is not None:
                post.session.send(message)

    def configure(self, settings: Configure) -> None:
        """Every slot carries on with these: those that are connected are told now, others when
        they are, those that are started from here on begin with them."""
        self._configured = settings
        for post in self._posts.values():
            if post.session is not None:
                post.session.send(settings)

    def hold(self) -> None:
        """Start no slot until `proceed`: there is no Spark to start it on."""
        self._is_held = True

    def proceed(self) -> None:
        """Start what is missing at once: what failed, failed for want of Spark."""
        self._is_held = False
        for post in self._posts.values():
            post.start_at_s, post.failures = 0.0, 0
        self.tick()

    def drain(self) -> None:
        """Nothing is replaced from here on."""
        self._closing = True
        for post in self._posts.values():
            self._dismiss(post)

    def stop(self) -> None:
        self._closing = True
        for post in self._posts.values():
            if post.session is not None:
                post.session.send(Stop())
            elif post.job is not None and not post.job_ended:
                post.job.cancel()

    def cancel(self) -> None:
        for post in self._posts.values():
            if post.job is not None and not post.job_ended:
                post.job.cancel()

    @property
    def all_ended(self) -> bool:
        return all(post.job is None or post.job_ended for post in self._posts.values())

    @property
    def all_drained(self) -> bool:
        return all(
            post.heard_s is None
            or (post.settlement is not None and post.settlement.outcome is Outcome.DRAINED)
            for post in self._posts.values()
        )

    def progress(self) -> Mapping[LaneId, LaneProgress]:
        """The same object as before where nothing has changed: who has seen it need not look."""
        if self._snapshot is None:
            self._snapshot = dict(self._progress)
        return self._snapshot

    def loads(self) -> Mapping[LaneId, LaneLoad]:
        now_s = self._clock_s()
        return {
            lane_id: LaneLoad(
                # A lane that stopped reports nothing, so its rate fades by time alone.
                bytes_per_s=rate.bytes_per_s * max(0.0, 1 - (now_s - rate.at_s) / _RATE_WINDOW_S),
                lag_bytes=rate.bytes_per_record * (self._progress[lane_id].lag_records or 0),
            )
            for lane_id, rate in self._rates.items()
            if lane_id in self._progress
        }

    def health(self) -> tuple[SlotHealth, ...]:
        now_s = self._clock_s()
        return tuple(
            SlotHealth(
                slot=post.slot,
                state=self._state(post, now_s),
                generation=post.generation,
                replaced=post.replaced,
                attempt=post.attempt,
                pid=post.pid,
                lanes=self.roster.held_count(post.slot),
                silent_ms=0 if post.heard_s is None else int((now_s - post.heard_s) * 1000),
                detail=post.detail,
                cpu_share=post.cpu.share(now_s),
            )
            for post in sorted(self._posts.values(), key=lambda post: post.slot)
        )

    # What the link reports.

    def hello(self, session: Session) -> None:
        hello = session.hello
        post = self._posts.get(hello.slot)
        if post is None or hello.generation != post.generation or post.job_ended:
            # A generation that was given up must not come back to life beside its replacement.
            session.send(Stop())
            session.close()
            return
        if post.session is not None:
            post.session.close()
        if post.heard_s is None:
            post.hello_s = self._clock_s()
        post.session, post.heard_s = session, self._clock_s()
        post.machine, post.pid, post.attempt = hello.machine, hello.pid, hello.attempt
        told = self._configured
        if told is not None and hello.settings_version < told.version:
            session.send(told)  # before lanes that need it
        self.tell(self.roster.arrived(post.slot, hello.lanes))
        if self._closing or post.leaving:
            session.send(Drain())
        self._on_change()

    def heard(self, session: Session, message: Progress | Figures | Settled) -> None:
        post = self._posts.get(session.hello.slot)
        if post is None or post.session is not session:
            return
        if isinstance(message, Settled):
            self.tell(self.roster.settled(post.slot, message.ids))
        elif isinstance(message, Figures):
            self.tally.heard(post.slot, post.generation, message.figures)
            return
        else:
            post.cpu.note(message.cpu_s, self._clock_s())
            for lane in message.lanes:
                if self.roster.is_wanted(lane.lane):
                    self._measure(lane)
                    self._progress[lane.lane] = lane
                    self._snapshot = None
        self._on_change()

    def lost(self, session: Session) -> None:
        post = self._posts.get(session.hello.slot)
        if post is not None and post.session is session:
            post.heard_s = session.heard_s
            post.session = None
            self.roster.silent(post.slot)
            self._on_change()

    # What time and Spark bring.

    def job_ended(
        self, slot: SlotId, generation: int, settlement: SlotResult | None, detail: str
    ) -> None:
        post = self._posts.get(slot)
        if post is None or post.generation != generation:
            return
        post.job_ended, post.settlement = True, settlement
        post.detail = detail or _describe(settlement)
        for lane in () if settlement is None else settlement.lanes:
            if self.roster.is_wanted(lane.lane):
                self._progress[lane.lane] = lane
                self._snapshot = None
        self.tick()
        self._on_change()

    def tick(self) -> None:
        now_s = self._clock_s()
        if self.roster.has_limits and now_s - self._divided_s >= _DIVIDE_S:
            self._divided_s = now_s
            self.tell(self.roster.divide(self.loads()))
        if now_s - self._tallied_s >= _TALLY_S:
            self._tallied_s = now_s
            self.tally.lanes.sample(self.progress())
        for post in list(self._posts.values()):
            if post.session is not None:
                post.heard_s = post.session.heard_s
            if post.job is None and post.leaving:
                del self._posts[post.slot]
            elif post.job is None:
                is_wanted = not (self._closing or self._is_held)
                if is_wanted and now_s >= post.start_at_s:
                    self._start(post)
            elif (why := self._why_over(post, now_s)) is not None:
                self._replace(post, why, now_s)
            elif post.leaving and post.heard_s is None:
                post.job.cancel()

    def _start(self, post: _SlotRecord) -> None:
        post.generation = self._generations.get(post.slot, 0) + 1
        self._generations[post.slot] = post.generation
        slot, generation = post.slot, post.generation

        def ended(settlement: SlotResult | None, detail: str) -> None:
            self._post(lambda: self.job_ended(slot, generation, settlement, detail))

        post.job = self._submit(slot, generation, ended)

    def _why_over(self, post: _SlotRecord, now_s: float) -> str | None:
        """How it is known that this generation carries nothing any more; None while it is not."""
        if post.heard_s is None:
            return post.detail if post.job_ended else None
        if post.settlement is not None and post.settlement.outcome is not Outcome.RETRIED:
            return post.detail
        if post.session is None and post.machine == self._machine and not is_alive(post.pid):
            return f"its worker {post.pid} is gone"
        unheard_s = now_s - post.heard_s
        if unheard_s > self._lease_s * (1 + _LEASE_MARGIN_SHARE):
            return f"not heard for {unheard_s:.1f} s"
        return None

    def _replace(self, post: _SlotRecord, why: str, now_s: float) -> None:
        if post.session is not None:
            post.session.close()
            post.session = None
        self.tell(self.roster.over(post.slot))
        if not post.job_ended and post.job is not None:
            post.job.cancel()
        if post.leaving:
            del self._posts[post.slot]
        elif not self._closing:
            self._start_another(post, why, now_s)
        self._on_change()

    def _start_another(self, post: _SlotRecord, why: str, now_s: float) -> None:
        healthy = post.heard_s is not None and now_s - post.hello_s > _HEALTHY_S
        failures = 0 if healthy else post.failures + 1
        backoff_s = _BACKOFF_S[min(max(0, failures - 1), len(_BACKOFF_S) - 1)]
        _log.warning("slot %d lost (%s), starting another", post.slot, why)
        self._posts[post.slot] = _SlotRecord(
            slot=post.slot,
            generation=post.generation,
            replaced=post.replaced + 1,
            failures=failures,
            start_at_s=now_s + backoff_s,
            detail=why,
        )
        if backoff_s == 0.0 and not self._is_held:
            self._start(self._posts[post.slot])

    def _dismiss(self, post: _SlotRecord) -> None:
        if post.session is not None:
            post.session.send(Drain())
        elif post.job is not None and post.heard_s is None:
            post.job.cancel()

    def _state(self, post: _SlotRecord, now_s: float) -> SlotState:
        if post.job_ended:
            return SlotState.ENDED
        if post.heard_s is None:
            return SlotState.STARTING
        unheard_s = now_s - post.heard_s
        if post.session is None or unheard_s > self._lease_s * _SILENT_SHARE:
            return SlotState.SILENT
        return SlotState.RUNNING

    def _measure(self, lane: LaneProgress) -> None:
        before = self._progress.get(lane.lane)
        rate = self._rates.setdefault(lane.lane, _Rate(at_s=self._clock_s()))
        now_s = self._clock_s()
        elapsed_s = now_s - rate.at_s
        if before is None or lane.bytes < before.bytes or elapsed_s <= 0:
            rate.at_s = now_s  # a slot that took the lane anew counts from zero
            return
        share = min(1.0, elapsed_s / _RATE_WINDOW_S)
        latest = (lane.bytes - before.bytes) / elapsed_s
        rate.bytes_per_s += share * (latest - rate.bytes_per_s)
        rate.bytes_per_record = lane.bytes / lane.records if lane.records else 0.0
        rate.at_s = now_s


def _describe(settlement: SlotResult | None) -> str:
    if settlement is None:
        return ""
    return f"{settlement.outcome}: {settlement.detail}".removesuffix(": ")
