"""`heliograph pipeline`: what a pipeline would write, without writing it. Runs on the driver."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from heliograph.cli.document import Document
from heliograph.cli.options import AsJson, File, OnlyFlow
from heliograph.cli.output import remarks, results
from heliograph.cli.tables import new_table
from heliograph.config.load import load_config
from heliograph.config.schema import FlowConfig, MirrorConfig, PipelineConfig
from heliograph.engine.session import start_session, stop_session
from heliograph.words import counted

PIPELINE_HELP: Final = """Try a pipeline of FILE on a few records, and write nothing.

Starts Spark as `heliograph run` would, reads the first records of the pipeline's topics, has its
function or SQL transform them, and shows the rows: where each would go, its key, value and headers.
What a driver would refuse is refused here: columns that are missing or of another type, topics and
partitions that do not exist. A query with state sees these records alone.

Exits with 1 when the pipeline cannot work as it is.

Examples:

  heliograph pipeline mm2.properties masked

  heliograph pipeline mm2.properties masked --sample 100 --json
"""


class _Row(Document):
    topic: str
    partition: int
    timestamp_ms: int | None
    key: str | None
    value: str | None
    headers: tuple[str, ...]


class SampleDocument(Document):
    flow: str
    pipeline: str
    rows: tuple[_Row, ...]


def pipeline(
    file: File,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A pipeline of the file.")],
    sample: Annotated[
        int, typer.Option("--sample", min=1, max=10_000, help="Most records to read.")
    ] = 20,
    flow: OnlyFlow = None,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    of, chosen = found_pipeline(config, name, flow)
    document = _sampled(config, of, chosen, sample)
    if as_json:
        document.print()
        return
    table = new_table(
        [
            ("topic", "left"),
            ("partition", "right"),
            ("key", "left"),
            ("value", "left"),
            ("headers", "left"),
        ]
    )
    for row in document.rows:
        table.add_row(
            row.topic, str(row.partition), row.key or "", row.value or "", ", ".join(row.headers)
        )
    results().print(table)
    remarks().print(f"{counted(len(document.rows), 'row')}, nothing was written", soft_wrap=True)


def found_pipeline(
    config: MirrorConfig, name: str, flow: str | None
) -> tuple[FlowConfig, PipelineConfig]:
    """Raises `typer.BadParameter` where it is none or one of several."""
    found = [
        (pair, each)
        for pair in config.pairs
        for each in pair.pipelines
        if each.name == name and flow in (None, str(pair.id))
    ]
    if len(found) == 1:
        return found[0]
    if found:
        flows = ", ".join(str(pair.id) for pair, _ in found)
        raise typer.BadParameter(f"several flows have a pipeline {name}; name one: {flows}")
    known = ", ".join(each.name for pair in config.pairs for each in pair.pipelines) or "none"
    raise typer.BadParameter(f"the file has no pipeline {name} ({known})")


def _sampled(
    config: MirrorConfig, flow: FlowConfig, chosen: PipelineConfig, count: int
) -> SampleDocument:
    from heliograph.pipeline.query import order_of
    from heliograph.pipeline.sample import sample

    order = order_of(config, flow, chosen)
    context = start_session(
        config.engine,
        clusters=config.clusters,
        secret_variables=config.secret_variables,
        say=lambda what: remarks().print(what),
        tries=1,
    )
    try:
        rows = sample(context, order, count)
    finally:
        stop_session(context)
    return SampleDocument(
        flow=str(flow.id), pipeline=chosen.name, rows=tuple(_Row.of(row) for row in rows)
    )
