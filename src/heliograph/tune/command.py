"""The load test and the peak of one flow, from beginning to end. Runs on the driver; blocks.

Whatever ends it, Ctrl-C too, the topics it made are removed.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.inspect.dry_run import plan_flows
from heliograph.model import FlowId, TopicName
from heliograph.tune.knee import STEPS, Knee, Peak, Step, knee_of, steps_up_to
from heliograph.tune.load import NoRoom, run_step
from heliograph.tune.peak import find_peak
from heliograph.tune.scratch import Scratch, filled_topic, new_scratch, removed, scratch_config
from heliograph.words import bytes_words, counted

_LOCAL: Final = re.compile(r"local(?:\[(\*|[0-9]+)(?:,.*)?\])?")
_SHORT_S: Final = 2.0
"""A run that is shorter says little: slots report four times a second."""
_LANES_PER_SLOT: Final = 2

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneWishes:
    flow: FlowId
    slots: tuple[int, ...]
    """Numbers to try, ascending; none: no load test."""
    topics: tuple[TopicName, ...] = ()
    """Of the source, whose records are the load; none: a scratch topic."""
    size_bytes: int = 1_000_000_000
    """Of the scratch topic."""
    record_bytes: int = 1_000
    seconds_max: float = 30.0
    """Of each run."""
    hours: int = 72
    """That are looked back for the peak; 0: not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneReport:
    wishes: TuneWishes
    at_ms: int
    load: str
    """What was copied, in words; nothing without a load test."""
    steps: tuple[Step, ...]
    peak: Peak | None
    notes: tuple[str, ...]

    @property
    def flow(self) -> FlowId:
        return self.wishes.flow

    @property
    def knee(self) -> Knee | None:
        return knee_of(self.steps) if self.steps else None

    @property
    def headroom(self) -> float | None:
        """How many times the peak the flow could copy."""
        if self.knee is None or self.peak is None or not self.peak.bytes_per_s:
            return None
        return self.knee.bytes_per_s / self.peak.bytes_per_s

    @property
    def catch_up_s(self) -> float | None:
        """How long it takes to make up for an hour without a mirror, while the peak lasts; None
        where it never would, or is not known."""
        if self.headroom is None or self.headroom <= 1:
            return None
        return 3_600 / (self.headroom - 1)


def default_slots(config: MirrorConfig) -> tuple[int, ...]:
    """As far as the cores go; those of a cluster are known when Spark has no room any more."""
    found = _LOCAL.fullmatch(config.engine.master or "local[*]")
    if found is None:
        return STEPS
    cores = len(os.sched_getaffinity(0))
    if found[1] is None:
        cores = 1 if config.engine.master else cores
    elif found[1] != "*":
        cores = int(found[1])
    return steps_up_to(cores)


def tune_flow(config: MirrorConfig, wishes: TuneWishes, say: Say) -> TuneReport:
    """Raises `MirrorError`."""
    peak, notes = None, list[str]()
    if wishes.hours:
        say(f"looking at the last {counted(wishes.hours, 'hour')} of {wishes.flow.source}")
        found = asyncio.run(
            find_peak(
                config.source_of(wishes.flow), _mirrored(config, wishes.flow), hours=wishes.hours
            )
        )
        peak = found.peak
        notes += found.notes
        if peak is None:
            notes.append("no record of the last hours is in the logs of mirrored topics")
    steps: list[Step] = []
    load = ""
    if wishes.slots:
        with _loaded(config, wishes, say, notes) as (scratch, topics, load):
            steps += _steps(config, scratch, topics, wishes, say, notes)
    return TuneReport(
        wishes=wishes,
        at_ms=now_ms(),
        load=load,
        steps=tuple(steps),
        peak=peak,
        notes=tuple(notes),
    )


def _mirrored(config: MirrorConfig, flow: FlowId) -> list[TopicName]:
    only = config.model_copy(update={"chosen": frozenset({flow})})
    (plan,) = plan_flows(only)
    return [] if plan.selection is None else list(dict(plan.selection.mirrored))


@contextmanager
def _loaded(
    config: MirrorConfig, wishes: TuneWishes, say: Say, notes: list[str]
) -> Iterator[tuple[Scratch, tuple[TopicName, ...], str]]:
    """The topics to copy, and the end of all that the runs make."""
    scratch = new_scratch(wishes.flow)
    topics = wishes.topics or (scratch.topic,)
    target = ClusterAdmin(config.clusters[wishes.flow.target])
    try:
        if wishes.topics:
            yield scratch, topics, f"what {', '.join(topics)} of {wishes.flow.source} hold"
            return
        partitions = max(_LANES_PER_SLOT * max(wishes.slots), 4)
        load = (
            f"a scratch topic of {bytes_words(wishes.size_bytes)} in records of "
            f"{wishes.record_bytes:,} bytes, {counted(partitions, 'partition')}"
        )
        say(f"filling {scratch.topic} on {wishes.flow.source}: {load}")
        with filled_topic(
            config,
            scratch,
            partitions=partitions,
            size_bytes=wishes.size_bytes,
            record_bytes=wishes.record_bytes,
        ):
            yield scratch, topics, load
    finally:
        notes += removed(target, scratch.on_target(wishes.slots, topics))


def _steps(
    config: MirrorConfig,
    scratch: Scratch,
    topics: Sequence[TopicName],
    wishes: TuneWishes,
    say: Say,
    notes: list[str],
) -> Iterator[Step]:
    for index, count in enumerate(wishes.slots):
        say(f"copying with {counted(count, 'slot')}")
        made = scratch_config(config, scratch, topics, count)
        try:
            step = run_step(made, count, seconds_max=wishes.seconds_max)
        except NoRoom as exc:
            if not index:
                raise
            notes.append(f"{counted(count, 'slot')} could not be tried: {exc}")
            return
        if step.seconds < _SHORT_S:
            notes.append(
                f"with {counted(count, 'slot')} all was copied within {step.seconds:.1f} s, which "
                "is too short to go by: use a larger --mb"
            )
        yield step
