"""Come back to a cluster after a failover: nothing lost unsaid, nothing deleted unasked. Driver
only.

Where topics keep their names clients have written to both clusters, so their histories part. What
only the old primary has is saved, and the way back begins exactly where they part; the present
primary stays primary until a planned failover of the way back. Where mirrored topics have names of
their own, only the flow writes them: it goes on, and groups go back by its map.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from heliograph.broker.cluster import Cluster
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import MirrorConfig
from heliograph.errors import ConfigError, RecoveryRefused
from heliograph.failback.context import FIND, FailbackOrder, Scene
from heliograph.failback.divergence import DELETING, TopicParting, Treatment, undecided
from heliograph.failback.find import find_partings, is_renaming
from heliograph.failback.lane import Sides
from heliograph.failback.steps import (
    BEGIN,
    CHECK,
    CLEAR,
    EXPORT,
    GROUPS,
    OPEN,
    begin_step,
    check_step,
    clear_step,
    export_step,
    find_step,
    groups_step,
    open_step,
)
from heliograph.failover.steps import counted
from heliograph.ledger.access import read_ledger
from heliograph.ledger.fence import fence_of, lift
from heliograph.ledger.locations import held_topics
from heliograph.model import FlowId, TopicName
from heliograph.procedure.steps import Course, Logbook, Say, Step, follow, taken_up
from heliograph.topics.naming import naming_policy

_ONLY_SAME_NAMES = frozenset({FIND, EXPORT, CLEAR, BEGIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a failback would do now; nothing was changed to find out."""

    order: FailbackOrder
    is_renaming: bool
    partings: tuple[TopicParting, ...]
    treatments: Mapping[TopicName, Treatment | None]
    unfinished: Course | None
    """An earlier one that would be taken up."""
    finished: Course | None
    """An earlier one that is over; there is nothing left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackReport:
    order: FailbackOrder
    course: Course
    was_over: bool
    """Whether it had been finished before, so that nothing was done now."""
    is_renaming: bool
    partings: tuple[TopicParting, ...]
    treatments: Mapping[TopicName, Treatment | None]

    @property
    def next_line(self) -> str:
        """What is left to do."""
        flow = self.order.flow
        if self.is_renaming:
            return (
                f"{flow} goes on where `heliograph run` carries it; clients may go to {flow.source}"
            )
        back = FlowId(source=flow.target, target=flow.source)
        return (
            f"{flow.target} stays primary and `heliograph run` carries {back}; to go home, let it "
            f"catch up and run `heliograph failover FILE --flow '{back}' --planned`"
        )


async def preview(config: MirrorConfig, order: FailbackOrder) -> Preview:
    """Look at everything a failback looks at; raises `MirrorError` where it could not be done."""
    async with _scene(config, order, lambda _: None) as scene:
        course = await scene.logbook.read()
        finished = course if course is not None and _is_finished(scene, course) else None
        unfinished = course if course is not None and not course.is_over else None
        partings: tuple[TopicParting, ...] = ()
        if finished is None:
            if unfinished is None:
                _require_failed_over(scene)
            _require_way_back(scene)
            if unfinished is not None and unfinished.facts(FIND):
                partings = await scene.partings(unfinished)
            elif not scene.is_renaming:
                partings = await find_partings(scene.sides)
        return Preview(
            order=order,
            is_renaming=scene.is_renaming,
            partings=partings,
            treatments=scene.treatments(partings),
            unfinished=unfinished,
            finished=finished,
        )


async def fail_back(config: MirrorConfig, order: FailbackOrder, say: Say) -> FailbackReport:
    """Do it, or what is left of it. Raises `MirrorError` where a step cannot be done; what was
    done by then is recorded, and the next call goes on there."""
    async with _scene(config, order, say) as scene:
        course = await scene.logbook.read()
        if course is not None and _is_finished(scene, course):
            return await _reported(scene, course, was_over=True)
        if course is None or course.is_over:
            _require_failed_over(scene)
            _require_way_back(scene)
            await _require_choices(scene)
        else:
            _require_nobody_else(course)
        course = await taken_up(scene.logbook, order.choices)
        course = await follow(scene.logbook, course, _steps(scene), say)
        return await _reported(scene, course, was_over=False)


async def abandon(config: MirrorConfig, flow: FlowId) -> str:
    """Give an unfinished failback up; what is left of it, as a sentence."""
    async with _scene(config, FailbackOrder(flow=flow), lambda _: None) as scene:
        course = await scene.logbook.read()
        if course is None or course.is_over:
            raise RecoveryRefused(f"{flow} has no unfinished failback to give up")
        has_cleared = any(step.name == CLEAR and step.facts.get("topics") for step in course.done)
        has_begun_to = any(step.name == EXPORT for step in course.done) and any(
            treatment in DELETING
            for treatment in _as_chosen(scene, course, await scene.partings(course)).values()
        )
        await scene.logbook.forget()
        exported = int(course.facts(EXPORT).get("records", 0))
        told = f"given up; {counted(exported, 'record')} saved by it stay where they are"
        if scene.is_renaming:
            return told
        if has_cleared or has_begun_to:
            return (
                f"{told}; topics on {flow.source} may have been deleted, so {scene.back} stays "
                "fenced until a failback is finished"
            )
        async with scene.back_ledger() as hand:
            await hand.store.write_or_refuse([lift()])
        return f"{told}; {scene.back} is as it was"


@asynccontextmanager
async def _scene(config: MirrorConfig, order: FailbackOrder, say: Say) -> AsyncIterator[Scene]:
    flow, settings = config.flow(order.flow), config.source_of(order.flow)
    async with read_ledger(config, order.flow) as hand:
        source = Cluster(
            settings.alias,
            settings.bootstrap_servers,
            aiokafka_settings(settings, "consumer"),
            needs="READ",
        )
        try:
            yield Scene(
                order=order,
                sides=Sides(config=config, flow=flow, source=source, hand=hand),
                logbook=Logbook(hand.store, "failback"),
                is_renaming=is_renaming(flow, hand.store.view),
                say=say,
            )
        finally:
            source.close()


def _steps(scene: Scene) -> Sequence[Step]:
    steps = {
        CHECK: check_step,
        FIND: find_step,
        EXPORT: export_step,
        CLEAR: clear_step,
        BEGIN: begin_step,
        GROUPS: groups_step,
        OPEN: open_step,
    }
    return [
        Step(name=name, run=lambda course, run=run: run(scene, course))  # type: ignore[misc]
        for name, run in steps.items()
        if not (scene.is_renaming and name in _ONLY_SAME_NAMES)
    ]


# -- what must be so before anything is done


def _is_finished(scene: Scene, course: Course) -> bool:
    """Whether the failback that is over came after the failover whose fence is up."""
    fence = fence_of(scene.sides.hand.store.view)
    if not course.is_over or course.ended_ms is None or fence is None:
        return False
    return fence.at_ms <= course.ended_ms


def _require_failed_over(scene: Scene) -> None:
    flow = scene.order.flow
    if fence_of(scene.sides.hand.store.view) is None:
        raise RecoveryRefused(
            f"{flow} was not failed over, so there is nothing to come back from; "
            f"`heliograph failover --flow '{flow}'` is what leaves {flow.source}"
        )


def _require_way_back(scene: Scene) -> None:
    """The flow that carries topics back is in the file, and gives them the same names."""
    if scene.is_renaming:
        return
    back, flow = scene.back_flow, scene.sides.flow
    if not back.enabled:
        raise ConfigError(
            str(back.id),
            (
                f"the way back is not in the file: add `{back.id}.enabled = true` and what else "
                f"{flow.id} has there (topics, replication.policy.class, offsets)",
            ),
        )
    names, renamed = naming_policy(flow), naming_policy(back)
    for topic in sorted(held_topics(scene.sides.hand.store.view)):
        if names.target_topic(topic) == topic and renamed.target_topic(topic) != topic:
            raise ConfigError(
                str(back.id),
                (
                    f"would call {topic} {renamed.target_topic(topic)}: give it the "
                    f"replication.policy.class of {flow.id}",
                ),
            )


async def _require_choices(scene: Scene) -> None:
    """Refuses before the first step what would be refused in the middle."""
    if scene.is_renaming:
        return
    partings = scene.looked.partings = await find_partings(scene.sides)
    order, source = scene.order, scene.order.flow.source
    open_questions = undecided(partings, order.choice)
    if open_questions:
        records = sum(each.unmirrored_records for each in open_questions)
        offsets = sum(each.source_records for each in open_questions)
        named = ", ".join(each.topic for each in open_questions[:5])
        raise RecoveryRefused(
            f"{counted(len(open_questions), 'topic')} on {source} parted from "
            f"{order.flow.target} ({named}): {counted(records, 'record')} there never mirrored. "
            "They are saved first in any case. Then --resync copies only the difference: "
            "same-offset topics are deleted and copied from the parting, the others get it "
            f"appended; --wipe deletes all {counted(offsets, 'offset')} of them and copies "
            "everything. See --dry-run"
        )
    deleting = [t for t, what in scene.treatments(partings).items() if what in DELETING]
    if deleting and not order.may_delete:
        named = ", ".join(deleting[:5])
        raise RecoveryRefused(
            f"{counted(len(deleting), 'topic')} on {source} would be deleted ({named}): look at "
            "--dry-run, and say --yes"
        )


def _require_nobody_else(course: Course) -> None:
    if course.host != socket.gethostname() or course.pid == os.getpid():
        return
    try:
        os.kill(course.pid, 0)
    except (ProcessLookupError, PermissionError):
        return
    raise RecoveryRefused(
        f"pid {course.pid} on this host is at it; wait for it, or end it and do this again"
    )


def _as_chosen(
    scene: Scene, course: Course, partings: tuple[TopicParting, ...]
) -> Mapping[TopicName, Treatment | None]:
    """By what the course was asked for, not by what is asked for now."""
    how = course.choices.get("how", scene.order.choice.value)
    order = FailbackOrder(flow=scene.order.flow, choice=type(scene.order.choice)(how))
    asked = Scene(
        order=order,
        sides=scene.sides,
        logbook=scene.logbook,
        is_renaming=scene.is_renaming,
        say=scene.say,
    )
    return asked.treatments(partings)


async def _reported(scene: Scene, course: Course, *, was_over: bool) -> FailbackReport:
    partings = await scene.partings(course)
    return FailbackReport(
        order=scene.order,
        course=course,
        was_over=was_over,
        is_renaming=scene.is_renaming,
        partings=partings,
        treatments=_as_chosen(scene, course, partings),
    )
