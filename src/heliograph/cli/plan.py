"""`heliograph plan`: what a run would do; nothing is changed. Runs on the driver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import typer
from rich.text import Text as Styled

from heliograph.acl import AclBinding
from heliograph.cli.document import At, Document, OrNull, Text
from heliograph.cli.options import AsJson, File, OnlyFlows
from heliograph.cli.output import EXIT_FAILED, remarks, results
from heliograph.cli.schemas import print_subjects, subject_values
from heliograph.cli.tables import new_table
from heliograph.compat.acl_plan import AclPlan
from heliograph.config.choice import choose
from heliograph.config.load import load_config
from heliograph.inspect.along import Along
from heliograph.inspect.dry_run import FlowPlan, TopicOutlook, plan_flows
from heliograph.model import TopicName
from heliograph.takeover.pending import pending_adoptions
from heliograph.topics.provisioning import PlanNote, Severity
from heliograph.topics.selection import TopicDecision, Verdict
from heliograph.words import counted

_TOPICS_NAMED_MAX: Final = 3

PLAN_HELP: Final = """Show what `heliograph run` would do, without doing it.

Lists the topics that would be mirrored and their names on the target, the topics and partitions
that would be created, Heliograph's own among them, the topics that are not mirrored and why, the
topic configs, ACLs, schemas and quotas that would change on the target, and every problem. A lane
is one source partition and its target partition.

Exits with 1 when there are problems.

Examples:

  heliograph plan mm2.properties

  heliograph plan mm2.properties --all --json
"""


class _Topic(Document):
    source: str
    target: str
    partitions: int
    action: OrNull
    begun: bool
    because: str = At("why")
    unadopted: int


class _OwnTopic(Document):
    what: str = At("topic.what")
    cluster: str = At("topic.cluster")
    name: str = At("topic.name")
    partitions: int = At("topic.partitions")
    replication_factor: int = At("topic.replication_factor")
    replication_factor_key: str = At("topic.factor_key")
    is_there: bool


class _Create(Document):
    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


class _Grow(Document):
    name: str
    before: int = At("partitions_before", name="from")
    after: int = At("partitions", name="to")


class _Config(Document):
    topic: str
    name: str
    before: str | None = At("before", name="from")
    after: str | None = At("after", name="to")


class _Acls(Document):
    unseen: Text | None = At("acls_unseen")
    create: tuple[AclBinding, ...] = At("acls.to_create", ())
    remove: tuple[AclBinding, ...] = At("acls.to_remove", ())


class _LeftOut(Document):
    topic: str
    verdict: Verdict
    because: str = At("why")


class _Subject(Document):
    subject: str
    target_subject: str
    missing: tuple[int, ...]
    level: str | None
    problem: OrNull


class _Quota(Document):
    quota: Text = At("key")
    before: float | None = At("before", name="from")
    after: float | None = At("after", name="to")


class _Along(Document):
    schemas: tuple[_Subject, ...]
    quotas: tuple[_Quota, ...]
    missing_users: tuple[str, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]


class _Note(Document):
    topic: str
    weight: Severity
    text: str


class _Flow(Document):
    flow: Text
    problem: OrNull
    topics: tuple[_Topic, ...]
    create: tuple[_Create, ...]
    grow: tuple[_Grow, ...]
    configs: tuple[_Config, ...]
    acls: _Acls
    left_out: tuple[_LeftOut, ...]
    notes: tuple[_Note, ...]
    own_topics: tuple[_OwnTopic, ...]
    along: _Along


class PlanDocument(Document):
    flows: tuple[_Flow, ...]


def as_document(outlooks: Iterable[FlowPlan]) -> PlanDocument:
    return PlanDocument.of({"flows": [_flow_values(outlook) for outlook in outlooks]})


def _flow_values(outlook: FlowPlan) -> dict[str, object]:
    provisioning = outlook.provisioning
    return {
        "flow": outlook.flow,
        "problem": outlook.problem,
        "topics": outlook.topics,
        "create": () if provisioning is None else provisioning.to_create,
        "grow": () if provisioning is None else provisioning.to_grow,
        "configs": [
            {"topic": each.topic, "name": to.name, "before": to.before, "after": to.value}
            for each in outlook.configs
            for to in each.changes
        ],
        "acls": outlook,
        "left_out": _left_out(outlook, everything=True),
        "notes": outlook.notes,
        "own_topics": outlook.own_topics,
        "along": _along_values(outlook.along),
    }


def _along_values(along: Along) -> dict[str, object]:
    plan, quotas = along.schemas, along.quotas
    return {
        "schemas": [subject_values(each) for each in (plan.to_do if plan is not None else ())],
        "quotas": [
            {"key": key, "before": quotas.before.get(key), "after": value}
            for key, value in quotas.changes.items()
        ]
        if quotas is not None
        else [],
        "missing_users": along.missing_users,
        "notes": along.notes,
        "problems": along.problems,
    }


def plan(
    file: File,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list topics that `topics` does not match.")
    ] = False,
    flow: OnlyFlows = None,
    as_json: AsJson = False,
) -> None:
    config = choose(load_config(file), flows=flow or ())
    for note in config.notes:
        remarks().print(note, soft_wrap=True)
    outlooks = plan_flows(config, pending_adoptions(config))
    if as_json:
        as_document(outlooks).print()
    else:
        for outlook in outlooks:
            _print(outlook, everything=everything)
    if not outlooks:
        remarks().print("no flow is enabled: set A->B.enabled = true")
    if any(outlook.has_problems for outlook in outlooks):
        raise typer.Exit(EXIT_FAILED)


def _print(outlook: FlowPlan, *, everything: bool) -> None:
    console = results()
    lanes = sum(topic.partitions for topic in outlook.topics)
    head = f"{outlook.flow}: {counted(len(outlook.topics), 'topic')}, {counted(lanes, 'lane')}"
    console.print(Styled(head, style="bold"))
    if outlook.topics:
        table = new_table(
            [
                ("topic", "left"),
                ("target topic", "left"),
                ("lanes", "right"),
                ("action", "left"),
                ("reason", "left"),
            ]
        )
        for topic in outlook.topics:
            table.add_row(
                topic.source,
                "same name" if topic.target == topic.source else topic.target,
                str(topic.partitions),
                _action(topic),
                topic.why,
            )
        console.print(table)
    left_out = _left_out(outlook, everything=everything)
    if left_out:
        table = new_table([("not mirrored", "left"), ("verdict", "left"), ("reason", "left")])
        for each in left_out:
            table.add_row(each.topic, each.verdict.value, each.why)
        console.print(table)
    _print_own_topics(outlook)
    _print_configs(outlook)
    _print_acls(outlook)
    _print_along(outlook.along)
    for weight, text, topics in grouped(outlook.notes):
        bad = weight is Severity.PROBLEM
        line = f"{weight.value}: {_listed(topics)}: {text}"
        console.print(Styled(line, style="red" if bad else ""), soft_wrap=True)
    if outlook.problem:
        console.print(Styled(f"problem: {outlook.problem}", style="red"), soft_wrap=True)
    console.print()


def _action(topic: TopicOutlook) -> str:
    if topic.unadopted:
        return "wait for adopt"
    return topic.action or ("continue" if topic.begun else "mirror into existing topic")


def grouped(notes: Iterable[PlanNote]) -> list[tuple[Severity, str, list[TopicName]]]:
    """What is said of many topics is one line; problems keep a line each, they are to be solved."""
    found: dict[tuple[Severity, str, str], list[TopicName]] = {}
    for note in notes:
        own = note.topic if note.weight is Severity.PROBLEM else ""
        found.setdefault((note.weight, note.text, own), []).append(note.topic)
    return [(weight, text, topics) for (weight, text, _), topics in found.items()]


def _listed(topics: Sequence[str]) -> str:
    more = len(topics) - _TOPICS_NAMED_MAX
    return ", ".join(topics[:_TOPICS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _print_own_topics(outlook: FlowPlan) -> None:
    missing = [each.topic for each in outlook.own_topics if not each.is_there]
    if not missing:
        return
    table = new_table(
        [
            ("own topics to create", "left"),
            ("cluster", "left"),
            ("partitions", "right"),
            ("replication factor", "right"),
            ("key of the factor", "left"),
        ]
    )
    for topic in missing:
        counts = (str(topic.partitions), str(topic.replication_factor))
        table.add_row(topic.name, topic.cluster, *counts, topic.factor_key)
    results().print(table)


def _print_configs(outlook: FlowPlan) -> None:
    if not outlook.configs:
        return
    table = new_table(
        [("topic configs to change", "left"), ("name", "left"), ("from", "left"), ("to", "left")]
    )
    for topic in outlook.configs:
        for change in topic.changes:
            after = "the target's default" if change.value is None else change.value
            table.add_row(topic.topic, change.name, change.before or "", after)
    results().print(table)


def _print_acls(outlook: FlowPlan) -> None:
    console = results()
    if outlook.acls_unseen is not None:
        label = "note" if outlook.acls_are_off else "problem"
        line = f"{label}: {outlook.acls_unseen}: ACLs are not synced"
        style = "" if outlook.acls_are_off else "red"
        console.print(Styled(line, style=style), soft_wrap=True)
    changes = _acl_changes(outlook.acls)
    if not changes:
        return
    table = new_table(
        [
            ("ACLs to change", "left"),
            ("pattern", "left"),
            ("action", "left"),
            ("principal", "left"),
            ("host", "left"),
            ("permission", "left"),
        ]
    )
    for action, acl in changes:
        allowed = f"{acl.permission} {acl.operation}"
        table.add_row(acl.name, acl.pattern.lower(), action, acl.principal, acl.host, allowed)
    console.print(table)


def _print_along(along: Along) -> None:
    console = results()
    if along.schemas is not None:
        print_subjects(along.schemas.to_do)
    if along.quotas is not None and along.quotas.changes:
        table = new_table([("client quotas to change", "left"), ("from", "right"), ("to", "right")])
        for key, value in along.quotas.changes.items():
            before = along.quotas.before.get(key)
            after = "removed" if value is None else f"{value:g}"
            table.add_row(str(key), "" if before is None else f"{before:g}", after)
        console.print(table)
    if along.missing_users:
        users = ", ".join(along.missing_users)
        told = f"note: SCRAM users that the target lacks: {users}; brokers do not give passwords"
        console.print(told, soft_wrap=True)
    for note in along.notes:
        console.print(Styled(f"note: {note}"), soft_wrap=True)
    for problem in along.problems:
        console.print(Styled(f"problem: {problem}", style="red"), soft_wrap=True)


def _acl_changes(plan: AclPlan | None) -> list[tuple[str, AclBinding]]:
    if plan is None:
        return []
    created = [("create", acl) for acl in plan.to_create]
    return [*created, *(("remove", acl) for acl in plan.to_remove)]


def _left_out(outlook: FlowPlan, *, everything: bool) -> list[TopicDecision]:
    if outlook.selection is None:
        return []
    return [
        decision
        for decision in outlook.selection.decisions
        if decision.target is None and (everything or decision.verdict is not Verdict.NOT_MATCHED)
    ]
