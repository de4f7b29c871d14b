"""What a check found: how bad, what, why it matters, how to fix it. Values; runs anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_LISTED_MAX: Final = 3


class Severity(StrEnum):
    """The worst first."""

    PROBLEM = "problem"
    """Something does not work, or will not on the day it is needed."""
    WARN = "warn"
    """It works, and less well or less safely than it should."""
    UNKNOWN = "unknown"
    """It could not be found out; the finding says why."""
    NOTE = "note"
    """Worth knowing."""
    OK = "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: str
    """The subject, one of `judging.CHECKS`."""
    about: str
    """A cluster, a flow, a machine."""
    severity: Severity
    what: str
    why: str = ""
    """Why it matters."""
    fix: str = ""


def rank(severity: Severity) -> int:
    return list(Severity).index(severity)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity, otherwise in the order in which they came."""
    return sorted(findings, key=lambda finding: rank(finding.severity))


def ms_words(seconds: float) -> str:
    """`0.05 ms`, `1.2 ms`, `180 ms`."""
    ms = 1000 * seconds
    return f"{ms:.2f} ms" if ms < 1 else f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"


def listed(names: Sequence[object]) -> str:
    """`a, b, c and 7 more`."""
    shown = ", ".join(map(str, names[:_LISTED_MAX]))
    more = len(names) - _LISTED_MAX
    return f"{shown} and {more:,} more" if more > 0 else shown
