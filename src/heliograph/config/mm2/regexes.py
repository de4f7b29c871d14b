"""Java regular expressions, as MirrorMaker 2's files hold them, into Python's. No I/O; anywhere.

Most patterns mean the same in both languages and pass unchanged. What is spelled differently is
respelled; what Python's `re` cannot say is refused with a sentence, never guessed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Final

_ASCII_CLASSES: Final = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "ASCII": r"\x00-\x7f",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}
_VERTICAL: Final = r"\n\x0b\f\r\x85\u2028\u2029"
_HORIZONTAL: Final = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_SPELLED_ALIKE: Final = frozenset("tnrfadDsSwWbBA")
# Outside classes only; `\Z` of Java stands before a final line end, Python's does not.
_ANCHORS: Final = {"z": r"\Z", "Z": r"(?=\n?\Z)", "R": rf"(?:\r\n|[{_VERTICAL}])"}
_UNICODE_AWARE: Final = re.compile(r"\\[wWdDsSbB]")
_QUANTIFIER: Final = re.compile(r"\{\d+(?:,\d*)?\}")
_GROUP_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_LEADING_FLAGS: Final = re.compile(r"\(\?([a-zA-Z]+)\)")


class RegexRefused(ValueError):
    """The pattern is wrong, or says what Python cannot; the message does not quote the pattern."""


def from_java(pattern: str) -> str:
    """The same expression for Python's `re`, to be used with `fullmatch`."""
    flags, body = _leading_flags(pattern)
    translated = _Translation(body).run()
    if _UNICODE_AWARE.search(translated):
        flags += "a"  # Java's \w, \d, \s and \b are ASCII unless told otherwise
    spelled = f"(?{flags}){translated}" if flags else translated
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(spelled)
    except (re.error, OverflowError, RecursionError, Warning) as exc:
        raise RegexRefused(getattr(exc, "msg", None) or str(exc)) from exc
    return spelled


def replacer(pattern: str, replacement: str) -> Callable[[re.Match[str]], str]:
    """What Java's `replaceFirst` puts in the place of a match of `pattern`, which is Python's."""
    compiled = re.compile(pattern)
    parts: list[str | int] = []
    at = 0
    while at < len(replacement):
        char = replacement[at]
        if char == "\\":
            if at + 1 == len(replacement):
                raise RegexRefused("ends in a backslash")
            parts.append(replacement[at + 1])
            at += 2
        elif char == "$":
            group, at = _group(compiled, replacement, at + 1)
            parts.append(group)
        else:
            parts.append(char)
            at += 1
    return lambda match: "".join(
        part if isinstance(part, str) else match[part] or "" for part in parts
    )


def _group(compiled: re.Pattern[str], replacement: str, at: int) -> tuple[int, int]:
    """The group that `$` is followed by, and where the text goes on."""
    if replacement.startswith("{", at):
        name, found, _ = replacement[at + 1 :].partition("}")
        if not found or name not in compiled.groupindex:
            raise RegexRefused(f"names the group `{name}`, which the regex does not have")
        return compiled.groupindex[name], at + len(name) + 2
    digits = re.match("[0-9]+", replacement[at:])
    if digits is None:
        raise RegexRefused("has a `$` without a group; `\\$` is the character")
    # The first digit is the group's; more belong to it as long as there is such a group.
    end = 1
    while end < len(digits[0]) and int(digits[0][: end + 1]) <= compiled.groups:
        end += 1
    group = int(digits[0][:end])
    if group > compiled.groups:
        raise RegexRefused(f"names group {group}, and the regex has {compiled.groups}")
    return group, at + end


def _leading_flags(pattern: str) -> tuple[str, str]:
    found = _LEADING_FLAGS.match(pattern)
    if found is None:
        return "", pattern
    unknown = set(found.group(1)) - set("imsx")
    if unknown:
        raise RegexRefused(f"flag {min(unknown)} has no equal here")
    return found.group(1), pattern[found.end() :]


class _Translation:
    """One walk over a pattern; `at` is the next character to look at."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0

    def run(self) -> str:
        out: list[str] = []
        while self.at < len(self.pattern):
            out.append(self._next())
        return "".join(out)

    def _next(self) -> str:
        char = self.pattern[self.at]
        if char == "\\":
            return self._escape(in_class=False)
        if char == "[":
            return self._character_class()
        if char == "(":
            return self._group()
        if char == "{":
            return self._quantifier()
        self.at += 1
        return char

    def _take(self, count: int) -> str:
        taken = self.pattern[self.at : self.at + count]
        self.at += count
        return taken

    def _until(self, end: str, what: str) -> str:
        found = self.pattern.find(end, self.at)
        if found < 0:
            raise RegexRefused(f"{what} without {end}")
        taken = self.pattern[self.at : found]
        self.at = found + len(end)
        return taken

    def _quantifier(self) -> str:
        found = _QUANTIFIER.match(self.pattern, self.at)
        if found is None:
            # Python would take the brace literally, Java refuses it; {1,3} in a list ends here.
            raise RegexRefused("{ without a count; lists are split at every comma, also inside {}")
        self.at = found.end()
        return found.group()

    def _group(self) -> str:
        rest = self.pattern[self.at :]
        if rest.startswith("(?<") and rest[3:4] not in ("=", "!"):
            self.at += 3
            name = self._until(">", "group name")
            if _GROUP_NAME.fullmatch(name) is None:
                raise RegexRefused("a group name is letters and digits")
            return f"(?P<{name}>"
        if _LEADING_FLAGS.match(rest):
            raise RegexRefused("flags in the middle; write them first, or as (?i:…)")
        if rest.startswith(("(?P", "(?#", "(?(")):
            raise RegexRefused(f"{rest[:3]} is not Java's")
        self.at += 1
        return "("

    def _character_class(self) -> str:
        self.at += 1
        out = ["["]
        if self.pattern[self.at : self.at + 1] == "^":
            out.append(self._take(1))
        if self.pattern[self.at : self.at + 1] == "]":
            self.at += 1
            out.append(r"\]")
        while True:
            char = self.pattern[self.at : self.at + 1]
            if not char:
                raise RegexRefused("unterminated character set")
            if char == "\\":
                out.append(self._escape(in_class=True))
            elif char == "[" or self.pattern.startswith("&&", self.at):
                raise RegexRefused(r"a class within a class; write \[ or \& for the character")
            else:
                self.at += 1
                # Python warns of set operations to come; Java has no such reading of these.
                out.append("\\" + char if char in "-&~|" and self._is_doubled(char) else char)
                if char == "]":
                    return "".join(out)

    def _is_doubled(self, char: str) -> bool:
        return self.pattern[self.at : self.at + 1] == char

    def _escape(self, *, in_class: bool) -> str:
        self.at += 1
        char = self._take(1)
        if not char:
            raise RegexRefused("bad escape (end of pattern)")
        if char == "Q":
            return self._quoted()
        if char in "pP":
            return self._property(negated=char == "P", in_class=in_class)
        if char in "x0c":
            return self._code_point(char)
        if char == "u":
            digits = self._take(4)
            if re.fullmatch("[0-9a-fA-F]{4}", digits) is None:
                raise RegexRefused(r"\u needs four hexadecimal digits after it")
            return rf"\u{digits}"
        if char == "e":
            return r"\x1b"
        if char in "hHvV":
            listed = _HORIZONTAL if char in "hH" else _VERTICAL
            return self._set(listed, negated=char in "HV", in_class=in_class)
        if not in_class and char in _ANCHORS:
            return _ANCHORS[char]
        if not in_class and char == "k":
            if self._take(1) != "<":
                raise RegexRefused(r"\k needs <name>")
            return f"(?P={self._until('>', 'group name')})"
        if (
            char.isascii()
            and char.isalpha()
            and (char not in _SPELLED_ALIKE or (in_class and char in "bBA"))
        ):
            raise RegexRefused(rf"\{char} has no equal here")
        return "\\" + char

    def _quoted(self) -> str:
        end = self.pattern.find(r"\E", self.at)
        literal = self.pattern[self.at :] if end < 0 else self.pattern[self.at : end]
        self.at = len(self.pattern) if end < 0 else end + 2
        return re.escape(literal)

    def _property(self, *, negated: bool, in_class: bool) -> str:
        name = (
            self._until("}", r"\p{")[1:]
            if self.pattern[self.at : self.at + 1] == "{"
            else self._take(1)
        )
        listed = _ASCII_CLASSES.get(name)
        if listed is None:
            raise RegexRefused(rf"\p{{{name}}} has no equal here; the ASCII classes have")
        return self._set(listed, negated=negated, in_class=in_class)

    def _set(self, listed: str, *, negated: bool, in_class: bool) -> str:
        if not in_class:
            return f"[{'^' if negated else ''}{listed}]"
        if negated:
            raise RegexRefused("a negated class within a class has no equal here")
        return listed

    def _code_point(self, kind: str) -> str:
        r"""`\xhh`, `\x{h…h}`, `\0n`, `\0nn`, `\0mnn` and `\cx`."""
        if kind == "c":
            control = self._take(1)
            if not control:
                raise RegexRefused(r"\c needs a character after it")
            return re.escape(chr(ord(control) ^ 64))
        if kind == "x" and self.pattern[self.at : self.at + 1] == "{":
            self.at += 1
            digits, base = self._until("}", r"\x{"), 16
        elif kind == "x":
            digits, base = self._take(2), 16
        else:
            found = re.compile("[0-3]?[0-7]{1,2}").match(self.pattern, self.at)
            digits, base = (found.group() if found else ""), 8
            self.at += len(digits)
        try:
            return re.escape(chr(int(digits, base)))
        except (ValueError, OverflowError) as exc:
            raise RegexRefused(rf"\{kind} needs the number of a character after it") from exc
