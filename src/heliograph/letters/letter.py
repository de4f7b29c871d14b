"""A dead letter: a record as it came, and headers that say why it is here. Pure; runs anywhere.

The headers are Kafka Connect's `__connect.errors.*`, as its own dead-letter topics have them, and
one of ours for the record's time. They stand behind the record's own headers, in this order, so
that taking them off gives the record back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.transform.record import Failure, stage_of
from heliograph.wire.opened import Content

_PREFIX: Final = "__connect.errors."
TIMESTAMP_HEADER: Final = "heliograph.timestamp"
_NAMES: Final = (
    f"{_PREFIX}topic",
    f"{_PREFIX}partition",
    f"{_PREFIX}offset",
    f"{_PREFIX}connector.name",
    f"{_PREFIX}stage",
    f"{_PREFIX}class.name",
    f"{_PREFIX}exception.class.name",
    f"{_PREFIX}exception.message",
    TIMESTAMP_HEADER,
)


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that is not mirrored, on its way to the dead-letter topic."""

    position: int
    """The one that it would have had."""
    offset: int
    """Of the source."""
    content: Content
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLetter:
    """A letter as it lies in its topic."""

    at: TopicPartition
    letter_offset: int
    at_ms: int
    """When it was written."""
    source: TopicPartition
    offset: int
    """Of the source."""
    flow: str
    failure: Failure
    content: Content
    """The record itself, as it came."""


def as_letter(flow: FlowId, source: TopicPartition, letter: Letter, at_ms: int) -> Content:
    """The record to write. Its time is now: the record's own may be what nobody takes."""
    timestamp_ms, key, value, headers = letter.content
    failure = letter.failure
    says = (
        source.topic,
        str(source.partition),
        str(letter.offset),
        str(flow),
        failure.stage,
        failure.step,
        failure.error,
        failure.why,
        str(timestamp_ms),
    )
    added = zip(_NAMES, (text.encode("utf-8", "replace") for text in says), strict=True)
    return at_ms, key, value, (*headers, *added)


def read_letter(at: TopicPartition, offset: int, content: Content) -> ReadLetter | None:
    """None for a record that is no letter of ours."""
    at_ms, key, value, headers = content
    own, added = headers[: -len(_NAMES)], headers[-len(_NAMES) :]
    if tuple(name for name, _ in added) != _NAMES:
        return None
    topic, partition, source_offset, flow, stage, step, error, why, timestamp_ms = (
        (text or b"").decode("utf-8", "replace") for _, text in added
    )
    try:
        source = TopicPartition(topic=TopicName(topic), partition=int(partition))
        original = (int(timestamp_ms), key, value, own)
        number = int(source_offset)
    except ValueError:
        return None
    return ReadLetter(
        at=at,
        letter_offset=offset,
        at_ms=at_ms,
        source=source,
        offset=number,
        flow=flow,
        failure=Failure(step, error, why, stage_of(stage)),
        content=original,
    )
