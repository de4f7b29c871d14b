"""What an operator may choose for a failover, and what each step records. Driver only; no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field

from heliograph.model import TopicName
from heliograph.procedure.journal import NoOutput, PartKind, StepKind

Mode = Literal["planned", "unplanned"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverChoices:
    mode: Mode
    topics: Annotated[
        tuple[TopicName, ...] | None, Field(exclude_if=lambda topics: topics is None)
    ] = None
    """In order; None for the whole flow, as every failover of earlier versions."""
    cut_ms: Annotated[int | None, Field(exclude_if=lambda cut_ms: cut_ms is None)] = None
    """The moment at which all topics are cut; None where groups go on where they stood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutput:
    lanes: int
    groups: int
    source_problem: str = ""
    """Why the source did not answer; empty where it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopProducersOutput:
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOutput:
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceOutput:
    at_ms: int
    lanes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsOutput:
    groups: int
    skipped: tuple[str, ...] = ()
    """Groups that had members on the target."""
    unplaced: int = 0
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why groups were not moved, by group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsPart:
    """Either when the first group was about to be moved, or which groups have been moved."""

    at_ms: int | None = None
    groups: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchOutput:
    hooks: tuple[tuple[str, str], ...] = ()
    """Name, and what became of it."""


CHECK: Final = StepKind("check", CheckOutput)
STOP_PRODUCERS: Final = StepKind("stop producers", StopProducersOutput)
DRAIN: Final = StepKind("drain", NoOutput)
VERIFY: Final = StepKind("verify", VerifyOutput)
FENCE: Final = StepKind("fence", FenceOutput)
GROUPS: Final = StepKind("groups", GroupsOutput)
SWITCH: Final = StepKind("switch", SwitchOutput)
GROUPS_PARTS: Final[PartKind[GroupsPart]] = PartKind("groups", GroupsPart)
