"""What a run would do, found out without doing it. Does I/O; runs on the driver."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from heliograph.broker.acls import AclAdmin
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.racks import words_on_rack
from heliograph.broker.topic_changes import TopicConfigChanges
from heliograph.broker.view import ClusterView
from heliograph.clock import now_ms
from heliograph.compat.acl_plan import AclPlan, plan_acls
from heliograph.compat.own_topics import OwnTopic, own_topics
from heliograph.compat.topic_config_plan import plan_topic_configs
from heliograph.config.loops import loop_findings
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.decisions.file import orders_for
from heliograph.decisions.orders import FlowOrders
from heliograph.decisions.record import decisions_of
from heliograph.decisions.words import decision_words
from heliograph.errors import AuthorizerOff, BrokerError, NotAuthorised
from heliograph.inspect.along import NOTHING_ALONG, Along, look_along
from heliograph.inspect.brought import words_on_brought
from heliograph.inspect.origins import words_on_origins
from heliograph.inspect.waiting import Adoption
from heliograph.ledger.entries import StartEntry, ledger_topic
from heliograph.ledger.fence import topic_fences
from heliograph.ledger.fenced_topics import unless_fenced
from heliograph.ledger.locate import is_other_topic
from heliograph.ledger.locations import begun_topics
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId, LoopPrevention, Offsets, TopicName
from heliograph.topics.observe import (
    Observation,
    held_records,
    observe,
    with_defaults,
    with_settings,
)
from heliograph.topics.provisioning import (
    PlanNote,
    Provisioning,
    Severity,
    factor_too_high,
    plan_provisioning,
)
from heliograph.topics.selection import (
    HEARTBEATS,
    Selection,
    select_between,
    select_topics,
    shared_targets,
    words_on_twins,
)
from heliograph.transform.lane import transforms_for
from heliograph.transform.record import Where
from heliograph.words import counted

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
    unadopted: int = 0
    """Partitions that wait for `heliograph adopt`."""
    adopted: bool = False
    """Whether the flow went on where MirrorMaker 2 had come."""

    @property
    def keeps_name(self) -> bool:
        return self.source == self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTopicOutlook:
    """A topic that Heliograph has, or makes, for itself."""

    topic: OwnTopic
    is_there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowPlan:
    flow: FlowId
    topics: tuple[TopicOutlook, ...] = ()
    selection: Selection | None = None
    """None where the source could not be looked at."""
    provisioning: Provisioning | None = None
    configs: tuple[TopicConfigChanges, ...] = ()
    """Settings of topics that are there already and would change."""
    acls: AclPlan | None = None
    """None where ACLs are not followed, or could not be compared."""
    acls_unseen: BrokerError | None = None
    """Why ACLs could not be compared; None where they were, or are not followed."""
    notes: tuple[PlanNote, ...] = ()
    own_topics: tuple[OwnTopicOutlook, ...] = ()
    along: Along = NOTHING_ALONG
    """Schemas, quotas and users."""
    problem: str = ""
    """Why nothing could be planned."""

    @property
    def has_problems(self) -> bool:
        # No authorizer means no ACLs, so nothing is missing.
        are_acls_missing = self.acls_unseen is not None and not self.acls_are_off
        is_bad = any(note.weight is Severity.PROBLEM for note in self.notes)
        return bool(self.problem) or are_acls_missing or is_bad or bool(self.along.problems)

    @property
    def acls_are_off(self) -> bool:
        return isinstance(self.acls_unseen, AuthorizerOff)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """The clients of one end of a flow."""

    cluster: ClusterConfig
    admin: ClusterAdmin
    acls: AclAdmin


def plan_flows(
    config: MirrorConfig, adoptions: Mapping[FlowId, Adoption] | None = None
) -> tuple[FlowPlan, ...]:
    """Look at every cluster and plan every flow; nothing is changed anywhere.

    `adoptions` say what of each flow waits for `heliograph adopt`.
    """
    made: list[_Side] = []
    sides = {
        flow.id: (_side(config.source_of(flow.id), made), _side(config.target_of(flow.id), made))
        for flow in config.flows
    }
    by_alias = {side.cluster.alias: side.admin for side in made}
    seen = asyncio.run(observe(list(by_alias.values())))
    ledgers = LedgerService(config.clusters)
    try:
        outlooks = [
            _outlook(flow, *sides[flow.id], seen, ledgers, (adoptions or {}).get(flow.id))
            for flow in config.flows
        ]
        outlooks = [_with_own_topics(each, config, seen) for each in outlooks]
    finally:
        ledgers.close()
    planned = [*_with_loops(_with_shared(outlooks, config), config)]
    planned = [*_with_brought(planned, config)]
    planned = [_with_origins(each, config) for each in planned]
    if planned and (twins := words_on_twins(seen.views.values())):
        told = tuple(_note(TopicName("clusters"), text) for text in twins)
        planned[0] = replace(planned[0], notes=(*planned[0].notes, *told))
    return tuple(planned)


def _side(cluster: ClusterConfig, made: list[_Side]) -> _Side:
    """Flows share the clients of a cluster unless they are configured differently."""
    found = next((side for side in made if side.cluster == cluster), None)
    if found is None:
        found = _Side(
            cluster=cluster,
            admin=ClusterAdmin(cluster, timeout_s=_ANSWER_S_MAX),
            acls=AclAdmin(cluster, timeout_s=_ANSWER_S_MAX),
        )
        made.append(found)
    return found


def _outlook(
    flow: FlowConfig,
    reads: _Side,
    writes: _Side,
    seen: Observation,
    ledgers: LedgerService,
    adoption: Adoption | None,
) -> FlowPlan:
    unseen = seen.unseen.get(flow.id.source) or seen.unseen.get(flow.id.target)
    if unseen is not None:
        return FlowPlan(flow=flow.id, problem=str(unseen))
    source, target = seen.views[flow.id.source], seen.views[flow.id.target]
    # Reading a ledger that is not there would wait for it to appear.
    has_ledger = ledger_topic(flow.id.source) in target.topics
    try:
        ledger = ledgers.view(flow.id) if has_ledger else LedgerView()
    except BrokerError as exc:
        return FlowPlan(flow=flow.id, problem=str(exc))
    orders = orders_for(flow, decisions_of(ledger), now_ms())
    fences = topic_fences(ledger)
    choice = unless_fenced(fences, orders.choice)
    selection = select_between(flow, source, target, choice)
    try:
        source = with_settings(reads.admin, source, [name for name, _ in selection.mirrored])
        present = [name for _, name in selection.mirrored if name in target.topics]
        target = with_defaults(writes.admin, with_settings(writes.admin, target, present))
        begun = begun_topics(ledger)
        unadopted = Counter(
            at.topic for at in (adoption.partitions(target.topics, ledger) if adoption else ())
        )
        known = begun | unadopted.keys()
        new = [name for source_name, name in selection.mirrored if source_name not in known]
        foreign = {
            name: held for name, held in held_records(writes.admin, target, new).items() if held
        }
        provisioning = plan_provisioning(flow, selection, source, target, foreign)
        acls = _acls(flow, selection, reads, writes, ledger) if flow.acls.enabled else None
        rack = words_on_rack(flow, reads.cluster)
    except BrokerError as exc:
        return FlowPlan(flow=flow.id, selection=selection, problem=str(exc))
    configs = plan_topic_configs(flow, selection, source, target)
    follows_configs = flow.topic_configs.enabled
    notes = (
        *provisioning.notes,
        *(configs.notes if follows_configs else ()),
        *(acls.notes if isinstance(acls, AclPlan) else ()),
        *_notes_on_ids(flow, selection, ledger, source, target),
        *_notes_on_gone(flow, begun - fences.keys(), source),
        *_notes_on_unadopted(selection, unadopted),
        *_notes_on_unmatched(selection),
        *_notes_on_decisions(orders),
        *_notes_on_transforms(flow, selection),
        *_notes_on_provenance(flow, (reads.cluster, source), (writes.cluster, target)),
        *(_note(topic, f"not mirrored: {each.why}") for topic, each in sorted(fences.items())),
        *([_note(TopicName("client.rack"), rack)] if rack else ()),
    )
    return FlowPlan(
        flow=flow.id,
        topics=tuple(_topics(selection, provisioning, source, ledger, unadopted)),
        selection=selection,
        provisioning=provisioning,
        configs=configs.topics if follows_configs else (),
        acls=acls if isinstance(acls, AclPlan) else None,
        acls_unseen=acls if isinstance(acls, BrokerError) else None,
        notes=notes,
        along=look_along(flow, reads.cluster, writes.cluster, ledger),
    )


def _acls(
    flow: FlowConfig, selection: Selection, reads: _Side, writes: _Side, ledger: LedgerView
) -> AclPlan | BrokerError:
    try:
        source_acls, target_acls = reads.acls.topic_acls(), writes.acls.topic_acls()
    except (AuthorizerOff, NotAuthorised) as exc:
        return exc
    fenced = topic_fences(ledger)
    return plan_acls(flow, selection, source_acls, target_acls, ledger.acls, fenced)


def _topics(
    selection: Selection,
    provisioning: Provisioning,
    source: ClusterView,
    ledger: LedgerView,
    unadopted: Counter[TopicName],
) -> Iterator[TopicOutlook]:
    begun = begun_topics(ledger)
    adopted = {at.topic for at, lane in ledger.begun().items() if lane.starts[0].adopted}
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
            unadopted=unadopted[decision.topic],
            adopted=decision.topic in adopted,
        )


def _with_own_topics(outlook: FlowPlan, config: MirrorConfig, seen: Observation) -> FlowPlan:
    """With what Heliograph makes for itself; that a pair which mirrors nothing writes heartbeats
    is told with the flow of the other direction."""
    flow = outlook.flow
    back = FlowId(source=flow.target, target=flow.source)
    pairs = [p for p in config.chosen_pairs if p.id == flow or (p.id == back and not p.enabled)]
    found: list[OwnTopicOutlook] = []
    notes: list[PlanNote] = []
    for topic in (topic for pair in pairs for topic in own_topics(pair)):
        cluster = seen.views.get(topic.cluster)
        if cluster is None:
            continue
        is_there = topic.name in cluster.topics
        found.append(OwnTopicOutlook(topic=topic, is_there=is_there))
        if not is_there and 0 < cluster.broker_count < topic.replication_factor:
            text = factor_too_high(topic.factor_key, topic.replication_factor, cluster)
            notes.append(_problem(topic.name, text))
    return replace(outlook, own_topics=tuple(found), notes=(*outlook.notes, *notes))


def _notes_on_unadopted(selection: Selection, unadopted: Counter[TopicName]) -> Iterator[PlanNote]:
    """As the driver refuses them."""
    for name, renamed in selection.mirrored:
        if unadopted[name]:
            partitions = counted(unadopted[name], "partition")
            yield _problem(
                renamed,
                f"mirrored by MirrorMaker 2: {partitions} to be taken over by `heliograph adopt` "
                "(on.unadopted = append copies them again from the start)",
            )


def _notes_on_unmatched(selection: Selection) -> Iterator[PlanNote]:
    for name in selection.absent:
        yield _note(TopicName(name), "named in `topics`, but not on the source")
    for pattern in selection.unmatched:
        yield _note(TopicName(pattern), "a pattern of `topics` that matches no topic of the source")
    wanted = [decision for decision in selection.decisions if decision.target is not None]
    if all(decision.why == HEARTBEATS for decision in wanted):
        yield _problem(TopicName("topics"), "no topic of the source is mirrored")


def _notes_on_decisions(orders: FlowOrders) -> Iterator[PlanNote]:
    for each in orders.standing:
        yield _note(TopicName(str(each.scope)), decision_words(each))


def _notes_on_transforms(flow: FlowConfig, selection: Selection) -> Iterator[PlanNote]:
    for topic, name in selection.mirrored:
        steps = transforms_for(flow.transforms, Where(topic, name, 0))
        if steps:
            told = f"records go through {', '.join(str(step) for step, _ in steps)}"
            if flow.offsets is Offsets.PRESERVE:
                told += "; offsets are the source's only up to the first record that is dropped"
            yield _note(name, told)


def _notes_on_provenance(
    flow: FlowConfig, *sides: tuple[ClusterConfig, ClusterView]
) -> Iterator[PlanNote]:
    """A wrong id leaves nothing out, and nobody would see it."""
    if not flow.provenance.drop and flow.provenance.write is None:
        return
    for cluster, view in sides:
        told = cluster.provenance.id
        if told is not None and view.cluster_id is not None and told != view.cluster_id:
            yield _note(
                TopicName(f"{cluster.alias}.provenance.id"),
                f"is {told}, and the cluster calls itself {view.cluster_id}; only headers that "
                "hold the former are heeded",
            )


def _notes_on_ids(
    flow: FlowConfig,
    selection: Selection,
    ledger: LedgerView,
    source: ClusterView,
    target: ClusterView,
) -> Iterator[PlanNote]:
    """Topics that are not the ones the lanes began with."""
    started: dict[TopicName, list[StartEntry]] = {}
    for lane, record in ledger.begun().items():
        started.setdefault(lane.topic, []).append(record.starts[-1])
    for name, renamed in selection.mirrored:
        starts = started.get(name, ())
        read, written = source.topics.get(name), target.topics.get(renamed)
        if read and any(is_other_topic(start.source_topic_id, read.id) for start in starts):
            if flow.on_topic_recreated == "restart":
                yield _note(
                    renamed, "the source topic was recreated; the new topic is appended to the copy"
                )
            else:
                yield _problem(
                    renamed,
                    "the source topic was recreated, and on.topic.recreated is stall",
                )
        if written and any(is_other_topic(start.target_topic_id, written.id) for start in starts):
            yield _problem(renamed, "was recreated on the target since this flow began to write it")


def _notes_on_gone(
    flow: FlowConfig, begun: frozenset[TopicName], source: ClusterView
) -> Iterator[PlanNote]:
    """Topics that were mirrored and that the source does not show any more."""
    gone = [name for name in sorted(begun) if name not in source.topics]
    for name, renamed in select_topics(flow, gone).mirrored:
        if flow.on_topic_deleted == "delete":
            text = f"{name} is no longer on the source; the copy will be deleted"
        else:
            text = f"{name} is no longer on the source; the copy is kept"
        yield _note(renamed, text)


def _with_shared(outlooks: list[FlowPlan], config: MirrorConfig) -> Iterator[FlowPlan]:
    selections = [each.selection for each in outlooks if each.selection is not None]
    shared = shared_targets(selections)
    for each in outlooks:
        extra = tuple(
            _on_shared(topic, flows, config)
            for (alias, topic), flows in shared.items()
            if alias == each.flow.target and each.flow in flows
        )
        yield replace(each, notes=(*each.notes, *extra))


def _on_shared(topic: TopicName, flows: tuple[FlowId, ...], config: MirrorConfig) -> PlanNote:
    text = f"written by more than one flow: {', '.join(map(str, flows))}"
    by_origin = all(
        config.loop_prevention_of(flow) is not LoopPrevention.NONE
        and config.flow(flow).policy.keeps_names
        for flow in flows
    )
    # Meant: several clusters take writes under one name.
    return _note(topic, text) if by_origin else _problem(topic, text)


def _with_loops(outlooks: Iterable[FlowPlan], config: MirrorConfig) -> Iterator[FlowPlan]:
    """What goes round, and what arrives twice, of the topics that are mirrored in fact."""
    planned = {each.flow: each for each in outlooks}
    for found in loop_findings(config):
        mirrored = [
            {name for name, renamed in plan.selection.mirrored if name == renamed}
            for flow in found.flows
            if (plan := planned.get(flow)) is not None and plan.selection is not None
        ]
        topics = set.intersection(*mirrored) if len(mirrored) == len(found.flows) else set()
        if not topics:
            continue
        note = (_problem if found.is_endless else _note)(_named_topics(topics), found.text)
        last = planned[found.flows[-1]]
        planned[last.flow] = replace(last, notes=(*last.notes, note))
    yield from planned.values()


def _with_brought(outlooks: Collection[FlowPlan], config: MirrorConfig) -> Iterator[FlowPlan]:
    kept = {each.flow: [row for row in each.topics if row.keeps_name] for each in outlooks}
    brought = {
        flow: [row.source for row in rows if row.adopted or row.unadopted]
        for flow, rows in kept.items()
    }
    for each in outlooks:
        fresh = [row.source for row in kept[each.flow] if not (row.begun or row.unadopted)]
        told = tuple(
            _problem(_named_topics(topics), text)
            for topics, text in words_on_brought(config, each.flow, fresh, brought)
        )
        yield replace(each, notes=(*each.notes, *told))


def _with_origins(outlook: FlowPlan, config: MirrorConfig) -> FlowPlan:
    if outlook.problem:
        return outlook
    text = asyncio.run(words_on_origins(config, outlook.flow))
    told = (_problem(TopicName("loop.prevention"), text),) if text else ()
    return replace(outlook, notes=(*outlook.notes, *told))


def _named_topics(topics: Collection[TopicName]) -> TopicName:
    named = sorted(topics)
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return TopicName(", ".join(named[:3]) + more)


def _note(topic: TopicName, text: str) -> PlanNote:
    return PlanNote(topic=topic, weight=Severity.NOTE, text=text)


def _problem(topic: TopicName, text: str) -> PlanNote:
    return PlanNote(topic=topic, weight=Severity.PROBLEM, text=text)
