"""Leave a cluster: the flow, or some topics of it, is fenced; groups go on at the target, exactly.
Driver only.

`Planned` loses nothing and needs the source; `unplanned` needs the target alone. Each step is
recorded in the flow's ledger when it is done (see `procedure`), so the next run of the command
after a crash resumes where it stopped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from heliograph.broker.groups import GroupAdmin
from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.errors import RecoveryRefused
from heliograph.failover.context import FailoverContext, Findings
from heliograph.failover.cut import CutPoint, cut_words
from heliograph.failover.outputs import (
    CHECK,
    DRAIN,
    FENCE,
    GROUPS,
    STOP_PRODUCERS,
    SWITCH,
    VERIFY,
    FailoverChoices,
    Mode,
)
from heliograph.failover.planned import drain_step, stop_producers_step, verify_step
from heliograph.failover.shortfall import UnmirroredTail, find_losses
from heliograph.failover.source_ends import SourceEnds, look_at_source, without_heartbeats
from heliograph.failover.steps import (
    active_on_target,
    check_step,
    fence_step,
    groups_step,
    learn_groups,
    moved_groups,
    some_of,
    switch_step,
)
from heliograph.groups.placement import GroupMove, NoOffset
from heliograph.ledger.access import read_ledger
from heliograph.ledger.entries import LeaseEntry, Tombstone
from heliograph.ledger.fence import (
    Fence,
    fence_of,
    topic_fences,
    topic_unfence_entries,
    unfence_entry,
)
from heliograph.ledger.locations import LaneLocation, begun_topics, locate_lanes
from heliograph.ledger.trail import DONE, Change, noted_in, on_trail
from heliograph.model import FlowId, TopicName
from heliograph.procedure.journal import Journal, Procedure
from heliograph.procedure.runner import (
    Say,
    Standing,
    Step,
    read_standing,
    require_same,
    resume_or_begin,
    run_steps,
    step,
    steps_left,
    unfinished_to_abandon,
)
from heliograph.processes import operator
from heliograph.topics.naming import is_heartbeats, naming_policy

_LOOK_S_MAX: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverOrder:
    flow: FlowId
    mode: Mode
    skip_active: bool = False
    """Leave groups alone that have members on the target, instead of refusing everything."""
    topics: tuple[TopicName, ...] | None = None
    """By their names on the source; None for the whole flow. The other topics go on."""
    cut_ms: int | None = None
    """The moment at which all topics are cut; None: groups go on where they stood."""
    who: str = field(default_factory=operator, compare=False)
    """Who asks for it, for the history."""

    @property
    def choices(self) -> FailoverChoices:
        topics = None if self.topics is None else tuple(sorted(set(self.topics)))
        return FailoverChoices(mode=self.mode, topics=topics, cut_ms=self.cut_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a failover would do now; nothing was changed to find out."""

    order: FailoverOrder
    steps: tuple[str, ...]
    """Names, in order; those of an unfinished failover that are done are left out."""
    unfinished: Procedure[FailoverChoices] | None
    """An earlier one that would be resumed."""
    finished: Procedure[FailoverChoices] | None
    """An earlier one that is over; there is nothing left to do."""
    fence: Fence | None
    topic_fences: Mapping[TopicName, Fence]
    """Of the topics that are asked for, as far as they are up."""
    source_problem: str
    """Why the source does not answer; empty where it does."""
    moves: tuple[GroupMove, ...]
    unplaced: tuple[NoOffset, ...]
    active: tuple[str, ...]
    losses: tuple[UnmirroredTail, ...]
    cut: tuple[CutPoint, ...]
    """Every partition at the moment of the cut; none where there is no cut."""
    holder: LeaseEntry | None
    """The driver that mirrors the flow."""

    @property
    def refusal(self) -> str:
        """Why it would be refused as it is asked for; empty where it would not."""
        if self.finished is not None:
            return ""
        if self.order.mode == "planned" and self.source_problem:
            return f"a planned failover needs the source: {self.source_problem}"
        if self.order.topics is not None and self.fence is not None:
            return f"{self.order.flow} is fenced as a whole, with all its topics: {self.fence.why}"
        if self.active and not self.order.skip_active:
            return f"groups with active members on {self.order.flow.target}: {some_of(self.active)}"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverReport:
    order: FailoverOrder
    procedure: Procedure[FailoverChoices]
    was_over: bool
    """Whether it had been finished before, so that nothing was done now."""
    losses: tuple[UnmirroredTail, ...]
    moved: tuple[str, ...]
    """Groups that go on at the target, of this and of earlier tries."""
    skipped: tuple[str, ...]
    """Groups left alone because they had members on the target."""
    moves: tuple[GroupMove, ...]
    """What this try committed."""
    unplaced: tuple[NoOffset, ...]
    cut: tuple[CutPoint, ...] = ()
    """As this try found it."""

    @property
    def lost_records_min(self) -> int:
        return sum(loss.records_min for loss in self.losses)

    @property
    def is_loss_known(self) -> bool:
        """Whether the source itself said where it ends; otherwise more may be lost."""
        return all(loss.source_told for loss in self.losses)

    @property
    def seconds(self) -> float:
        """From the first step's beginning to the last one's end."""
        ended_ms = self.procedure.ended_ms or now_ms()
        return (ended_ms - self.procedure.began_ms) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    procedure: Procedure[FailoverChoices]
    moved: tuple[str, ...]
    """Groups whose offsets on the target were set already; they stay as they are."""
    fence_lifted: bool


async def preview(config: MirrorConfig, order: FailoverOrder) -> Preview:
    """Look at everything a failover looks at; raises `MirrorError` where it could not be done."""
    async with _context(config, order, lambda _: None) as context:
        return await _look(context, order, await _standing(context, order))


async def _look(
    context: FailoverContext, order: FailoverOrder, standing: Standing[FailoverChoices]
) -> Preview:
    fence = fence_of(context.ledger.store.view)
    if standing.unfinished is not None:
        require_same(context.journal, standing.unfinished, order.flow, order.choices)
    elif standing.finished is None:
        _require_topics(context)
    known, placing = await learn_groups(context)
    locations = without_heartbeats(context.flow, known.locations.values())
    seen = await _source_seen(context, locations)
    holder = context.ledger.store.view.holder
    is_led = holder is not None and holder.until_ms >= now_ms()
    return Preview(
        order=order,
        steps=steps_left(_steps(context), standing),
        unfinished=standing.unfinished,
        finished=standing.finished,
        fence=fence,
        topic_fences=context.fences(),
        source_problem=seen.problem,
        moves=placing.moves,
        unplaced=placing.unplaced,
        active=await active_on_target(context, placing.moves),
        losses=find_losses(locations, seen),
        cut=context.findings.cut,
        holder=holder if is_led else None,
    )


async def fail_over(
    config: MirrorConfig,
    order: FailoverOrder,
    say: Say,
    as_shown: Callable[[Preview], None] | None = None,
) -> FailoverReport:
    """Do it, or what is left of it. Raises `MirrorError` where a step cannot be done; what was
    done by then is recorded, and the next call goes on there.

    `as_shown` gets what would be done, before anything is, and may raise `PlanChanged`.
    """
    async with _context(config, order, say) as context:
        standing = await _standing(context, order)
        if as_shown is not None:
            as_shown(await _look(context, order, standing))
        if standing.finished is not None:
            # Its fence is up: clients are on the target, and groups may have gone on there.
            return await _reported(context, standing.finished, was_over=True)
        if standing.unfinished is None:
            _require_no_fence(context)
            _require_topics(context)
            if context.cut_ms is not None:
                # Refused before anything is noted: another cut is another failover.
                await learn_groups(context)
        procedure = await resume_or_begin(context.journal, order.flow, order.choices)
        if procedure.has_done(FENCE) and not _is_fenced(context):
            raise RecoveryRefused(
                f"the fence of an unfinished failover of {order.flow} was lifted since: abandon "
                "that failover with --abandon, then start another"
            )
        work = run_steps(context.journal, procedure, _steps(context), say)
        procedure = await on_trail(context.ledger.store, _change(order, "failover"), work)
        return await _reported(context, procedure, was_over=False)


async def abandon(config: MirrorConfig, flow: FlowId) -> Abandoned:
    """Abandon an unfinished failover: the flow may run again. Groups are not moved back."""
    async with _context(
        config, FailoverOrder(flow=flow, mode="unplanned"), lambda _: None
    ) as context:
        procedure = await unfinished_to_abandon(
            context.journal, flow, "failover", if_over="`heliograph failback` undoes a finished one"
        )
        moved = await moved_groups(context, procedure)
        topics = procedure.choices.topics
        fenced = topic_fences(context.ledger.store.view)
        lifted: list[Tombstone] = topic_unfence_entries(fenced.keys() & set(topics or ()))
        if topics is None and fence_of(context.ledger.store.view) is not None:
            lifted.append(unfence_entry())
        # The fence last: a crash in between leaves a flow that stands still, and a sentence why.
        await context.journal.forget()
        if lifted:
            await context.ledger.store.write_or_refuse(lifted)
        order = FailoverOrder(flow=flow, mode=procedure.choices.mode, topics=topics)
        await noted_in(context.ledger.store, _change(order, "abandon failover").ended(DONE))
        return Abandoned(procedure=procedure, moved=tuple(sorted(moved)), fence_lifted=bool(lifted))


def _change(order: FailoverOrder, verb: str) -> Change:
    what = "the whole flow" if order.topics is None else f"topics {', '.join(order.topics)}"
    cut = "" if order.cut_ms is None else f", cut at {cut_words(order.cut_ms)}"
    return Change(who=order.who, verb=verb, what=f"{what}, {order.mode}{cut}")


@asynccontextmanager
async def _context(
    config: MirrorConfig, order: FailoverOrder, say: Say
) -> AsyncIterator[FailoverContext]:
    async with read_ledger(config, order.flow) as ledger:
        yield FailoverContext(
            config=config,
            flow=config.flow(order.flow),
            is_planned=order.mode == "planned",
            skip_active=order.skip_active,
            topics=order.choices.topics,
            cut_ms=order.cut_ms,
            ledger=ledger,
            journal=Journal(ledger.store, "failover", FailoverChoices),
            groups=GroupAdmin(config.target_of(order.flow)),
            say=say,
            findings=Findings(),
        )


def _steps(context: FailoverContext) -> Sequence[Step[FailoverChoices]]:
    check = step(CHECK, partial(check_step, context))
    only_planned = [
        step(STOP_PRODUCERS, partial(stop_producers_step, context)),
        step(DRAIN, partial(drain_step, context)),
        step(VERIFY, partial(verify_step, context)),
    ]
    every = [
        step(FENCE, partial(fence_step, context)),
        step(GROUPS, partial(groups_step, context)),
        step(SWITCH, partial(switch_step, context)),
    ]
    return [check, *(only_planned if context.is_planned else ()), *every]


async def _standing(context: FailoverContext, order: FailoverOrder) -> Standing[FailoverChoices]:
    """A failover that is over is in force for whoever asks for the same topics, or the whole flow,
    while its fence is up."""
    return await read_standing(
        context.journal,
        lambda over: over.choices.topics == order.choices.topics and _is_fenced(context),
    )


def _is_fenced(context: FailoverContext) -> bool:
    if context.topics is None:
        return fence_of(context.ledger.store.view) is not None
    return context.fences().keys() == set(context.topics)


def _require_no_fence(context: FailoverContext) -> None:
    fence, flow = fence_of(context.ledger.store.view), context.flow.id
    if fence is not None and context.topics is not None:
        raise RecoveryRefused(f"{flow} is fenced as a whole, with all its topics: {fence.why}")
    if fence is not None:
        raise RecoveryRefused(
            f"{flow} has a fence that no failover put up; `heliograph failback` lifts it"
        )


def _require_topics(context: FailoverContext) -> None:
    """Those that are asked for are mirrored, and were not failed over by another failover."""
    flow, view = context.flow.id, context.ledger.store.view
    if context.topics is None:
        return
    if not context.topics:
        raise RecoveryRefused(f"no topic of {flow} was named")
    policy = naming_policy(context.flow)
    begun = {topic for topic in begun_topics(view) if not is_heartbeats(policy, topic)}
    unknown = [topic for topic in context.topics if topic not in begun]
    if unknown:
        raise RecoveryRefused(
            f"{flow} mirrors no topic {some_of(unknown)}: a topic has its name on {flow.source} "
            "here, and can be failed over once records of it were mirrored"
        )
    fences = context.fences()
    if fences:
        # Their groups went on at the target; to move them again would put them back.
        first = min(fences)
        raise RecoveryRefused(
            f"{some_of(sorted(fences))} of {flow} was failed over before ({fences[first].why}); "
            "leave it out"
        )


async def _reported(
    context: FailoverContext, procedure: Procedure[FailoverChoices], *, was_over: bool
) -> FailoverReport:
    """The flow stands still, so what it left behind can be counted at any later time too."""
    found = await locate_lanes(
        context.flow, context.ledger.target, context.ledger.store, context.wanted
    )
    locations = without_heartbeats(context.flow, found)
    seen = await _source_seen(context, locations)
    groups = procedure.output(GROUPS)
    return FailoverReport(
        order=FailoverOrder(
            flow=context.flow.id,
            mode=procedure.choices.mode,
            topics=procedure.choices.topics,
            cut_ms=procedure.choices.cut_ms,
        ),
        procedure=procedure,
        was_over=was_over,
        losses=find_losses(locations, seen),
        moved=tuple(sorted(await moved_groups(context, procedure))),
        skipped=() if groups is None else groups.skipped,
        moves=tuple(context.findings.moves),
        unplaced=tuple(context.findings.unplaced),
        cut=context.findings.cut,
    )


async def _source_seen(context: FailoverContext, locations: Sequence[LaneLocation]) -> SourceEnds:
    """A source that did not answer a moment ago is not waited for again."""
    if context.findings.source_problem:
        return SourceEnds(at_ms=now_ms(), problem=context.findings.source_problem)
    return await look_at_source(context.config, context.flow, locations, wait_s=_LOOK_S_MAX)
