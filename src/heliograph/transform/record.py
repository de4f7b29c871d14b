"""A record as a function of the operator's sees it, and what may become of it. Runs anywhere."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from heliograph.wire.opened import Content


class Where(NamedTuple):
    """The lane of the records."""

    topic: str
    """Of the source."""
    target_topic: str
    partition: int


class Record(NamedTuple):
    """What a function on one record gets; `record._replace(value=...)` is what it may return."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Stage = Literal["TRANSFORMATION", "KAFKA_PRODUCE"]


class Failure(NamedTuple):
    """Why a record has no successor."""

    step: str
    """The transform's alias."""
    error: str
    """The class of what was raised."""
    why: str
    stage: Stage = "TRANSFORMATION"
    """In Connect's words, as in the header of a dead letter."""

    def __str__(self) -> str:
        who = f"transform {self.step}" if self.stage == "TRANSFORMATION" else self.step
        return f"{who}: {self.error}: {self.why}"


def stage_of(text: str) -> Stage:
    """Of a letter or a note, whoever wrote it."""
    return "KAFKA_PRODUCE" if text == "KAFKA_PRODUCE" else "TRANSFORMATION"


class BadResult(Exception):
    """A function returned what cannot be a record of the same lane."""


def checked_content(made: Any, given: Record) -> Content:
    """What a function on one record returned, if it can be its successor."""
    if not isinstance(made, Record):
        raise BadResult(f"returned {type(made).__name__}, not a Record or None")
    if (made.topic, made.partition, made.offset) != (given.topic, given.partition, given.offset):
        raise BadResult("returned another topic, partition or offset: a record stays in its lane")
    return checked((made.timestamp_ms, made.key, made.value, made.headers))


def checked(content: Any) -> Content:
    """All that the wire can hold, and nothing else."""
    timestamp_ms, key, value, headers = content
    if not isinstance(timestamp_ms, int) or not -(2**63) <= timestamp_ms < 2**63:
        raise BadResult(f"returned {type(timestamp_ms).__name__} as timestamp, not milliseconds")
    return timestamp_ms, _bytes("key", key), _bytes("value", value), _headers(headers)


def _bytes(what: str, found: Any) -> bytes | None:
    if found is None or isinstance(found, bytes):
        return found
    if isinstance(found, bytearray | memoryview):
        return bytes(found)
    raise BadResult(f"returned {type(found).__name__} as {what}, not bytes or None")


def _headers(found: Any) -> tuple[tuple[str, bytes | None], ...]:
    try:
        headers = tuple((name, value) for name, value in found)
    except (TypeError, ValueError) as exc:
        raise BadResult("returned headers that are no pairs of name and value") from exc
    for name, _ in headers:
        if not isinstance(name, str):
            raise BadResult(f"returned {type(name).__name__} as a header's name, not str")
        name.encode("utf-8", "surrogateescape")
    return tuple((name, _bytes("a header's value", value)) for name, value in headers)
