"""Which schema of the source's registry is which of the target's. Blocks; driver and executors.

Nothing is registered here: a schema that the target lacks has no pair yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from heliograph.config.registry import SAME_SUBJECT, TOPICS_RENAMED
from heliograph.errors import RegistryError
from heliograph.registry.client import Registry
from heliograph.registry.schema import Reference, Registered, Schema

_OF_TOPIC: Final = re.compile(r"((?::\.[^:]*:)?)(.+)(-key|-value)", re.DOTALL)
_DEPTH_MAX: Final = 64
SubjectName = Callable[[str], str]


def subject_names(template: str, target_topic: Callable[[str], str]) -> SubjectName:
    """How subjects of the source are called on the target. A context before the name stays."""
    if template == SAME_SUBJECT:
        return lambda subject: subject
    if template != TOPICS_RENAMED:
        return lambda subject: template.replace("{subject}", subject)

    def renamed(subject: str) -> str:
        found = _OF_TOPIC.fullmatch(subject)
        if found is None:
            return subject
        context, topic, part = found.groups()
        return f"{context}{target_topic(topic)}{part}"

    return renamed


class Pairing:
    """What was found once stays: neither side changes what it has under an id."""

    def __init__(self, source: Registry, target: Registry, target_subject: SubjectName) -> None:
        self.source, self.target, self.target_subject = source, target, target_subject
        self._found: dict[tuple[str, int], Registered] = {}

    def target_of(self, at: Registered, depth: int = 0) -> Registered | None:
        """The same schema under the subject's name on the target; None where it is not there."""
        known = self._found.get((at.subject, at.version))
        if known is not None:
            return known
        wanted = self.as_on_target(at.schema, depth)
        if wanted is None:
            return None
        found = self.target.find(self.target_subject(at.subject), wanted)
        if found is not None:
            self._found[at.subject, at.version] = found
        return found

    def as_on_target(self, schema: Schema, depth: int = 0) -> Schema | None:
        """With references to the target's own subjects and versions; None where one is missing."""
        if depth > _DEPTH_MAX:
            raise RegistryError(self.source.where, "has schemas that refer to each other endlessly")
        references: list[Reference] = []
        for each in schema.references:
            named = self.source.version(each.subject, each.version)
            found = self.target_of(named, depth + 1)
            if found is None:
                return None
            references.append(replace(each, subject=found.subject, version=found.version))
        return replace(schema, references=tuple(references))

    def require(self, schema: Schema) -> Schema:
        """As `as_on_target`, where what it refers to is there by now. Raises `RegistryError`."""
        found = self.as_on_target(schema)
        if found is None:
            raise RegistryError(self.target.where, "lacks a schema that this one refers to")
        return found

    def forget_all_but(self, subjects: frozenset[str]) -> None:
        """Look again for what was found in subjects that the target has no more."""
        self._found = {at: each for at, each in self._found.items() if each.subject in subjects}

    @property
    def ids(self) -> dict[int, int]:
        """Of the source, and on the target, of all that was found."""
        return {self.source.version(*at).id: each.id for at, each in self._found.items()}
