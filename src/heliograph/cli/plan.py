"""`heliograph plan`: what a run would do; nothing is changed. Runs on the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from heliograph.cli.output import EXIT_FAILED, print_json, remarks, results
from heliograph.cli.tables import new_table
from heliograph.config.load import load_config
from heliograph.plan.provisioning import Weight
from heliograph.plan.topics import Verdict
from heliograph.services.outlook import FlowOutlook, foresee

PLAN_HELP: Final = """Show what `heliograph run` would do, without doing it.

Which topics would be mirrored and under which names, which would be created or grown, which are
left out and why, and everything that stands in the way.

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
    outlooks = foresee(config)
    if as_json:
        print_json({"flows": [_document(outlook) for outlook in outlooks]})
    else:
        for outlook in outlooks:
            _print(outlook, everything=everything)
    if not outlooks:
        remarks().print("no flow is enabled: set A->B.enabled = true")
    if any(outlook.has_problems for outlook in outlooks):
        raise typer.Exit(EXIT_FAILED)


def _print(outlook: FlowOutlook, *, everything: bool) -> None:
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
    for note in outlook.notes:
        bad = note.weight is Weight.PROBLEM
        line = f"{note.weight.value}: {note.topic}: {note.text}"
        console.print(Text(line, style="red" if bad else ""), soft_wrap=True)
    if outlook.problem:
        console.print(Text(f"problem: {outlook.problem}", style="red"), soft_wrap=True)
    console.print()


def _left_out(outlook: FlowOutlook, *, everything: bool) -> list[tuple[str, str, str]]:
    if outlook.selection is None:
        return []
    return [
        (decision.topic, decision.verdict.value, decision.why)
        for decision in outlook.selection.decisions
        if decision.target is None and (everything or decision.verdict is not Verdict.NOT_MATCHED)
    ]


def _document(outlook: FlowOutlook) -> dict[str, Any]:
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
        "left_out": [
            {"topic": name, "verdict": verdict, "because": why}
            for name, verdict, why in _left_out(outlook, everything=True)
        ],
        "notes": [
            {"topic": note.topic, "weight": note.weight.value, "text": note.text}
            for note in outlook.notes
        ],
    }
