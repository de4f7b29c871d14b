"""What was seen of groups: types, states, committed offsets. Values; runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from heliograph.errors import BrokerError
from heliograph.model import TopicPartition

SHADOW_PREFIX: Final = "heliograph-drill."
"""Of the groups that a drill commits instead of the real ones, for as long as it lasts."""
SHARE_METADATA: Final = "heliograph:share-group"
"""What the start offset of a share group has for metadata, of which it has none itself.

It goes wherever the offset goes, a checkpoint's record among them: whoever places the group while
its source is away knows by it what type the group is. An ordinary commit in its place would make a
consumer group of that id, which no member of a share group can join.
"""
GroupType = Literal["classic", "consumer", "streams", "share"]
"""`consumer`: brokers assign the partitions (KIP-848). `streams`: KIP-1071. `share`: KIP-932."""


class GroupState(StrEnum):
    EMPTY = "empty"
    """Known by its offsets, without members."""
    DEAD = "dead"
    """Not there, or about to be forgotten."""
    STABLE = "stable"
    REBALANCING = "rebalancing"
    UNKNOWN = "unknown"
    """A state this client has no word for; a group in it may have members."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    id: str
    state: GroupState
    type: GroupType = "classic"

    @property
    def is_idle(self) -> bool:
        """Whether the broker takes offsets from somebody who is not a member."""
        return self.state in (GroupState.EMPTY, GroupState.DEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A committed position: the next offset the group will read; of a share group its start."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    """Of the cluster where it was committed; means nothing on another one."""

    @property
    def is_share(self) -> bool:
        return is_share(self.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    written: frozenset[TopicPartition]
    problems: Mapping[TopicPartition, BrokerError]
    """Partitions whose offset was refused; the others of the same commit are written."""


def is_share(metadata: str) -> bool:
    """Whether an offset with this metadata is the start offset of a share group."""
    return metadata == SHARE_METADATA


def is_shadow(group: str) -> bool:
    """Whether only a drill has a group of this name; such groups are not followed anywhere."""
    return group.startswith(SHADOW_PREFIX)
