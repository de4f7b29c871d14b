"""What a run would do, found out without doing it. Does I/O; runs on the driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from heliograph.broker.admin import ClusterAdmin
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.plan.provisioning import PlanNote, Provisioning, Weight, plan_provisioning
from heliograph.plan.topics import Selection, select_topics, shared_targets
from heliograph.plan.view import ClusterView
from heliograph.services.desk import LedgerDesk
from heliograph.services.observe import (
    Observation,
    held_records,
    observe,
    with_defaults,
    with_settings,
)
from heliograph.services.places import held_topics

_ANSWER_S_MAX: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOutlook:
    source: TopicName
    target: TopicName
    partitions: int
    action: str
    """`create`, `grow from 3`, or nothing."""
    begun: bool
    """Whether the ledger knows of records mirrored before."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowOutlook:
    flow: FlowId
    topics: tuple[TopicOutlook, ...] = ()
    selection: Selection | None = None
    """None where the source could not be looked at."""
    provisioning: Provisioning | None = None
    notes: tuple[PlanNote, ...] = ()
    problem: str = ""
    """Why nothing could be planned."""

    @property
    def has_problems(self) -> bool:
        return bool(self.problem) or any(note.weight is Weight.PROBLEM for note in self.notes)


def foresee(config: MirrorConfig) -> tuple[FlowOutlook, ...]:
    """Look at every cluster and plan every flow; nothing is changed anywhere."""
    admins: dict[tuple[FlowId, ClusterAlias], ClusterAdmin] = {}
    for flow in config.flows:
        for cluster in (config.source_of(flow.id), config.target_of(flow.id)):
            admins[flow.id, cluster.alias] = ClusterAdmin(cluster, timeout_s=_ANSWER_S_MAX)
    by_alias = {alias: admin for (_, alias), admin in admins.items()}
    seen = observe(list(by_alias.values()))
    desk = LedgerDesk(config.clusters)
    try:
        outlooks = [
            _outlook(
                flow, admins[flow.id, flow.id.source], admins[flow.id, flow.id.target], seen, desk
            )
            for flow in config.flows
        ]
    finally:
        desk.close()
    return tuple(_with_shared(outlooks))


def _outlook(
    flow: FlowConfig,
    source_admin: ClusterAdmin,
    target_admin: ClusterAdmin,
    seen: Observation,
    desk: LedgerDesk,
) -> FlowOutlook:
    unseen = seen.unseen.get(flow.id.source) or seen.unseen.get(flow.id.target)
    if unseen is not None:
        return FlowOutlook(flow=flow.id, problem=str(unseen))
    source, target = seen.views[flow.id.source], seen.views[flow.id.target]
    selection = select_topics(flow, source.topics)
    try:
        source = with_settings(source_admin, source, [name for name, _ in selection.mirrored])
        present = [name for _, name in selection.mirrored if name in target.topics]
        target = with_defaults(target_admin, with_settings(target_admin, target, present))
        # Reading a ledger that is not there would wait for it to appear.
        has_ledger = ledger_topic(flow.id.source) in target.topics
        ledger = desk.view(flow.id) if has_ledger else LedgerView()
        begun = held_topics(ledger)
        new = [to for name, to in selection.mirrored if name not in begun and to in target.topics]
        foreign = {
            name: held for name, held in held_records(target_admin, target, new).items() if held
        }
        provisioning = plan_provisioning(flow, selection, source, target, foreign)
    except BrokerError as exc:
        return FlowOutlook(flow=flow.id, selection=selection, problem=str(exc))
    notes = (
        *provisioning.notes,
        *_notes_on_ids(flow, selection, ledger, source, target),
        *(
            _note(TopicName(name), "asked for by name, not on the source")
            for name in selection.absent
        ),
    )
    return FlowOutlook(
        flow=flow.id,
        topics=tuple(_topics(selection, provisioning, source, begun)),
        selection=selection,
        provisioning=provisioning,
        notes=notes,
    )


def _topics(
    selection: Selection,
    provisioning: Provisioning,
    source: ClusterView,
    begun: frozenset[TopicName],
) -> Iterator[TopicOutlook]:
    created = {topic.name for topic in provisioning.to_create}
    grown = {topic.name: topic.partitions_before for topic in provisioning.to_grow}
    for decision in selection.decisions:
        if decision.target is None or decision.topic not in source.topics:
            continue
        action = "create" if decision.target in created else ""
        if decision.target in grown:
            action = f"grow from {grown[decision.target]}"
        yield TopicOutlook(
            source=decision.topic,
            target=decision.target,
            partitions=source.topics[decision.topic].partition_count,
            action=action,
            begun=decision.topic in begun,
            why=decision.why,
        )


def _notes_on_ids(
    flow: FlowConfig,
    selection: Selection,
    ledger: LedgerView,
    source: ClusterView,
    target: ClusterView,
) -> Iterator[PlanNote]:
    """Topics that are not the ones the lanes began with."""
    for name, renamed in selection.mirrored:
        started = [
            record.starts[-1]
            for lane in ledger.lanes
            if lane.topic == name
            and (record := ledger.lane(name, lane.partition)) is not None
            and record.starts
        ]
        read, written = source.topics.get(name), target.topics.get(renamed)
        if read and any(start.source_topic_id not in (None, read.id) for start in started):
            if flow.on_topic_recreated == "restart":
                yield _note(renamed, "the source topic was created again; the copy goes on with it")
            else:
                yield _problem(
                    renamed,
                    "the source topic was created again, and on.topic.recreated is stall",
                )
        if written and any(start.target_topic_id not in (None, written.id) for start in started):
            yield _problem(renamed, "is not the topic this flow began to write")


def _with_shared(outlooks: list[FlowOutlook]) -> Iterator[FlowOutlook]:
    selections = [each.selection for each in outlooks if each.selection is not None]
    shared = shared_targets(selections)
    for each in outlooks:
        extra = tuple(
            _problem(topic, f"written by more than one flow: {', '.join(map(str, flows))}")
            for (alias, topic), flows in shared.items()
            if alias == each.flow.target and each.flow in flows
        )
        yield FlowOutlook(
            flow=each.flow,
            topics=each.topics,
            selection=each.selection,
            provisioning=each.provisioning,
            notes=(*each.notes, *extra),
            problem=each.problem,
        )


def _note(topic: TopicName, text: str) -> PlanNote:
    return PlanNote(topic=topic, weight=Weight.NOTE, text=text)


def _problem(topic: TopicName, text: str) -> PlanNote:
    return PlanNote(topic=topic, weight=Weight.PROBLEM, text=text)
