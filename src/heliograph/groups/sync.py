"""Put groups on the target where they stand on the source, as long as they have no members there.

Runs on the driver. A group with members on the target is left alone: its members know better, and
the broker would refuse. A group is read, compared and written in one go, so that little can happen
in between; a member that joins just then makes the broker refuse. The next step reads the group
again before it writes, which is this loop's reading back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from heliograph.broker.groups import GROUPS_AT_ONCE_MAX, GroupAdmin
from heliograph.groups.checkpoint_plan import GroupOffsetPair
from heliograph.groups.commit import Committed, GroupCommit, active_groups, commit_partitions
from heliograph.groups.follower import GroupFollower, trouble
from heliograph.groups.reading import read_offsets
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
        seen = active_groups(target, locations)
        problems = {**look.problems, **seen.hidden}
        done = self._write_all(
            target,
            {
                group: of_group
                for group, of_group in locations.items()
                if seen.may_move(group) and group not in problems
            },
        )
        follower.note_active(seen.active | done.active)
        problems |= done.problems
        if problems:
            raise trouble(problems, "their offsets are not written")

    def _write_all(
        self, target: GroupAdmin, idle: Mapping[str, Sequence[GroupOffsetPair]]
    ) -> Committed:
        follower = self.follower
        partitions = {place.target for of_group in idle.values() for place in of_group}
        ends = follower.clients.admin(follower.target).list_offsets(partitions, "latest")
        done = Committed()
        groups = iter(idle)
        # Few groups at once, so that what they are compared with is not old when they are written.
        while some := list(islice(groups, GROUPS_AT_ONCE_MAX)):
            done |= self._write_some(target, {group: idle[group] for group in some}, ends)
        return done

    def _write_some(
        self,
        target: GroupAdmin,
        idle: Mapping[str, Sequence[GroupOffsetPair]],
        ends: Mapping[TopicPartition, int],
    ) -> Committed:
        """Read, compare, write."""
        follower = self.follower
        current, hidden = read_offsets(target, idle)
        moves = {
            group: plan_group(
                idle[group],
                stands,
                follower.placed(group),
                ends,
                on_rewind=follower.flow.groups.on_rewind,
            )
            for group, stands in current.items()
        }
        done = commit_partitions(
            target,
            {
                group: GroupCommit(wanted=each.writes, before=current[group])
                for group, each in moves.items()
            },
        )
        for group, written in done.written.items():
            follower.note_placed(group, _standing(moves[group], written))
        return done | Committed(problems=hidden)


def _standing(
    moves: GroupMoves, written: frozenset[TopicPartition]
) -> Mapping[TopicPartition, Placed]:
    """What is true after the commit: refused partitions stand where they stood."""
    return {
        at: placed
        for at, placed in moves.placed.items()
        if at in written or not moves.moves[at].is_write
    }
