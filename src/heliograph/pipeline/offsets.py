"""How a reader's offsets are written, admitted and cut into tasks. No I/O; runs anywhere.

Offsets are JSON as Spark's own Kafka source writes them: `{"orders": {"0": 23, "1": 7}}`, each the
first offset not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heliograph.errors import PipelineRefused
from heliograph.model import OffsetRange, TopicName, TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What one task reads."""

    at: TopicPartition
    range: OffsetRange


def as_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        found.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return found


def from_json(value: Any) -> dict[TopicPartition, int]:
    """Raises `PipelineRefused` for what a checkpoint of another source holds."""
    try:
        return {
            TopicPartition(topic=TopicName(topic), partition=int(partition)): int(offset)
            for topic, partitions in value.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError, ValueError) as exc:
        raise PipelineRefused(
            f"offsets {value!r} are not of this source: is it the checkpoint of another query?"
        ) from exc


def admitted(start: Offsets, ends: Offsets, records_max: int | None) -> dict[TopicPartition, int]:
    """How far to read now: all there is, or so much, shared by how much each partition has.

    A partition that has something gets at least one offset, so none is left behind for ever.
    """
    waiting = {at: max(0, end - start.get(at, end)) for at, end in ends.items()}
    total = sum(waiting.values())
    if records_max is None or total <= records_max:
        return {at: max(end, start.get(at, end)) for at, end in ends.items()}
    return {
        at: start[at] + min(count, max(1, count * records_max // total)) if count else start[at]
        for at, count in waiting.items()
    }


def stretches(start: Offsets, end: Offsets, records_max: int) -> list[Stretch]:
    """One task for each partition, or several where it has more than `records_max`."""
    found: list[Stretch] = []
    for at in sorted(end):
        begin, last = start.get(at, end[at]), end[at]
        if begin >= last:
            continue
        pieces = -(-(last - begin) // records_max)
        step = -(-(last - begin) // pieces)
        found += [
            Stretch(at=at, range=OffsetRange(start=n, end=min(n + step, last)))
            for n in range(begin, last, step)
        ]
    return found


def lost(start: Offsets, earliest: Offsets) -> dict[TopicPartition, int]:
    """How many offsets of each partition are gone before they were read."""
    return {
        at: first - start[at] for at, first in earliest.items() if at in start and start[at] < first
    }
