"""Settings with their lines, and what is wrong with them, collected, not raised. Runs anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from heliograph.config.mm2.values import BadValue
from heliograph.config.secrets import has_password, is_secret_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One line of the file with its references resolved."""

    key: str
    value: str = field(repr=False)
    written: str = field(repr=False)
    """As in the file, references and all."""
    line: int

    def shown(self, part: str | None = None) -> str:
        """What a message may quote: never a secret, never what came through a provider."""
        if is_secret_key(self.key) or has_password(self.value):
            return "(hidden)"
        if self.written != self.value:
            return f"`{self.written}`"
        return f"`{self.value if part is None else part}`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    line: int | None
    """None where the file lacks something."""
    key: str
    sentence: str


class Findings:
    """Problems that stop a start, and notes that do not; each kept once."""

    def __init__(self) -> None:
        self.problems: list[Finding] = []
        self.notes: list[Finding] = []

    def problem(self, setting: Setting, sentence: str) -> None:
        self.problem_at(setting.key, sentence, line=setting.line)

    def bad_value(self, setting: Setting, exc: BadValue) -> None:
        self.problem(setting, f"is {setting.shown(exc.part)}, {exc.why}")

    def problem_at(self, key: str, sentence: str, *, line: int | None = None) -> None:
        # One line may be the default of many flows and clusters; its mistake is still one.
        found = Finding(line=line, key=key, sentence=sentence)
        if found not in self.problems:
            self.problems.append(found)

    def about(self, key: str) -> bool:
        """Whether a key has a problem already, so that what follows from it is not told again."""
        return any(found.key == key for found in self.problems)

    def note(self, setting: Setting, sentence: str) -> None:
        self.note_at(setting.key, sentence, line=setting.line)

    def note_at(self, key: str, sentence: str, *, line: int | None = None) -> None:
        found = Finding(line=line, key=key, sentence=sentence)
        if found not in self.notes:
            self.notes.append(found)


def render(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In the order of the file, places lined up, what has no line first."""
    ordered = sorted(findings, key=lambda found: found.line or 0)
    labels = ["" if found.line is None else f"line {found.line}" for found in ordered]
    width = max((len(label) for label in labels), default=0)
    return tuple(
        f"{label:<{width}}{'  ' if width else ''}{found.key}: {found.sentence}"
        for label, found in zip(labels, ordered, strict=True)
    )
