"""`heliograph schemas`: copy schemas between the registries of a flow, once. Driver only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import typer
from rich.text import Text as Styled

from heliograph.cli.document import Document, OrNull, Text
from heliograph.cli.ledger import chosen_flows
from heliograph.cli.options import AsJson, DryRun, File, OnlyFlow
from heliograph.cli.output import EXIT_FAILED, results
from heliograph.cli.tables import new_table
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.ledger.access import ensure_ledger
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId
from heliograph.schemas.copying import SchemasCopied
from heliograph.schemas.job import copier_of, copy_once
from heliograph.schemas.plan import SchemasPlan, SubjectPlan
from heliograph.words import counted

SCHEMAS_HELP: Final = """Copy schemas from the registry of a flow's source to that of its target.

Subjects, versions, references and compatibility levels, as the `schemas.` keys of the flow say,
once; `heliograph run` does the same every `schemas.interval.seconds` where `schemas.enabled` is
true. A subject that the target would not take whole is left as it is, with the reason, and the
others go on. The ids of both sides are kept in the ledger of the flow. Copying again changes
nothing.

Exits with 1 when a subject cannot be copied.

Examples:

  heliograph schemas mm2.properties --dry-run

  heliograph schemas mm2.properties --flow 'A->B' --json
"""


class _Subject(Document):
    subject: str
    target_subject: str
    missing: tuple[int, ...]
    level: str | None
    problem: OrNull


class _Flow(Document):
    flow: Text
    subjects: tuple[_Subject, ...]
    registered: int
    levels_set: int
    problems: tuple[str, ...]
    ids: dict[str, int]


class SchemasDocument(Document):
    flows: tuple[_Flow, ...]


def schemas(
    file: File, flow: OnlyFlow = None, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    config = load_config(file)
    flows = chosen_flows(config, flow)
    for each in flows:
        for alias in (each.source, each.target):
            if not config.clusters[alias].registry.is_set:
                raise typer.BadParameter(f"{each}: set {alias}.schema.registry.url")
    found = [(each, *_copied(config, each, dry_run=dry_run)) for each in flows]
    if as_json:
        SchemasDocument.of({"flows": [_values(*one) for one in found]}).print()
    else:
        for one in found:
            _print(*one, dry_run=dry_run)
    if any(plan.problems or copied.problems for _, plan, copied in found):
        raise typer.Exit(EXIT_FAILED)


def _copied(
    config: MirrorConfig, flow: FlowId, *, dry_run: bool
) -> tuple[SchemasPlan, SchemasCopied]:
    copier = copier_of(config.flow(flow), config.source_of(flow), config.target_of(flow))
    if dry_run:
        return copier.look(), SchemasCopied()
    asyncio.run(ensure_ledger(config, flow))
    ledgers = LedgerService(config.clusters)
    try:
        return copy_once(copier, ledgers, flow)
    finally:
        ledgers.close()


def _values(flow: FlowId, plan: SchemasPlan, copied: SchemasCopied) -> dict[str, object]:
    return {
        "flow": flow,
        "subjects": [subject_values(each) for each in plan.subjects],
        "registered": len(copied.registered),
        "levels_set": copied.levels,
        "problems": copied.problems or plan.problems,
        "ids": {str(number): to for number, to in sorted(plan.ids.items())},
    }


def subject_values(each: SubjectPlan) -> dict[str, object]:
    return {
        "subject": each.subject,
        "target_subject": each.target_subject,
        "missing": tuple(at.version for at in each.missing),
        "level": each.level,
        "problem": each.problem,
    }


def _print(flow: FlowId, plan: SchemasPlan, copied: SchemasCopied, *, dry_run: bool) -> None:
    console = results()
    head = f"{flow}: {counted(len(plan.subjects), 'subject')}, {len(plan.to_do)} to copy"
    console.print(Styled(head, style="bold"))
    print_subjects(plan.to_do)
    for problem in copied.problems or plan.problems:
        console.print(Styled(f"problem: {problem}", style="red"), soft_wrap=True)
    if not dry_run:
        told = f"{counted(len(copied.registered), 'schema')} registered, "
        told += f"{counted(copied.levels, 'compatibility level')} set"
        console.print(told, soft_wrap=True)


def print_subjects(subjects: Iterable[SubjectPlan]) -> None:
    """What would be done about each; nothing where there is nothing to do."""
    held = [each for each in subjects if each.missing or each.level]
    if not held:
        return
    table = new_table(
        [
            ("schemas to copy", "left"),
            ("target subject", "left"),
            ("versions", "left"),
            ("compatibility", "left"),
        ]
    )
    for each in held:
        table.add_row(
            each.subject,
            "same name" if each.target_subject == each.subject else each.target_subject,
            ", ".join(str(at.version) for at in each.missing),
            each.level or "",
        )
    results().print(table)
