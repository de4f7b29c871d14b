"""Whether a group on the target is moved to where it stands on the source. No I/O; runs anywhere.

The target's own offsets are the last word: a group is moved forward, never past what is mirrored,
and back only where the source group itself went back and nobody has moved the target's since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from heliograph.broker.group_view import GroupOffset
from heliograph.groups.checkpoint_plan import GroupOffsetPair
from heliograph.model import TopicPartition

OnRewind = Literal["follow", "keep"]


class Move(StrEnum):
    """What is done about one partition of a group, and why."""

    NONE = "in step"
    FIRST = "nothing is committed there"
    FORWARD = "the source is ahead"
    BACK = "the source group was set back"
    KEPT_AHEAD = "the target is ahead by itself"
    KEPT_REWOUND = "the source group was set back and on.group.rewind is keep"
    NOT_MIRRORED = "the target's log ends before"
    NO_LEADER = "the target partition has no leader"

    @property
    def is_write(self) -> bool:
        return self in (Move.FIRST, Move.FORWARD, Move.BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a group was on both sides when this mirror last put it there."""

    source_offset: int
    target_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMoves:
    """Everything decided about one group."""

    moves: Mapping[TopicPartition, Move]
    """By target partition."""
    writes: Mapping[TopicPartition, GroupOffset]
    placed: Mapping[TopicPartition, Placed]
    """Where the group stands once the writes are done, as far as this mirror put it there."""


def plan_group(
    locations: Iterable[GroupOffsetPair],
    current: Mapping[TopicPartition, GroupOffset],
    placed: Mapping[TopicPartition, Placed],
    target_ends: Mapping[TopicPartition, int],
    *,
    on_rewind: OnRewind,
) -> GroupMoves:
    """All places are of one group, which has no members on the target."""
    moves: dict[TopicPartition, Move] = {}
    writes: dict[TopicPartition, GroupOffset] = {}
    now_placed: dict[TopicPartition, Placed] = {}
    for place in locations:
        at = place.target
        move = _move(place, current.get(at), placed.get(at), target_ends.get(at), on_rewind)
        moves[at] = move
        if move.is_write:
            # Without the leader epoch: it counts elections of the source.
            writes[at] = GroupOffset(offset=place.target_offset, metadata=place.metadata)
        if move.is_write or move is Move.NONE:
            now_placed[at] = Placed(
                source_offset=place.source_offset, target_offset=place.target_offset
            )
    return GroupMoves(moves=moves, writes=writes, placed=now_placed)


def _move(
    place: GroupOffsetPair,
    current: GroupOffset | None,
    placed: Placed | None,
    target_end: int | None,
    on_rewind: OnRewind,
) -> Move:
    if target_end is None:
        return Move.NO_LEADER
    if place.target_offset > target_end:
        return Move.NOT_MIRRORED
    # A client that resets a group may leave -1, which is no position either (KAFKA-15607).
    if current is None or current.offset < 0:
        return Move.FIRST
    if current.offset == place.target_offset:
        return Move.NONE
    if current.offset < place.target_offset:
        return Move.FORWARD
    went_back = placed is not None and place.source_offset < placed.source_offset
    is_ours = placed is not None and current.offset == placed.target_offset
    if not (went_back and is_ours):
        return Move.KEPT_AHEAD
    return Move.BACK if on_rewind == "follow" else Move.KEPT_REWOUND
