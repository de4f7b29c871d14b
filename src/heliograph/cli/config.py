"""`heliograph config`: what a file comes to, and from which line. Runs on the driver."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import typer
from rich.text import Text

from heliograph.cli.document import At, Document
from heliograph.cli.options import AsJson, File, OnlyFlow
from heliograph.cli.output import remarks, results
from heliograph.cli.tables import new_table
from heliograph.config.explain import (
    DEFAULT,
    Explanation,
    explain_clusters,
    explain_engine,
    explain_flow,
)
from heliograph.config.load import ExplainedConfig, load_explained
from heliograph.copy.flow import FetchLimits
from heliograph.model import FlowId

CONFIG_HELP: Final = """Show the effective value of every key, and the line it comes from.

Each value is shown with the key that decided it: the key as written, `top level` for one without a
prefix, `default` where the file does not set it. Passwords and keys are masked, and a value from a
config provider is shown as its reference. The command connects to no cluster.

Keys that belong to Kafka Connect are shown only if the file has them, pairs that mirror nothing
only if named with --flow.

Examples:

  heliograph config mm2.properties

  heliograph config heliograph.yaml --flow 'A->B'

  heliograph config mm2.properties --json
"""
_LIMITS: Final = FetchLimits()
_READER_DEFAULTS: Final = {
    "fetch.max.bytes": "found by itself",
    "max.partition.fetch.bytes": "found by itself",
    "fetch.min.bytes": str(_LIMITS.bytes_min),
    "fetch.max.wait.ms": str(_LIMITS.wait_ms_max),
    "metadata.max.age.ms": str(_LIMITS.metadata_ms_max),
}


class _Value(Document):
    key: str = At("name")
    value: str
    source: str = At("source", name="from")
    line: int | None
    acts: bool


class _Explained(Document):
    values: tuple[_Value, ...]
    clients: dict[str, tuple[_Value, ...]]


class ConfigDocument(Document):
    clusters: dict[str, _Explained]
    flows: dict[str, _Explained]
    engine: dict[str, _Explained]
    notes: tuple[str, ...]


def config(
    file: File,
    flow: OnlyFlow = None,
    as_json: AsJson = False,
) -> None:
    explained = load_explained(file)
    for note in explained.config.notes:
        remarks().print(note, soft_wrap=True)
    if flow is not None:
        chosen = [_pair(explained, flow)]
    else:
        chosen = [pair.id for pair in explained.config.pairs if as_json or pair.enabled]
    flows = [each for one in chosen for each in explain_flow(explained, one, _READER_DEFAULTS)]
    clusters = [] if flow is not None else list(explain_clusters(explained))
    engine = [] if flow is not None else list(explain_engine(explained))
    if as_json:
        ConfigDocument.of(
            {
                "clusters": _nested(clusters),
                "flows": _nested(flows),
                "engine": _nested(engine),
                "notes": explained.config.notes,
            }
        ).print()
        return
    for each in (*clusters, *flows, *engine):
        _print(each)
    if flow is None:
        _name_the_others(explained)


def _pair(explained: ExplainedConfig, wanted: str) -> FlowId:
    for pair in explained.config.pairs:
        if str(pair.id) == wanted.replace(" ", ""):
            return pair.id
    known = ", ".join(str(pair.id) for pair in explained.config.pairs)
    raise typer.BadParameter(
        f"--flow: {wanted} is not a pair of clusters of this file; it has {known}"
    )


def _print(each: Explanation) -> None:
    rows = [value for value in each.values if value.acts or value.source != DEFAULT]
    if not rows:
        return
    console = results()
    title = f"{each.about}, {each.part}" if each.part else each.about
    console.print(Text(title, style="bold"))
    table = new_table([("key", "left"), ("value", "left"), ("from", "left"), ("line", "right")])
    for row in rows:
        shown = row.value if row.value or row.source != DEFAULT else "–"
        style = "dim" if row.source == DEFAULT or not row.acts else ""
        name = row.name if row.acts else f"{row.name} (Connect's)"
        line = "" if row.line is None else str(row.line)
        table.add_row(name, shown, row.source, line, style=style)
    console.print(table)
    console.print()


def _name_the_others(explained: ExplainedConfig) -> None:
    for pair in explained.config.pairs:
        if pair.enabled:
            continue
        does = "only heartbeats" if pair.heartbeats.enabled else "nothing"
        results().print(f"{pair.id}: {does}; --flow '{pair.id}' shows it")


def _nested(explanations: Iterable[Explanation]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for each in explanations:
        inner = document.setdefault(each.about, {"values": [], "clients": {}})
        if each.part:
            inner["clients"][each.part] = each.values
        else:
            inner["values"] = each.values
    return document
