"""Come back to a cluster after a failover: nothing lost unsaid, nothing deleted unasked. Driver
only.

Where topics keep their names clients have written to both clusters, so their histories part. What
only the old primary has is saved, and the way back begins exactly where they part; the present
primary stays primary until a planned failover of the way back. Where mirrored topics have names of
their own, only the flow writes them: it goes on, and groups go back by its map.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from heliograph.broker.cluster import open_cluster
from heliograph.config.schema import MirrorConfig
from heliograph.errors import ConfigError, RecoveryRefused
from heliograph.failback.context import FailbackContext, FailbackOrder
from heliograph.failback.divergence import (
    DELETING,
    Choice,
    Resolution,
    TopicDivergence,
    undecided,
)
from heliograph.failback.find import find_divergences, is_renaming
from heliograph.failback.lane import ClusterPair
from heliograph.failback.outputs import (
    BEGIN,
    CHECK,
    CLEAR,
    EXPORT,
    FIND,
    GROUPS,
    OPEN,
    FailbackChoices,
)
from heliograph.failback.steps import (
    begin_step,
    check_step,
    clear_step,
    export_step,
    find_step,
    groups_step,
    open_step,
)
from heliograph.ledger.access import read_ledger
from heliograph.ledger.fence import fence_of, topic_fences, unfence_entry
from heliograph.ledger.locations import begun_topics
from heliograph.ledger.trail import DONE, Change, noted_in, on_trail
from heliograph.model import FlowId, TopicName
from heliograph.procedure.journal import Journal, Procedure
from heliograph.procedure.runner import (
    Say,
    Standing,
    Step,
    read_standing,
    resume_or_begin,
    run_steps,
    step,
    unfinished_to_abandon,
)
from heliograph.topics.naming import naming_policy
from heliograph.words import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a failback would do now; nothing was changed to find out."""

    order: FailbackOrder
    is_renaming: bool
    divergences: tuple[TopicDivergence, ...]
    resolutions: Mapping[TopicName, Resolution | None]
    unfinished: Procedure[FailbackChoices] | None
    """An earlier one that would be resumed."""
    finished: Procedure[FailbackChoices] | None
    """An earlier one that is over; there is nothing left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackReport:
    order: FailbackOrder
    procedure: Procedure[FailbackChoices]
    was_over: bool
    """Whether it had been finished before, so that nothing was done now."""
    is_renaming: bool
    divergences: tuple[TopicDivergence, ...]
    resolutions: Mapping[TopicName, Resolution | None]

    @property
    def next_line(self) -> str:
        """What is left to do."""
        flow = self.order.flow
        if self.is_renaming:
            topics = self.procedure.choices.topics
            what = str(flow) if topics is None else f"{', '.join(topics)} of {flow}"
            return (
                f"{what} goes on where `heliograph run` carries it; clients may go to {flow.source}"
            )
        back = FlowId(source=flow.target, target=flow.source)
        return (
            f"{flow.target} stays primary and `heliograph run` carries {back}; to make "
            f"{flow.source} primary again, let it catch up and run "
            f"`heliograph failover FILE --flow '{back}' --planned`"
        )


async def preview(config: MirrorConfig, order: FailbackOrder) -> Preview:
    """Look at everything a failback looks at; raises `MirrorError` where it could not be done."""
    async with _context(config, order, lambda _: None) as context:
        return await _look(context, await _standing(context))


async def _look(context: FailbackContext, standing: Standing[FailbackChoices]) -> Preview:
    unfinished = standing.unfinished
    divergences: tuple[TopicDivergence, ...] = ()
    if standing.finished is None:
        if unfinished is None:
            _require_failed_over(context)
        _require_whole_or_renaming(context)
        _require_way_back(context)
        if unfinished is not None and unfinished.has_done(FIND):
            divergences = await context.divergences(unfinished)
        elif not context.is_renaming:
            divergences = await find_divergences(context.pair)
    return Preview(
        order=context.order,
        is_renaming=context.is_renaming,
        divergences=divergences,
        resolutions=context.resolutions(divergences),
        unfinished=unfinished,
        finished=standing.finished,
    )


async def fail_back(
    config: MirrorConfig,
    order: FailbackOrder,
    say: Say,
    as_shown: Callable[[Preview], None] | None = None,
) -> FailbackReport:
    """Do it, or what is left of it. Raises `MirrorError` where a step cannot be done; what was
    done by then is recorded, and the next call goes on there.

    `as_shown` gets what would be done, before anything is, and may raise `PlanChanged`.
    """
    async with _context(config, order, say) as context:
        standing = await _standing(context)
        if as_shown is not None:
            as_shown(await _look(context, standing))
        if standing.finished is not None:
            return await _reported(context, standing.finished, was_over=True)
        if standing.unfinished is None:
            _require_failed_over(context)
            _require_whole_or_renaming(context)
            _require_way_back(context)
            await _require_choices(context)
        procedure = await resume_or_begin(context.journal, order.flow, order.choices)
        work = run_steps(context.journal, procedure, _steps(context), say)
        procedure = await on_trail(context.pair.ledger.store, _change(order, "failback"), work)
        return await _reported(context, procedure, was_over=False)


async def abandon(config: MirrorConfig, flow: FlowId) -> str:
    """Abandon an unfinished failback; what is left of it, as a sentence."""
    async with _context(config, FailbackOrder(flow=flow), lambda _: None) as context:
        procedure = await unfinished_to_abandon(context.journal, flow, "failback")
        cleared, exported = procedure.output(CLEAR), procedure.output(EXPORT)
        has_cleared = cleared is not None and cleared.topics > 0
        has_begun_to = exported is not None and any(
            treatment in DELETING
            for treatment in _as_chosen(
                context, procedure, await context.divergences(procedure)
            ).values()
        )
        await context.journal.forget()
        order = FailbackOrder(flow=flow, choice=procedure.choices.how)
        change = _change(order, "abandon failback").ended(DONE)
        await noted_in(context.pair.ledger.store, change)
        records = 0 if exported is None else exported.records
        summary = f"abandoned; {counted(records, 'record')} saved by it stay where they are"
        if context.is_renaming:
            return summary
        if has_cleared or has_begun_to:
            return (
                f"{summary}; topics on {flow.source} may have been deleted, so {context.back} "
                "stays fenced until a failback is finished"
            )
        async with context.back_ledger() as ledger:
            await ledger.store.write_or_refuse([unfence_entry()])
        return f"{summary}; {context.back} is as it was"


def _change(order: FailbackOrder, verb: str) -> Change:
    what = "the whole flow" if order.topics is None else f"topics {', '.join(order.topics)}"
    how = "" if order.choice is Choice.NONE else f", {order.choice.value}"
    return Change(who=order.who, verb=verb, what=f"{what}{how}")


@asynccontextmanager
async def _context(
    config: MirrorConfig, order: FailbackOrder, say: Say
) -> AsyncIterator[FailbackContext]:
    flow, settings = config.flow(order.flow), config.source_of(order.flow)
    async with read_ledger(config, order.flow) as ledger:
        source = open_cluster(settings, "consumer")
        try:
            yield FailbackContext(
                order=order,
                pair=ClusterPair(config=config, flow=flow, source=source, ledger=ledger),
                journal=Journal(ledger.store, "failback", FailbackChoices),
                is_renaming=is_renaming(flow, ledger.store.view),
                say=say,
            )
        finally:
            source.close()


def _steps(context: FailbackContext) -> Sequence[Step[FailbackChoices]]:
    check = step(CHECK, partial(check_step, context))
    only_same_names = [
        step(FIND, partial(find_step, context)),
        step(EXPORT, partial(export_step, context)),
        step(CLEAR, partial(clear_step, context)),
        step(BEGIN, partial(begin_step, context)),
    ]
    every = [step(GROUPS, partial(groups_step, context)), step(OPEN, partial(open_step, context))]
    return [check, *(() if context.is_renaming else only_same_names), *every]


async def _standing(context: FailbackContext) -> Standing[FailbackChoices]:
    return await read_standing(context.journal, lambda over: _is_in_force(context, over))


# -- what must be so before anything is done


def _is_in_force(context: FailbackContext, procedure: Procedure[FailbackChoices]) -> bool:
    """Whether the failback that is over came after the failover whose fence is up."""
    fence = fence_of(context.pair.ledger.store.view)
    if procedure.ended_ms is None or fence is None:
        return False
    return fence.at_ms <= procedure.ended_ms


def _require_failed_over(context: FailbackContext) -> None:
    flow, view, asked = context.order.flow, context.pair.ledger.store.view, context.order.topics
    fence, fenced = fence_of(view), topic_fences(view)
    if asked is not None:
        if fence is not None:
            raise RecoveryRefused(
                f"{flow} was failed over as a whole, and comes back as a whole: leave topics out"
            )
        missing = sorted(set(asked) - fenced.keys())
        if missing or not asked:
            raise RecoveryRefused(
                f"{', '.join(missing) or 'no topic'} of {flow} was not failed over alone, so there "
                "is nothing to come back from"
            )
    elif fence is None:
        alone = f"; these topics were, alone: {', '.join(sorted(fenced))}" if fenced else ""
        raise RecoveryRefused(
            f"{flow} was not failed over, so there is nothing to come back from; "
            f"`heliograph failover --flow '{flow}'` is what leaves {flow.source}{alone}"
        )


def _require_whole_or_renaming(context: FailbackContext) -> None:
    """Where both clusters have written a topic, its way back is a flow, and flows run whole."""
    if context.order.topics is None or context.is_renaming:
        return
    flow = context.order.flow
    raise RecoveryRefused(
        f"topics that keep their names come back only with their whole flow, since while {flow} "
        f"carries the others, {context.back} must not run; fail {flow} over as a whole, then "
        "`heliograph failback` brings all topics back"
    )


def _require_way_back(context: FailbackContext) -> None:
    """The flow that carries topics back is in the file, and gives them the same names."""
    if context.is_renaming:
        return
    back, flow = context.back_flow, context.pair.flow
    if not back.enabled:
        raise ConfigError(
            str(back.id),
            (
                f"the way back is not in the file: add `{back.id}.enabled = true` and what else "
                f"{flow.id} has there (topics, replication.policy.class, offsets)",
            ),
        )
    if back.provenance.drop:
        raise ConfigError(
            str(back.id),
            (
                f"provenance.drop leaves out what {flow.id.source} may have lost and only "
                f"{flow.id.target} has; take the key out until {back.id} has caught up",
            ),
        )
    names, renamed = naming_policy(flow), naming_policy(back)
    for topic in sorted(begun_topics(context.pair.ledger.store.view)):
        if names.target_topic(topic) == topic and renamed.target_topic(topic) != topic:
            raise ConfigError(
                str(back.id),
                (
                    f"would call {topic} {renamed.target_topic(topic)}: give it the "
                    f"replication.policy.class of {flow.id}",
                ),
            )


async def _require_choices(context: FailbackContext) -> None:
    """Refuses before the first step what would be refused in the middle."""
    if context.is_renaming:
        return
    divergences = context.looked.divergences = await find_divergences(context.pair)
    order, source = context.order, context.order.flow.source
    open_questions = undecided(divergences, order.choice)
    if open_questions:
        records = sum(each.unmirrored_records for each in open_questions)
        offsets = sum(each.source_records for each in open_questions)
        named = ", ".join(each.topic for each in open_questions[:5])
        raise RecoveryRefused(
            f"{counted(len(open_questions), 'topic')} on {source} diverged from "
            f"{order.flow.target} ({named}): {counted(records, 'record')} there were never "
            "mirrored. They are saved first in any case. Then --resync copies only the difference: "
            "same-offset topics are deleted and copied from the divergence point, the others get "
            f"it appended; --wipe deletes all {counted(offsets, 'offset')} of them and copies "
            "everything. See --dry-run"
        )
    deleting = [t for t, what in context.resolutions(divergences).items() if what in DELETING]
    if deleting and not order.may_delete:
        named = ", ".join(deleting[:5])
        raise RecoveryRefused(
            f"{counted(len(deleting), 'topic')} on {source} would be deleted ({named}): look at "
            "--dry-run, and say --yes"
        )


def _as_chosen(
    context: FailbackContext,
    procedure: Procedure[FailbackChoices],
    divergences: tuple[TopicDivergence, ...],
) -> Mapping[TopicName, Resolution | None]:
    """By what the failback was asked for, not by what is asked for now."""
    order = FailbackOrder(flow=context.order.flow, choice=procedure.choices.how)
    asked = FailbackContext(
        order=order,
        pair=context.pair,
        journal=context.journal,
        is_renaming=context.is_renaming,
        say=context.say,
    )
    return asked.resolutions(divergences)


async def _reported(
    context: FailbackContext, procedure: Procedure[FailbackChoices], *, was_over: bool
) -> FailbackReport:
    divergences = await context.divergences(procedure)
    return FailbackReport(
        order=context.order,
        procedure=procedure,
        was_over=was_over,
        is_renaming=context.is_renaming,
        divergences=divergences,
        resolutions=_as_chosen(context, procedure, divergences),
    )
