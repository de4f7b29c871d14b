"""`heliograph plan`: what a run would do; nothing is changed. Runs on the driver."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from heliograph.acl import AclBinding
from heliograph.cli.output import EXIT_FAILED, print_json, remarks, results
from heliograph.cli.tables import new_table
from heliograph.compat.acl_plan import AclPlan
from heliograph.config.load import load_config
from heliograph.inspect.dry_run import FlowPlan, plan_flows
from heliograph.topics.provisioning import Severity
from heliograph.topics.selection import Verdict

PLAN_HELP: Final = """Show what `heliograph run` would do, without doing it.

Which topics would be mirrored and under which names, which would be created or grown, which are
left out and why, which settings and ACLs of the target would change, and everything that stands in
the way.

Ends with 1 when there are problems.

Examples:

  heliograph plan mm2.properties

  heliograph plan mm2.properties --all --json
"""


def plan(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="An mm2.properties file, with or without own keys."),
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Name topics too that no pattern matches.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout.")] = False,
) -> None:
    config = load_config(file)
    for note in config.notes:
        remarks().print(note, soft_wrap=True)
    outlooks = plan_flows(config)
    if as_json:
        print_json({"flows": [_document(outlook) for outlook in outlooks]})
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
    head = f"{outlook.flow}: {len(outlook.topics)} topics, {lanes} lanes"
    console.print(Text(head, style="bold"))
    if outlook.topics:
        table = new_table(
            [
                ("topic", "left"),
                ("on the target", "left"),
                ("lanes", "right"),
                ("to do", "left"),
                ("because", "left"),
            ]
        )
        for topic in outlook.topics:
            table.add_row(
                topic.source,
                "same name" if topic.target == topic.source else topic.target,
                str(topic.partitions),
                topic.action or ("goes on" if topic.begun else "mirror into it"),
                topic.why,
            )
        console.print(table)
    left_out = _left_out(outlook, everything=everything)
    if left_out:
        table = new_table([("left out", "left"), ("as", "left"), ("because", "left")])
        for name, verdict, why in left_out:
            table.add_row(name, verdict, why)
        console.print(table)
    _print_configs(outlook)
    _print_acls(outlook)
    for note in outlook.notes:
        bad = note.weight is Severity.PROBLEM
        line = f"{note.weight.value}: {note.topic}: {note.text}"
        console.print(Text(line, style="red" if bad else ""), soft_wrap=True)
    if outlook.problem:
        console.print(Text(f"problem: {outlook.problem}", style="red"), soft_wrap=True)
    console.print()


def _print_configs(outlook: FlowPlan) -> None:
    if not outlook.configs:
        return
    table = new_table(
        [("settings that change", "left"), ("name", "left"), ("from", "left"), ("to", "left")]
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
        line = f"{label}: {outlook.acls_unseen}: ACLs are not followed"
        style = "" if outlook.acls_are_off else "red"
        console.print(Text(line, style=style), soft_wrap=True)
    changes = _acl_changes(outlook.acls)
    if not changes:
        return
    table = new_table(
        [
            ("ACLs that change", "left"),
            ("pattern", "left"),
            ("to do", "left"),
            ("principal", "left"),
            ("host", "left"),
            ("permission", "left"),
        ]
    )
    for action, acl in changes:
        allowed = f"{acl.permission} {acl.operation}"
        table.add_row(acl.name, acl.pattern.lower(), action, acl.principal, acl.host, allowed)
    console.print(table)


def _acl_changes(plan: AclPlan | None) -> list[tuple[str, AclBinding]]:
    if plan is None:
        return []
    created = [("create", acl) for acl in plan.to_create]
    return [*created, *(("remove", acl) for acl in plan.to_remove)]


def _left_out(outlook: FlowPlan, *, everything: bool) -> list[tuple[str, str, str]]:
    if outlook.selection is None:
        return []
    return [
        (decision.topic, decision.verdict.value, decision.why)
        for decision in outlook.selection.decisions
        if decision.target is None and (everything or decision.verdict is not Verdict.NOT_MATCHED)
    ]


def _document(outlook: FlowPlan) -> dict[str, Any]:
    provisioning = outlook.provisioning
    return {
        "flow": str(outlook.flow),
        "problem": outlook.problem or None,
        "topics": [
            {
                "source": topic.source,
                "target": topic.target,
                "partitions": topic.partitions,
                "action": topic.action or None,
                "begun": topic.begun,
                "because": topic.why,
            }
            for topic in outlook.topics
        ],
        "create": []
        if provisioning is None
        else [
            {
                "name": topic.name,
                "partitions": topic.partitions,
                "replication_factor": topic.replication_factor,
                "configs": dict(topic.configs),
            }
            for topic in provisioning.to_create
        ],
        "grow": []
        if provisioning is None
        else [
            {"name": topic.name, "from": topic.partitions_before, "to": topic.partitions}
            for topic in provisioning.to_grow
        ],
        "configs": [
            {
                "topic": topic.topic,
                "name": change.name,
                "from": change.before,
                "to": change.value,
            }
            for topic in outlook.configs
            for change in topic.changes
        ],
        "acls": _acls_document(outlook),
        "left_out": [
            {"topic": name, "verdict": verdict, "because": why}
            for name, verdict, why in _left_out(outlook, everything=True)
        ],
        "notes": [
            {"topic": note.topic, "weight": note.weight.value, "text": note.text}
            for note in outlook.notes
        ],
    }


def _acls_document(outlook: FlowPlan) -> dict[str, Any]:
    plan = outlook.acls
    return {
        "unseen": None if outlook.acls_unseen is None else str(outlook.acls_unseen),
        "create": [] if plan is None else [asdict(acl) for acl in plan.to_create],
        "remove": [] if plan is None else [asdict(acl) for acl in plan.to_remove],
    }
