"""What an operator may choose for a failback, and what each step records. Driver only; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field

from heliograph.failback.divergence import Choice, DivergencePart
from heliograph.model import TopicName
from heliograph.procedure.journal import NoOutput, PartKind, StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FailbackChoices:
    how: Choice
    export_topic: Annotated[str, Field(alias="export topic")]
    export_directory: Annotated[str, Field(alias="export directory")]
    topics: Annotated[
        tuple[TopicName, ...] | None, Field(exclude_if=lambda topics: topics is None)
    ] = None
    """In order; None for the whole flow, as every failback of earlier versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindOutput:
    export_from: int = 0
    """Where the export topic ended: what this failback saves comes behind."""
    seeder: tuple[int, int] | None = None
    """Producer id and epoch that filler is written with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOutput:
    records: int
    topic: str | None = None
    directory: str | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearOutput:
    topics: int
    offsets: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginOutput:
    lanes: int
    identical: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsOutput:
    moved: tuple[str, ...] = ()
    active: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why groups were not moved, by group."""
    exact: int = 0
    nearest: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOutput:
    opened: str
    """The flow that may run."""


CHECK: Final = StepKind("check", NoOutput)
FIND: Final = StepKind("find", FindOutput)
EXPORT: Final = StepKind("export", ExportOutput)
CLEAR: Final = StepKind("clear", ClearOutput)
BEGIN: Final = StepKind("begin", BeginOutput)
GROUPS: Final = StepKind("groups", GroupsOutput)
OPEN: Final = StepKind("open", OpenOutput)
FIND_PARTS: Final[PartKind[DivergencePart]] = PartKind("find", DivergencePart, writes_null=True)
"""One for each topic, under its name."""
