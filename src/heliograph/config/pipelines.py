"""The pipelines of a flow: `A->B.pipeline.NAME.…`, one model each. Runs anywhere; pickles."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field

from heliograph.config.keys import INT_MAX, LONG_MAX, Own
from heliograph.config.mm2.values import BadValue, regexes
from heliograph.config.plugins import UnusableClass, load_function
from heliograph.config.sections import Section

PIPELINE_PREFIX: Final = "pipeline."
PIPELINE_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


def python_function(value: str) -> str:
    """`module:function`; imported, so that what is wrong with it is said before a run begins."""
    try:
        load_function(value)
    except UnusableClass as exc:
        raise BadValue(str(exc)) from exc
    return value


def shared_folder(value: str) -> str:
    """A folder that every driver and executor reaches by the same name."""
    if not value.startswith("/") and "://" not in value:
        raise BadValue("not an absolute path, nor a URI as in `s3://bucket/folder`")
    return value.rstrip("/")


def topic_of_pipeline(name: str) -> str:
    """What a decision names it by, where it names lanes by their topics: no topic has `:`."""
    return f"pipeline:{name}"


class PipelineConfig(Section):
    """One query from the flow's source to its target."""

    name: str
    """Its own; its ledger on the target goes by it."""
    enabled: Annotated[bool, Own("enabled")] = True
    """Whether it runs beside the lanes."""
    topics: Annotated[tuple[str, ...], Own("topics", regexes)] = ()
    """Regexes of source topics to read; one of them must match the whole name."""
    function: Annotated[str | None, Own("function", python_function)] = None
    """Python function, as `module:function`, from the records' DataFrame to that of the rows."""
    sql: Annotated[str | None, Own("sql")] = None
    """Query instead of a function; `records` is what was read."""
    target_topic: Annotated[str | None, Own("target.topic")] = None
    """Topic that all rows go to; unset, each row's column `topic` names it."""
    folder: Annotated[str | None, Own("folder", shared_folder)] = None
    """Folder of Spark's checkpoint, which every driver and executor reaches; never removed."""
    staging: Annotated[str | None, Own("staging", shared_folder)] = None
    """Folder in which rows wait to be appended; unset is `staged` in `folder`."""
    start_at: Annotated[Literal["earliest", "latest"], Own("start.at")] = "earliest"
    """Where a pipeline without a checkpoint begins to read."""
    start_group: Annotated[str | None, Own("start.group")] = None
    """Group on the source at whose commits it begins instead, and at the earliest where none is."""
    trigger_ms: Annotated[int, Own("trigger.ms")] = Field(default=1_000, ge=0, le=INT_MAX)
    """Least time from the start of one batch to that of the next."""
    records_max: Annotated[int, Own("trigger.records.max")] = Field(
        default=1_000_000, ge=1, le=LONG_MAX
    )
    """Most records that a batch reads; PySpark before 4.2 reads all there is."""
    output_mode: Annotated[Literal["append", "update"], Own("output.mode")] = "append"
    """Structured Streaming's; `update` writes an aggregate whenever it changes."""
    compression: Annotated[Literal["none", "gzip", "snappy", "lz4", "zstd"], Own("compression")] = (
        "none"
    )
    """Codec of the batches written."""
    deterministic: Annotated[bool, Own("deterministic")] = False
    """Whether each task makes the same rows in the same order at each try; nothing is staged."""
    on_error: Annotated[Literal["stall", "skip", "dead-letter"], Own("on.error")] = "stall"
    """What becomes of a row that cannot be written."""
    dead_letter_topic: Annotated[str | None, Own("dead.letter.topic")] = None
    """Topic of the target that such rows go to."""

    @property
    def checkpoint_folder(self) -> str:
        return f"{self.folder}/checkpoint"

    @property
    def staging_folder(self) -> str:
        return self.staging or f"{self.folder}/staged"

    @property
    def as_topic(self) -> str:
        return topic_of_pipeline(self.name)
