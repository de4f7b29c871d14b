"""Which checkpoints to write, by MirrorMaker 2's rule of emission. No I/O; runs anywhere.

A checkpoint says where a group stands on the source and where that is on the target. Only news is
written: the first one, one whose group went back on the source, one that is further on the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from heliograph.broker.group_view import GroupOffset
from heliograph.ledger.translate import Side, Translated
from heliograph.model import TopicName, TopicPartition
from heliograph.wire.mirror_records import Checkpoint

GroupOffsets = Mapping[str, Mapping[TopicPartition, GroupOffset]]
Asked = tuple[TopicPartition, int]
CheckpointKey = tuple[str, TopicPartition]
"""A group, and a partition of the target: the key of a checkpoint's record."""


class LanePosition(Protocol):
    @property
    def target(self) -> TopicPartition: ...
    @property
    def position(self) -> int: ...


Lanes = Mapping[TopicPartition, LanePosition]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffsetPair:
    """Where a group stands on one source partition, and where that is on the target."""

    group: str
    source: TopicPartition
    target: TopicPartition
    source_offset: int
    target_offset: int
    clamped: Side | None = None
    metadata: str = ""

    @property
    def key(self) -> CheckpointKey:
        return (self.group, self.target)


def wanted_offsets(
    offsets: GroupOffsets, lanes: Lanes, should_mirror: Callable[[TopicName], bool]
) -> Iterator[tuple[str, TopicPartition, GroupOffset]]:
    """What is worth translating: committed, of a mirrored topic, of a lane that has records."""
    for group, committed in offsets.items():
        for source, at in committed.items():
            lane = lanes.get(source)
            # Before the first record there is nothing on the target that an offset could mean.
            if lane is None or lane.position == 0 or at.offset < 0:
                continue
            if should_mirror(source.topic):
                yield group, source, at


def group_places(
    wanted: Iterable[tuple[str, TopicPartition, GroupOffset]],
    lanes: Lanes,
    translated: Mapping[Asked, Translated],
) -> tuple[GroupOffsetPair, ...]:
    """Everything that has a translation, in order of group and target partition."""
    locations = [
        GroupOffsetPair(
            group=group,
            source=source,
            target=lanes[source].target,
            source_offset=at.offset,
            target_offset=found.offset,
            clamped=found.side,
            metadata=at.metadata,
        )
        for group, source, at in wanted
        if (found := translated.get((source, at.offset))) is not None
    ]
    return tuple(sorted(locations, key=lambda place: place.key))


def raised_to(
    locations: Iterable[GroupOffsetPair], starts: Mapping[TopicPartition, int]
) -> tuple[GroupOffsetPair, ...]:
    """Coarse places in their logs, which begin at `starts`; left out where that is not known."""
    return tuple(
        place
        if place.clamped != "coarse"
        else replace(place, target_offset=max(place.target_offset, starts[place.target]))
        for place in locations
        if place.clamped != "coarse" or place.target in starts
    )


def doubtful_targets(
    locations: Iterable[GroupOffsetPair], previous: Mapping[CheckpointKey, Checkpoint]
) -> frozenset[TopicPartition]:
    """Partitions where a previous checkpoint is ahead though its group did not go back.

    Either less is known of the lane than before, or the checkpoint is about a log that is gone or
    was never there; the log's end tells which.
    """
    return frozenset(
        place.target
        for place in locations
        if (before := previous.get(place.key)) is not None
        and before.downstream_offset > place.target_offset
        and place.source_offset >= before.upstream_offset
    )


def plan_checkpoints(
    locations: Iterable[GroupOffsetPair],
    previous: Mapping[CheckpointKey, Checkpoint],
    target_ends: Mapping[TopicPartition, int],
) -> tuple[Checkpoint, ...]:
    """What is news; `target_ends` of the doubtful partitions are enough."""
    return tuple(
        checkpoint_of(place)
        for place in locations
        if _is_news(place, previous.get(place.key), target_ends.get(place.target))
    )


def checkpoint_of(place: GroupOffsetPair) -> Checkpoint:
    return Checkpoint(
        group=place.group,
        topic=place.target.topic,
        partition=place.target.partition,
        upstream_offset=place.source_offset,
        downstream_offset=place.target_offset,
        metadata=place.metadata,
    )


def checkpoint_key(checkpoint: Checkpoint) -> CheckpointKey:
    topic = TopicName(checkpoint.topic)
    return (checkpoint.group, TopicPartition(topic=topic, partition=checkpoint.partition))


def _is_news(place: GroupOffsetPair, before: Checkpoint | None, target_end: int | None) -> bool:
    if before is None or place.source_offset < before.upstream_offset:
        return True
    if target_end is not None and before.downstream_offset > target_end:
        # It names an offset the log does not have: keeping to it would silence the group until
        # the log has grown that far, and for ever where the record was garbage.
        return True
    return place.target_offset > before.downstream_offset
