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


_UNITS_BYTES: Final = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
}
_BYTES: Final = re.compile(
    r"([0-9]{1,15})(?:\.([0-9]{1,3}))? ?([kmg]i?)?(?:b(?:/s)?)?", re.IGNORECASE
)


def bytes_of(text: str) -> int | None:
    """The bytes of `500000`, `10MB`, `1.5 MiB/s`; None for what is not written like that."""
    found = _BYTES.fullmatch(text.strip())
    if found is None:
        return None
    unit = _UNITS_BYTES[(found[3] or "").lower()]
    part = int((found[2] or "0").ljust(3, "0"))
    return int(found[1]) * unit + part * unit // 1000


def rate_words(bytes_per_s: float) -> str:
    """`1.5 MB/s`."""
    return f"{bytes_words(bytes_per_s)}/s"


def bytes_words(count: float) -> str:
    """`1.5 MB`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:g} B"


def in_words(seconds: float) -> str:
    """`7 d` for a week's seconds: the largest unit that leaves no rest."""
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS_S[unit] and seconds % _UNITS_S[unit] == 0:
            return f"{seconds / _UNITS_S[unit]:g} {unit if unit != 'm' else 'min'}"
    return f"{seconds:g} s"
