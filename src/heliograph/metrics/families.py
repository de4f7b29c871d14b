"""A metric and its series, before it is written in any format. Values; runs anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric's name and what is true of all its series."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


class Histogram(NamedTuple):
    counts: tuple[int, ...]
    """Of each bucket alone, the one above the last bound included."""
    total: float
    """Sum of what was observed."""


Value = float | Histogram


@dataclass(slots=True)
class Family:
    definition: Definition
    rows: list[tuple[Sequence[str], Value]] = field(default_factory=list)
    """Label values in the definition's order, and the value."""

    def add(self, labels: Sequence[str], value: Value | None) -> None:
        """What is not known is left out: a series that is not there cannot be taken for 0."""
        if value is not None:
            self.rows.append((labels, value))


class Families:
    """Families of definitions that are made as they are needed, in their order."""

    def __init__(self, definitions: Sequence[Definition]) -> None:
        self._made: Final = {each.name: Family(each) for each in definitions}

    def __getitem__(self, name: str) -> Family:
        return self._made[name]

    @property
    def filled(self) -> list[Family]:
        return [family for family in self._made.values() if family.rows]
