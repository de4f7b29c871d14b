"""Put groups on the target where they stand on the source, for as long as nobody uses them there.

Runs on the driver. A group with members on the target is left alone: its members know better, and
the broker would refuse. A group is read, compared and written in one go, so that little can happen
in between; a member that joins just then makes the broker refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from heliograph.broker.groups import GROUPS_AT_ONCE_MAX, GroupAdmin
from heliograph.errors import BrokerError, GroupActive
from heliograph.groups.checkpoint_plan import GroupOffsetPair
from heliograph.groups.follower import GroupFollower, trouble
from heliograph.groups.sync_plan import GroupMoves, Placed, plan_group
from heliograph.model import FlowId, TopicPartition


class GroupOffsetsJob:
    what: Final = "group offsets"

    def __init__(self, follower: GroupFollower) -> None:
        self.flow: Final[FlowId] = follower.flow.id
        self.interval_s: Final[float] = follower.flow.groups.sync_offsets_interval_s
        self.follower: Final = follower

    def step(self) -> None:
        follower = self.follower
        # What was told before this driver started is how it knows a group that it put there.
        follower.load()
        look = follower.look()
        locations = look.by_group()
        target = follower.clients.groups(follower.target)
        problems = dict(look.problems)
        active: set[str] = set()
        for group, view in target.describe_each(locations).items():
            if isinstance(view, BrokerError):
                problems[group] = view
            elif not view.is_idle:
                active.add(group)
        idle = {
            group: of_group
            for group, of_group in locations.items()
            if group not in active and group not in problems
        }
        refused = self._write_all(target, idle)
        active |= {group for group, why in refused.items() if isinstance(why, GroupActive)}
        follower.note_active(active)
        problems |= {group: why for group, why in refused.items() if group not in active}
        if problems:
            raise trouble(problems, "their offsets are not written")

    def _write_all(
        self, target: GroupAdmin, idle: Mapping[str, Sequence[GroupOffsetPair]]
    ) -> dict[str, BrokerError]:
        """Why groups were not written, or not whole."""
        follower = self.follower
        partitions = {place.target for of_group in idle.values() for place in of_group}
        ends = follower.clients.admin(follower.target).list_offsets(partitions, "latest")
        refused: dict[str, BrokerError] = {}
        groups = iter(idle)
        while some := list(islice(groups, GROUPS_AT_ONCE_MAX)):
            refused |= self._write_some(target, {group: idle[group] for group in some}, ends)
        return refused

    def _write_some(
        self,
        target: GroupAdmin,
        idle: Mapping[str, Sequence[GroupOffsetPair]],
        ends: Mapping[TopicPartition, int],
    ) -> dict[str, BrokerError]:
        """Read, compare, write: few groups at once, so that a comparison is not old when used."""
        follower = self.follower
        refused: dict[str, BrokerError] = {}
        moves: dict[str, GroupMoves] = {}
        for group, current in target.offsets_each(idle).items():
            if isinstance(current, BrokerError):
                refused[group] = current
                continue
            moves[group] = plan_group(
                idle[group],
                current,
                follower.placed(group),
                ends,
                on_rewind=follower.flow.groups.on_rewind,
            )
        outcomes = target.commit_each({group: each.writes for group, each in moves.items()})
        for group, outcome in outcomes.items():
            if isinstance(outcome, BrokerError):
                refused[group] = outcome
                continue
            follower.note_placed(group, _standing(moves[group], outcome.written))
            if outcome.problems:
                refused[group] = next(iter(outcome.problems.values()))
        return refused


def _standing(
    moves: GroupMoves, written: frozenset[TopicPartition]
) -> Mapping[TopicPartition, Placed]:
    """What is true after the commit: refused partitions stand where they stood."""
    return {
        at: placed
        for at, placed in moves.placed.items()
        if at in written or not moves.moves[at].is_write
    }
