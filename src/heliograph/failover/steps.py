"""The steps that every failover has: check, fence, groups, switch. Driver only.

Each may be cut off anywhere and begun again. Groups are recorded as they are moved: consumers may
start on the target before the command does, and a group that went on is never put back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, Literal

from heliograph.clock import now_ms
from heliograph.errors import BrokerError, RecoveryRefused
from heliograph.failover.context import FailoverContext
from heliograph.failover.cut import placed_at_cut
from heliograph.failover.outputs import (
    CHECK,
    FENCE,
    GROUPS,
    GROUPS_PARTS,
    CheckOutput,
    FailoverChoices,
    FenceOutput,
    GroupsOutput,
    GroupsPart,
    SwitchOutput,
)
from heliograph.failover.quiesce import (
    raise_fence,
    raise_topic_fences,
    wait_idle,
    wait_no_leader,
)
from heliograph.groups.commit import CommitReport, active_groups, commit_moves
from heliograph.groups.placement import (
    GroupMove,
    GroupPlan,
    Strategy,
    groups_of,
    plan_group_offsets,
)
from heliograph.groups.snapshot import SOURCE_WAIT_S, FlowSnapshot, read_snapshot
from heliograph.procedure.hooks import HookOutcome, hook_event, hooks_told, run_hooks
from heliograph.procedure.journal import Procedure
from heliograph.procedure.runner import Outcome
from heliograph.words import counted

NAMED_MAX: Final = 5
_BEGUN: Final = "begun"
_SILENT_WAIT_S: Final = 0.3
"""For a source that did not answer a moment ago; every second here is one of the outage."""


async def check_step(
    context: FailoverContext, procedure: Procedure[FailoverChoices]
) -> Outcome[CheckOutput]:
    """Nothing is changed here, and what would stop a later step stops this one."""
    flow = context.flow.id
    known, placing = await learn_groups(context)
    if not known.locations:
        raise BrokerError(f"cluster {flow.target}: nothing of {flow} was mirrored yet")
    if context.is_planned and known.source_problem:
        raise RecoveryRefused(
            f"a planned failover needs the source: {known.source_problem}; without --planned it is "
            "not needed"
        )
    _require_none_skips(context, placing)
    active = await active_on_target(context, placing.moves)
    if active and not context.skip_active:
        raise RecoveryRefused(_active_sentence(context, active))
    count = len(groups_of(placing.moves))
    summary = [f"{counted(len(known.locations), 'lane')}, {counted(count, 'group')}"]
    if known.source_problem:
        summary.append(f"the source does not answer ({known.source_problem})")
    elif not context.is_planned:
        summary.append("the source answers: a planned failover would lose nothing")
    summary += known.problems[:NAMED_MAX]
    return Outcome(
        summary="; ".join(summary),
        output=CheckOutput(
            lanes=len(known.locations), groups=count, source_problem=known.source_problem
        ),
    )


async def fence_step(
    context: FailoverContext, procedure: Procedure[FailoverChoices]
) -> Outcome[FenceOutput]:
    """From here on no driver carries the flow, or these topics of it, also none that is started
    later."""
    ledger, flow = context.ledger, context.flow.id

    def tell(text: str) -> None:
        context.tell(FENCE, text)

    if context.topics is None:
        fences = [await raise_fence(ledger, flow, context.mode)]
        why = await wait_no_leader(ledger, flow, tell)
    else:
        raised = await raise_topic_fences(ledger, flow, context.mode, context.topics)
        fences = list(raised.values())
        why = await wait_no_leader(ledger, flow, tell, fences)
    locations = await wait_idle(ledger, context.flow, tell, context.wanted)
    return Outcome(
        summary=f"{why}; {counted(len(locations), 'lane')} stand still",
        output=FenceOutput(at_ms=max(fence.at_ms for fence in fences), lanes=len(locations)),
    )


async def groups_step(
    context: FailoverContext, procedure: Procedure[FailoverChoices]
) -> Outcome[GroupsOutput]:
    """Every group is committed at the exact place, whole or not at all."""
    known, placing = await learn_groups(context)
    if context.is_planned and known.source_problem:
        raise RecoveryRefused(f"where groups stand is not known: {known.source_problem}")
    _require_none_skips(context, placing)
    recorded = await moved_groups(context, procedure)
    parts = await context.journal.parts(procedure, GROUPS_PARTS)
    already = set(recorded)
    if _BEGUN in parts:
        # At a cut a group may stand past its place without having been moved there.
        already |= _went_on(placing.moves) if context.cut_ms is None else set()
    else:
        begun = GroupsPart(at_ms=now_ms())
        await context.journal.record_part(procedure, GROUPS_PARTS, _BEGUN, begun)
    number = len(parts)

    async def done(groups: Sequence[str]) -> None:
        nonlocal number
        number += 1
        part = GroupsPart(groups=tuple(groups))
        await context.journal.record_part(procedure, GROUPS_PARTS, str(number), part)
        context.tell(GROUPS, f"{counted(len(groups), 'group')} moved")

    report = await commit_moves(
        context.groups,
        placing.moves,
        already=already,
        on_done=done,
        skip_active=context.skip_active,
    )
    _require_whole(context, report)
    there_before = [group for group in report.unchanged if group not in recorded]
    if there_before:
        await done(there_before)
    moved = {*report.committed, *report.unchanged}
    context.findings.moves = [move for move in placing.moves if move.group in moved]
    context.findings.unplaced = list(placing.unplaced)
    return Outcome(
        summary=_groups_summary(procedure, known, placing, report),
        output=GroupsOutput(
            groups=len(moved),
            skipped=report.active,
            unplaced=len(placing.unplaced),
            problems=report.problems,
        ),
    )


async def switch_step(
    context: FailoverContext, procedure: Procedure[FailoverChoices]
) -> Outcome[SwitchOutput]:
    """The world outside learns who is primary; only then is the failover over."""
    flow = context.flow
    outcomes = await hooks_of(context, procedure, "after failover")
    failed = [hook for hook in outcomes if hook.is_in_the_way]
    if failed:
        raise RecoveryRefused(
            f"{hooks_told(failed)}; all other steps are done and groups go on at "
            f"{flow.id.target}: run this command again to run the hooks again"
        )
    return Outcome(
        summary=hooks_told(outcomes) or "no hooks are set: point clients to the target",
        output=SwitchOutput(hooks=tuple((hook.name, hook.told) for hook in outcomes)),
    )


async def hooks_of(
    context: FailoverContext,
    procedure: Procedure[FailoverChoices],
    what: Literal["before failover", "after failover"],
) -> tuple[HookOutcome, ...]:
    event = hook_event(
        context.config,
        context.flow.id,
        what,
        primary=context.flow.id.target,
        detail={
            "mode": context.mode,
            "course": procedure.id,
            **({} if context.topics is None else {"topics": list(context.topics)}),
        },
    )
    return await asyncio.to_thread(run_hooks, context.flow.recovery, event)


async def learn_groups(context: FailoverContext) -> tuple[FlowSnapshot, GroupPlan]:
    """Where everything stands at this moment, and where groups go on."""
    was_silent = bool(context.findings.source_problem)
    known = await read_snapshot(
        context.config,
        context.flow.id,
        lambda _: True,
        source_wait_s=_SILENT_WAIT_S if was_silent else SOURCE_WAIT_S,
        ledger=context.ledger,
    )
    context.findings.source_problem = known.source_problem
    known = _only_wanted(context, known)
    if context.cut_ms is None:
        return known, plan_group_offsets(known, Strategy.MAP)
    placing, context.findings.cut = await placed_at_cut(
        context.config, context.flow.id, known, context.cut_ms
    )
    return known, placing


def _only_wanted(context: FailoverContext, known: FlowSnapshot) -> FlowSnapshot:
    """A group is moved on the topics that are failed over, and stays as it is on the others."""
    wanted = context.wanted
    groups = {
        group: {at: stood for at, stood in each.items() if wanted(at.topic)}
        for group, each in known.groups.items()
    }
    return replace(
        known,
        locations={at: one for at, one in known.locations.items() if wanted(at.topic)},
        groups={group: each for group, each in groups.items() if each},
    )


async def moved_groups(context: FailoverContext, procedure: Procedure[FailoverChoices]) -> set[str]:
    """Groups that this failover is known to have moved."""
    parts = await context.journal.parts(procedure, GROUPS_PARTS)
    return {group for part in parts.values() for group in part.groups or ()}


async def active_on_target(context: FailoverContext, moves: Iterable[GroupMove]) -> tuple[str, ...]:
    """Groups to be moved that have members there, or that the target does not tell about."""
    needed = {move.group for move in moves if move.is_needed}
    seen = await asyncio.to_thread(active_groups, context.groups, needed)
    return tuple(sorted({*seen.active, *seen.hidden}))


def some_of(names: Sequence[str]) -> str:
    """The first few by name, the others by number."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")


def _went_on(moves: Iterable[GroupMove]) -> set[str]:
    """Groups at or past their place everywhere: an earlier try moved them and did not live to say.

    Committing them again would put consumers back that have started meanwhile.
    """
    return {
        group
        for group, each in groups_of(moves).items()
        if all(
            m.committed_offset is not None and m.committed_offset >= m.target_offset for m in each
        )
    }


def _require_none_skips(context: FailoverContext, placing: GroupPlan) -> None:
    """A planned failover loses nothing: what a group has yet to read must still be there."""
    skipping = sorted(
        f"{group} ({counted(records, 'record')})"
        for group, each in groups_of(placing.moves).items()
        if (records := sum(move.skipped_records or 0 for move in each))
    )
    # The target's log begins after the last offset known before the group's own.
    skipping += sorted(
        f"{move.group} (perhaps records of {move.target})"
        for move in placing.moves
        if move.clamped == "coarse" and move.skipped_records is None
    )
    if context.is_planned and skipping:
        raise RecoveryRefused(
            f"groups have yet to read records that {context.flow.id.target} no longer has: "
            f"{some_of(skipping)}; let them read on first, or see `heliograph offsets`"
        )


def _require_whole(context: FailoverContext, report: CommitReport) -> None:
    if report.is_refused:
        names = sorted({*report.active, *report.problems})
        raise RecoveryRefused(_active_sentence(context, names))
    if report.problems and not context.skip_active:
        first = [f"{group}: {why}" for group, why in sorted(report.problems.items())]
        raise RecoveryRefused(
            f"some groups were not moved: {some_of(first)}; run this command again"
        )


def _active_sentence(context: FailoverContext, names: Sequence[str]) -> str:
    return (
        f"no group was moved: these have active members on {context.flow.id.target}: "
        f"{some_of(names)}; stop their consumers, or skip them with --skip-active"
    )


def _groups_summary(
    procedure: Procedure[FailoverChoices],
    known: FlowSnapshot,
    placing: GroupPlan,
    report: CommitReport,
) -> str:
    summary = [f"{counted(len(report.committed) + len(report.unchanged), 'group')} moved"]
    repeated = sum(move.repeated_records or 0 for move in placing.moves)
    if repeated:
        summary.append(f"{counted(repeated, 'record')} read again")
    skipped = sum(move.skipped_records or 0 for move in placing.moves)
    if skipped:
        summary.append(f"{counted(skipped, 'record')} never read: the target no longer has them")
    left = sorted({*report.active, *report.problems})
    if left:
        summary.append(f"left as they are: {some_of(left)}")
    if placing.unplaced:
        summary.append(f"{counted(len(placing.unplaced), 'partition')} without an offset")
    checked = procedure.output(CHECK)
    what = "its flow stays" if procedure.choices.topics is None else "these topics stay"
    if checked is not None and checked.source_problem and not known.source_problem:
        summary.append(
            f"the source answers again: {what} fenced, and what is written there from now on is "
            "not mirrored"
        )
    return "; ".join(summary)
