"""Ledger entries of a lane in one line; a test names only what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from heliograph.ledger.entries import HeadEntry, StartEntry, new_author
from heliograph.model import TopicName


def start_entry(topic: str, partition: int = 0, **changed: Any) -> StartEntry:
    """A lane that begins at offset 0 on both sides."""
    entry = StartEntry(
        topic=TopicName(topic),
        partition=partition,
        position=0,
        author=new_author(),
        source_offset=0,
        target_offset=0,
        source_topic_id=None,
        target_topic_id=None,
        at_ms=1,
    )
    return replace(entry, **changed)


def head_entry(topic: str, partition: int = 0, *, records: int = 0, **changed: Any) -> HeadEntry:
    """A lane that has mirrored so many records, all there are, to the same offsets."""
    entry = HeadEntry(
        topic=TopicName(topic),
        partition=partition,
        position=records,
        source_next_offset=records,
        source_end_offset=records,
        target_next_offset=records,
        source_topic_id=None,
        target_topic_id=None,
        at_ms=1,
        state="idle",
        detail="",
    )
    return replace(entry, **changed)
