"""Numbers with their nouns, for the texts an operator reads. Runs anywhere."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 group`, `1,000 groups`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
