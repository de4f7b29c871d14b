"""Java `.properties` into key, value and line, as `java.util.Properties` reads it. Runs anywhere.

Differences from Java, all on purpose: every property keeps the line it began on; a key given twice
stays twice in the answer, so that the caller can say so where Java keeps the last in silence; a
backslash alone at the end of the file is nothing, where Java makes an empty key.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    key: str
    value: str = field(repr=False)
    """May be a password, hence absent from `repr`."""
    line: int
    """The first line of the property, counted from 1."""


class MalformedProperty(ValueError):
    """Java refuses the file for this; the message does not quote the value."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(line, why)
        self.line, self.why = line, why


def decode_properties(content: bytes) -> str:
    """UTF-8, or else Latin-1, the only encoding Java reads; escapes mean the same in both."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def parse_properties(text: str) -> list[Property | MalformedProperty]:
    """Every property in the order of the file; what is malformed stands in its place."""
    found: list[Property | MalformedProperty] = []
    for line, logical in _logical_lines(text):
        key, value = _split(logical)
        try:
            found.append(
                Property(key=_unescape(key, line), value=_unescape(value, line), line=line)
            )
        except MalformedProperty as exc:
            found.append(exc)
    return found


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined at their continuations, without comments and blank lines."""
    began, joined = 0, ""
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        stripped = natural.lstrip(_BLANKS)
        if not began:
            if not stripped or stripped[0] in "#!":
                continue
            began = number
        if _ends_in_continuation(stripped):
            joined += stripped[:-1]
            if not joined:
                began = 0  # a backslash alone has begun nothing
            continue
        # A continued line that ends in nothing is still a property, as it is for Java.
        yield began, joined + stripped
        began, joined = 0, ""
    if began:
        yield began, joined


def _ends_in_continuation(line: str) -> bool:
    backslashes = len(line) - len(line.rstrip("\\"))
    return backslashes % 2 == 1


def _split(logical: str) -> tuple[str, str]:
    """Key and value, both still escaped; the key ends at the first bare `=`, `:` or blank."""
    end = 0
    while end < len(logical) and logical[end] not in "=:" + _BLANKS:
        end += 2 if logical[end] == "\\" else 1
    key, rest = logical[:end], logical[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return key, rest


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out.append(text[at])
            at += 1
        elif text[at + 1 : at + 2] == "u":
            digits = text[at + 2 : at + 6]
            if len(digits) < 4 or not _HEX_DIGITS.issuperset(digits):
                raise MalformedProperty(line, r"\u needs four hexadecimal digits after it")
            out.append(chr(int(digits, 16)))
            at += 6
        else:
            escaped = text[at + 1 : at + 2]
            out.append(_ESCAPES.get(escaped, escaped))
            at += 2
    return _join_surrogates("".join(out))


def _join_surrogates(text: str) -> str:
    """Java strings are UTF-16: two escapes may spell one character."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
