"""Text of a setting into its type, the way Kafka's ConfigDef reads it. No I/O; runs anywhere.

Each reader raises `BadValue`, whose reason does not quote the text: the caller knows whether it
may be shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from heliograph.config.mm2.regexes import RegexRefused, from_java
from heliograph.model import Start, StartAt, StartBack, StartTime

Reader = Callable[[str], object]

_LIST_SEPARATOR: Final = re.compile(r"\s*,\s*")
_HOST_PORT: Final = re.compile(
    r"(?:[A-Za-z0-9_+-]+://)?(?:\[[0-9A-Fa-f:.%]+\]|[^\s:,\[\]]+):(\d{1,5})"
)
_CLUSTER_ID_CHARS_MIN: Final = 8
_TOPIC_CHARACTERS: Final = re.compile(r"[A-Za-z0-9._-]+")
_BY_DURATION: Final = "by_duration"
_DURATION: Final = re.compile(
    r"\+?P(?:\+?(?P<days>\d+)D)?"
    r"(?:T(?:\+?(?P<hours>\d+)H)?(?:\+?(?P<minutes>\d+)M)?"
    r"(?:\+?(?P<seconds>\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_BACK_MS_MAX: Final = 1000 * 366 * 86_400_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TRAILING_COMMENT: Final = re.compile(r"\s#")


class BadValue(ValueError):
    """`why` completes "is `text`, …"; `part` is the piece it is about, if not the whole."""

    def __init__(self, why: str, part: str | None = None) -> None:
        super().__init__(why)
        self.why, self.part = why, part


def text(value: str) -> str:
    return value


def words(value: str) -> tuple[str, ...]:
    """A list as ConfigDef splits it; the empty string is the empty list."""
    return tuple(_LIST_SEPARATOR.split(value)) if value else ()


def switch(value: str) -> bool:
    match value.lower():
        case "true":
            return True
        case "false":
            return False
    raise BadValue("not true or false" + _comment_hint(value))


def whole(at_least: int | None = None, at_most: int | None = None) -> Reader:
    def read(value: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]+", value) is None:
            raise BadValue("not a whole number" + _comment_hint(value))
        number = int(value)
        if at_least is not None and number < at_least:
            raise BadValue(f"less than {at_least}")
        if at_most is not None and number > at_most:
            raise BadValue(f"more than {at_most}")
        return number

    return read


def number_or_auto(value: str) -> int | None:
    """How many slots; None where it is found out."""
    if value.strip().lower() == "auto":
        return None
    return int(str(whole(1, 100_000)(value)))


def replicas(value: str) -> int:
    """A replication factor or partition count, -1 for the broker's default."""
    number = whole(-1, 32_767)(value)
    if number == 0:
        raise BadValue("neither a count nor -1 for the broker's default")
    return int(str(number))


def decimal(*, above: float, below: float) -> Reader:
    def read(value: str) -> float:
        try:
            number = float(value)
        except ValueError as exc:
            raise BadValue("not a number" + _comment_hint(value)) from exc
        if not above < number < below:
            raise BadValue(f"not more than {above} and less than {below}")
        return number

    return read


def choice(options: Sequence[str] | type[StrEnum]) -> Reader:
    names = tuple(str(option) for option in options)

    def read(value: str) -> str:
        for name in names:
            if name.lower() == value.lower():
                return name
        raise BadValue(f"not one of {', '.join(names)}" + _comment_hint(value))

    return read


def offset_reset(value: str) -> Start:
    """As a consumer's `auto.offset.reset`, of which `none` would leave every new lane nowhere."""
    kind, found, length = value.partition(":")
    if found and kind.lower() == _BY_DURATION:
        return StartBack(_duration_ms(length))
    for end in StartAt:
        if end == value.lower():
            return end
    names = f"{', '.join(StartAt)}, {_BY_DURATION}:PT1H"
    raise BadValue(f"not one of {names}" + _comment_hint(value))


def start(value: str) -> Start:
    """As `offset_reset`, or a time with its zone."""
    if not value[:1].isdigit():
        return offset_reset(value)
    try:
        found = datetime.fromisoformat(value)
    except ValueError as exc:
        why = "not a time such as 2026-01-31T04:03:00Z"
        raise BadValue(why + _comment_hint(value)) from exc
    if found.tzinfo is None:
        raise BadValue("a time without its zone: end it with Z or an offset such as +02:00")
    at_ms = (found - _EPOCH) // timedelta(milliseconds=1)
    if at_ms < 0:
        raise BadValue("a time before 1970")
    return StartTime(at_ms)


def _duration_ms(value: str) -> int:
    """As Java's `Duration.parse`, of which Kafka takes those that are not negative."""
    matched = _DURATION.fullmatch(value)
    parts = () if matched is None else matched.group("days", "hours", "minutes", "seconds")
    if matched is None or not any(parts) or value[-1] in "Tt":
        raise BadValue(
            "not a duration such as PT1H, PT90M or P1DT12H" + _comment_hint(value), value
        )
    days, hours, minutes, seconds = (int(part or 0) for part in parts)
    whole_s = days * 86_400 + hours * 3_600 + minutes * 60 + seconds
    back_ms = whole_s * 1000 + int(f"{matched['fraction'] or '':0<3}"[:3])
    if back_ms > _BACK_MS_MAX:
        raise BadValue("a duration of more than a thousand years", value)
    return back_ms


def choices(options: Sequence[str]) -> Reader:
    one = choice(options)

    def read(value: str) -> tuple[object, ...]:
        return tuple(one(word) for word in words(value))

    return read


def regexes(value: str) -> tuple[str, ...]:
    """A list of Java regexes, respelled for Python."""
    return tuple(_regex(word) for word in words(value))


def _regex(pattern: str) -> str:
    if _TRAILING_COMMENT.search(pattern):
        # Java takes it as part of the regex, which then matches nothing.
        raise BadValue("a regex followed by a comment" + _comment_hint(pattern), pattern)
    try:
        return from_java(pattern)
    except RegexRefused as exc:
        hint = "; did you mean `.*`?" if pattern == "*" else ""
        raise BadValue(f"not a regex: {exc}{hint}", pattern) from exc


def part_of_a_name(value: str) -> str:
    """A separator or an alias, which end up in names of topics."""
    if not value:
        raise BadValue("empty, so a topic's source could not be read from its name")
    if _TOPIC_CHARACTERS.fullmatch(value) is None:
        raise BadValue("not allowed in a topic name: use letters, digits, `.`, `_`, `-`")
    return value


def header_name(value: str) -> str:
    if not value or any(each.isspace() for each in value):
        raise BadValue("not the name of a header: empty, or with a blank in it")
    return value


def header_names(value: str) -> tuple[str, ...]:
    return tuple(header_name(word) for word in words(value))


def cluster_id(value: str) -> str:
    """It is looked for anywhere in a header, so it must not be there by chance."""
    if len(value) < _CLUSTER_ID_CHARS_MIN or not value.isascii() or not value.isprintable():
        raise BadValue(f"not a cluster's id: {_CLUSTER_ID_CHARS_MIN} letters or more of ASCII")
    return value


def group_template(value: str) -> str:
    """A group id in which `{source}` and `{target}` stand for a flow's aliases."""
    rest = value.replace("{source}", "").replace("{target}", "")
    if not value.strip() or "{" in rest or "}" in rest or len(value) > 200:
        raise BadValue("not a group id; it may hold `{source}` and `{target}`, and no other braces")
    return value


def servers(value: str) -> tuple[str, ...]:
    found = tuple(word for word in words(value) if word)
    for server in found:
        matched = _HOST_PORT.fullmatch(server)
        if matched is None or not 0 < int(matched.group(1)) < 65_536:
            raise BadValue("not `host:port`", server)
    if not found:
        raise BadValue("not one `host:port`")
    return found


def _comment_hint(value: str) -> str:
    """Java has no comment after a value, though one looks right to every reader."""
    return "; a comment needs a line of its own" if _TRAILING_COMMENT.search(value) else ""
