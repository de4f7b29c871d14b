"""What was seen of consumer groups: states, committed offsets. Values; runs anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

SHADOW_PREFIX: Final = "heliograph-drill."
"""Of the groups that a drill commits instead of the real ones, for as long as it lasts."""
GroupProtocol = Literal["classic", "consumer"]
"""`consumer` is the protocol of KIP-848, where brokers assign the partitions."""


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
    protocol: GroupProtocol = "classic"

    @property
    def is_idle(self) -> bool:
        """Whether the broker takes offsets from somebody who is not a member."""
        return self.state in (GroupState.EMPTY, GroupState.DEAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """A committed position: the next offset the group will read."""

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    """Of the cluster where it was committed; means nothing on another one."""


def is_shadow(group: str) -> bool:
    """Whether only a drill has a group of this name; such groups are not followed anywhere."""
    return group.startswith(SHADOW_PREFIX)
