"""Groups go back to where they came from, as far as the map says where that is. Driver only.

What a group has read on the present primary is found on the old one. A group is moved forward and
never back: the old primary may know of progress that the failover did not, and a manual rewind on
the present primary is not replayed. Groups with members are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from heliograph.broker.groups import GroupAdmin, GroupOffset
from heliograph.groups.commit import GroupCommit, active_groups, commit_groups
from heliograph.groups.reading import read_followed, read_offsets
from heliograph.ledger.translate import Exact, Translated
from heliograph.model import TopicName, TopicPartition

Translate = Callable[[TopicPartition, int], tuple[TopicPartition, Translated] | None]
"""From a partition and offset of the present primary; None where the map has no safe answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsBack:
    moved: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    """Stood there already, or further."""
    active: tuple[str, ...] = ()
    """Have members on the old primary, so they were left alone."""
    problems: Mapping[str, str] = field(default_factory=dict)
    exact_partitions: int = 0
    nearest_partitions: int = 0
    """Where the group goes on at the nearest record that skips none: what it would read next is
    not mirrored back yet, or no longer there."""

    @property
    def told(self) -> str:
        parts = [f"groups: {len(self.moved)} moved, {len(self.unchanged)} stood there already"]
        if self.nearest_partitions:
            parts.append(
                f"partitions: {self.exact_partitions} exact, {self.nearest_partitions} the nearest "
                "that skips nothing, because what comes next is not mirrored back yet or no longer "
                "there"
            )
        if self.active:
            parts.append(f"{len(self.active)} have members and were left alone")
        if self.problems:
            parts.append(f"{len(self.problems)} could not be moved")
        return "; ".join(parts)


def move_groups_back(
    present: GroupAdmin,
    old: GroupAdmin,
    follows: Callable[[str], bool],
    translate: Translate,
    *,
    fresh: Collection[TopicName] = (),
) -> GroupsBack:
    """Commit on the old primary; safe to repeat. Raises `BrokerError` where a side does not answer.

    What is committed in `fresh` topics counts for nothing: those were created again.
    """
    standing = read_followed(present, follows)
    wanted: dict[str, dict[TopicPartition, GroupOffset]] = {}
    exact = nearest = 0
    for group, offsets in standing.offsets.items():
        for at, there in offsets.items():
            found = translate(at, there.offset)
            if found is None:
                continue
            to, translated = found
            exact += isinstance(translated, Exact)
            nearest += not isinstance(translated, Exact)
            place = GroupOffset(offset=translated.offset, metadata=there.metadata)
            wanted.setdefault(group, {})[to] = place
    before, unread = read_offsets(old, wanted)
    commits = {
        group: GroupCommit(wanted=ahead, before=before[group])
        for group in before
        if (ahead := _ahead(wanted[group], before[group], fresh))
    }
    seen = active_groups(old, commits)
    free = {group: commit for group, commit in commits.items() if seen.may_move(group)}
    done = commit_groups(old, free)
    problems = {**standing.hidden, **unread, **seen.hidden, **done.problems}
    return GroupsBack(
        moved=tuple(sorted(done.written)),
        unchanged=tuple(sorted(before.keys() - commits.keys())),
        active=tuple(sorted(seen.active | done.active)),
        problems={group: str(why) for group, why in problems.items()},
        exact_partitions=exact,
        nearest_partitions=nearest,
    )


def _ahead(
    wanted: Mapping[TopicPartition, GroupOffset],
    before: Mapping[TopicPartition, GroupOffset],
    fresh: Collection[TopicName],
) -> dict[TopicPartition, GroupOffset]:
    return {
        at: place
        for at, place in wanted.items()
        if _is_ahead(place, before.get(at), is_fresh=at.topic in fresh)
    }


def _is_ahead(place: GroupOffset, current: GroupOffset | None, *, is_fresh: bool) -> bool:
    if current is None:
        return True
    return place.offset != current.offset if is_fresh else place.offset > current.offset
