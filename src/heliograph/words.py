"""Numbers with their nouns and units, as an operator reads and writes them. Runs anywhere."""

from __future__ import annotations

import re
from typing import Final

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_TIME: Final = re.compile(r"([1-9][0-9]{0,8})([smhdw])")


def counted(number: int, noun: str) -> str:
    """`1 group`, `1,000 groups`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def seconds_of(text: str) -> int | None:
    """The seconds of `90m`, `7d`, `2w`; None for what is not written like that."""
    found = _TIME.fullmatch(text.strip())
    return None if found is None else int(found[1]) * _UNITS_S[found[2]]


def in_words(seconds: float) -> str:
    """`7 d` for a week's seconds: the largest unit that leaves no rest."""
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS_S[unit] and seconds % _UNITS_S[unit] == 0:
            return f"{seconds / _UNITS_S[unit]:g} {unit if unit != 'm' else 'min'}"
    return f"{seconds:g} s"
