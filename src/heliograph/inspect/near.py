"""Names and patterns that are nearly the one asked for: did you mean. No I/O; runs anywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_NAMES_MAX: Final = 3
_SIMILAR: Final = 0.8
_SEPARATORS: Final = str.maketrans("_-", "..")


def near_names(name: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those that differ in case, in separators or in a few letters, the nearest first."""
    known = sorted(set(names) - {name})
    plain: dict[str, list[str]] = {}
    for each in known:
        plain.setdefault(_plain(each), []).append(each)
    same = plain.get(_plain(name), [])
    close = get_close_matches(_plain(name), list(plain), n=_NAMES_MAX, cutoff=_SIMILAR)
    found = dict.fromkeys((*same, *(each for key in close for each in plain[key])))
    return tuple(found)[:_NAMES_MAX]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """` (did you mean `orders`?)`, or nothing."""
    found = near_names(name, names)
    return f" (did you mean {' or '.join(f'`{each}`' for each in found)}?)" if found else ""


def near_patterns(name: str, patterns: Iterable[str]) -> tuple[str, ...]:
    """A sentence for each regex that misses the name by little."""
    found: list[str] = []
    for pattern in patterns:
        try:
            sentence = _missed_by(name, pattern)
        except re.error:
            continue  # a filter of the operator's own may keep anything in its list
        if sentence:
            found.append(sentence)
    return tuple(found[:_NAMES_MAX])


def _missed_by(name: str, pattern: str) -> str:
    regex = re.compile(pattern)
    if regex.fullmatch(name):
        return ""
    if re.compile(pattern, re.IGNORECASE).fullmatch(name):
        return f"`{pattern}` would match but for upper and lower case"
    found = regex.search(name)
    if found is not None and found.group():
        wider = _wider(pattern, before=found.start() > 0, after=found.end() < len(name))
        return (
            f"`{pattern}` matches a part of it only, and a pattern must match the whole name: "
            f"`{wider}` would"
        )
    literal = pattern.replace("\\", "")
    if near_names(name, [literal]):
        return f"`{pattern}` is nearly its name"
    return ""


def _wider(pattern: str, *, before: bool, after: bool) -> str:
    inner = f"(?:{pattern})" if "|" in pattern else pattern
    return f"{'.*' if before else ''}{inner}{'.*' if after else ''}"


def _plain(name: str) -> str:
    return name.lower().translate(_SEPARATORS)
