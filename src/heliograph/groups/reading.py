"""Where consumer groups stand on one cluster: which there are, states, offsets. Runs on the driver.

All of Heliograph reads groups here. One group that a broker does not show keeps no other from
being read: answers and refusals come apart. Raises `BrokerError` where a cluster does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from heliograph.broker.group_view import GroupOffset, GroupView
from heliograph.broker.groups import GroupAdmin
from heliograph.errors import BrokerError
from heliograph.model import TopicPartition

GroupOffsets = Mapping[str, Mapping[TopicPartition, GroupOffset]]
WantedGroup = Callable[[str], bool]
Refusals = Mapping[str, BrokerError]
"""Why the cluster shows nothing of a group, by group."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedGroups:
    """Groups that a flow follows, as one cluster shows them."""

    listed: Mapping[str, GroupView]
    """All that the flow follows, wanted or not, in the order of their names."""
    offsets: GroupOffsets
    """Of the wanted ones; nothing inside for a group that has committed nothing."""
    hidden: Refusals
    """Wanted ones whose offsets the cluster does not show."""

    def offsets_on(self, counts: Callable[[TopicPartition], bool]) -> GroupOffsets:
        """Only partitions that count, without groups that stand on none of them."""
        kept = {
            group: {at: stood for at, stood in each.items() if counts(at)}
            for group, each in self.offsets.items()
        }
        return {group: each for group, each in kept.items() if each}


def _every(_: str) -> bool:
    return True


def read_followed(
    cluster: GroupAdmin, follows: WantedGroup, wanted: WantedGroup = _every
) -> FollowedGroups:
    """List the groups that pass `follows`, and read the offsets of those that also are `wanted`."""
    listed = list_groups(cluster, follows)
    offsets, hidden = read_offsets(cluster, filter(wanted, listed))
    return FollowedGroups(listed=listed, offsets=offsets, hidden=hidden)


def list_groups(cluster: GroupAdmin, follows: WantedGroup = _every) -> dict[str, GroupView]:
    """A list leaves groups out that we may not describe, and those of a broker that is away."""
    return {id: view for id, view in sorted(cluster.list_groups().items()) if follows(id)}


def read_offsets(cluster: GroupAdmin, ids: Iterable[str]) -> tuple[GroupOffsets, Refusals]:
    """What each group has committed; nothing inside for a group that is not there."""
    return _told_apart(cluster.offsets_each(ids))


def read_states(
    cluster: GroupAdmin, ids: Iterable[str]
) -> tuple[Mapping[str, GroupView], Refusals]:
    """States now; a group that is not there is `DEAD` or left out."""
    return _told_apart(cluster.describe_each(ids))


def _told_apart(
    answers: Mapping[str, T | BrokerError],
) -> tuple[dict[str, T], dict[str, BrokerError]]:
    found: dict[str, T] = {}
    refused: dict[str, BrokerError] = {}
    for group, answer in answers.items():
        if isinstance(answer, BrokerError):
            refused[group] = answer
        else:
            found[group] = answer
    return found, refused
