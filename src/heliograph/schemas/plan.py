"""Which subjects and versions a flow copies, in which order. No I/O; runs on the driver."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.config.registry import SchemasConfig
from heliograph.registry.schema import Registered


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectPlan:
    """What is to be done about one subject of the source."""

    subject: str
    target_subject: str
    missing: tuple[Registered, ...] = ()
    """Versions that the target lacks, oldest first."""
    level: str | None = None
    """The compatibility level to set on the target; None where it is right."""
    is_new: bool = False
    """Whether the target has no such subject."""
    is_ours: bool = False
    """Whether the target has nothing under it but copies of the source's versions."""
    problem: str = ""
    """Why nothing of it is copied."""

    @property
    def is_done(self) -> bool:
        return not (self.missing or self.level or self.problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemasPlan:
    subjects: tuple[SubjectPlan, ...] = ()
    """In the order in which they can be registered."""
    ids: Mapping[int, int] = field(default_factory=dict)
    """Of the source, and on the target, of all schemas that both have."""

    @property
    def to_do(self) -> tuple[SubjectPlan, ...]:
        return tuple(each for each in self.subjects if not each.is_done)

    @property
    def problems(self) -> tuple[str, ...]:
        return tuple(f"{each.subject}: {each.problem}" for each in self.subjects if each.problem)


def is_wanted(config: SchemasConfig, subject: str) -> bool:
    if any(re.fullmatch(pattern, subject) for pattern in config.exclude):
        return False
    return any(re.fullmatch(pattern, subject) for pattern in config.include)


def chosen_versions(config: SchemasConfig, versions: Sequence[int]) -> Sequence[int]:
    return versions[-1:] if config.versions == "latest" else versions


def in_order(wanted: Mapping[str, Iterable[Registered]]) -> Iterator[str]:
    """Subjects, each after those that its schemas refer to; within that by name."""
    done: set[str] = set()
    for subject in sorted(wanted):
        yield from _with_references(subject, wanted, done, frozenset())


def _with_references(
    subject: str,
    wanted: Mapping[str, Iterable[Registered]],
    done: set[str],
    above: frozenset[str],
) -> Iterator[str]:
    if subject in done or subject in above:
        return
    for each in wanted.get(subject, ()):
        for reference in each.schema.references:
            yield from _with_references(reference.subject, wanted, done, above | {subject})
    if subject not in done:
        done.add(subject)
        yield subject
