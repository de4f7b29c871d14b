"""`sasl.jaas.config` taken apart: module, flag and options. No I/O; runs anywhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<comment>//[^\n]*|/\*.*?\*/)
      | "(?P<double>(?:[^"\\\n]|\\.)*)"
      | '(?P<single>(?:[^'\\\n]|\\.)*)'
      | (?P<mark>[=;])
      | (?P<word>[^\s=;"']+)
    )""",
    re.VERBOSE | re.DOTALL,
)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}


class MalformedJaas(ValueError):
    """What is wrong with the entry; never quotes it, since passwords are in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasEntry:
    module: str
    """Class of the login module, without its package."""
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> JaasEntry:
    """The one entry of the value, as Kafka's JaasConfig reads it."""
    tokens = _tokens(text)
    if not tokens:
        raise MalformedJaas("empty")
    if len(tokens) < 2 or tokens[1].lower() not in _FLAGS:
        raise MalformedJaas('not `LoginModule required option="value" …;`')
    options: dict[str, str] = {}
    at = 2
    while at < len(tokens) and tokens[at] != ";":
        if at + 2 >= len(tokens) or tokens[at + 1] != "=" or tokens[at + 2] == ";":
            raise MalformedJaas("an option without `=` and a value")
        options[tokens[at]] = tokens[at + 2].removeprefix("\0")
        at += 3
    if at >= len(tokens):
        raise MalformedJaas("not ended by `;`")
    if at != len(tokens) - 1:
        raise MalformedJaas("more than one login module")
    return JaasEntry(module=tokens[0].rpartition(".")[2], options=options)


def _tokens(text: str) -> list[str]:
    """Words and marks; what was quoted begins with NUL, so that a quoted `;` is no mark."""
    found: list[str] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        matched = _TOKEN.match(text, at)
        if matched is None:
            raise MalformedJaas("a quote that is not closed")
        at = matched.end()
        quoted = matched["double"] if matched["double"] is not None else matched["single"]
        if quoted is not None:
            found.append("\0" + re.sub(r"\\(.)", _unescape, quoted, flags=re.DOTALL))
        elif matched["comment"] is None:
            found.append(matched["mark"] or matched["word"])
    return found


def _unescape(escape: re.Match[str]) -> str:
    return _ESCAPES.get(escape.group(1), escape.group(1))
