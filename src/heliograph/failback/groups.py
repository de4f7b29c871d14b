"""Groups go back to where they came from, as far as the map says where that is. Driver only.

What a group has read on the present primary is found on the old one. A group is moved forward and
never back: the old primary may know of progress that the failover did not, and who was set back by
somebody is set back by somebody again. Groups with members are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from heliograph.broker.groups import GroupAdmin, GroupOffset
from heliograph.errors import BrokerError
from heliograph.ledger.translate import Translated
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
    problems: dict[str, str] = {}
    wanted: dict[str, dict[TopicPartition, GroupOffset]] = {}
    exact = nearest = 0
    ids = [group for group in present.list_groups() if follows(group)]
    for group, offsets in present.offsets_each(ids).items():
        if isinstance(offsets, BrokerError):
            problems[group] = str(offsets)
            continue
        for at, there in offsets.items():
            found = translate(at, there.offset)
            if found is None:
                continue
            to, translated = found
            exact += translated.clamped is None
            nearest += translated.clamped is not None
            place = GroupOffset(offset=translated.offset, metadata=there.metadata)
            wanted.setdefault(group, {})[to] = place
    writes, unchanged = _writes(old, wanted, fresh, problems)
    active = _active(old, writes, problems)
    free = {g: offsets for g, offsets in writes.items() if g not in active and g not in problems}
    moved: list[str] = []
    for group, outcome in old.commit_each(free).items():
        if isinstance(outcome, BrokerError):
            problems[group] = str(outcome)
        elif outcome.problems:
            problems[group] = "; ".join(f"{at}: {why}" for at, why in outcome.problems.items())
        else:
            moved.append(group)
    return GroupsBack(
        moved=tuple(sorted(moved)),
        unchanged=tuple(sorted(unchanged)),
        active=tuple(sorted(active)),
        problems=problems,
        exact_partitions=exact,
        nearest_partitions=nearest,
    )


def _writes(
    old: GroupAdmin,
    wanted: Mapping[str, Mapping[TopicPartition, GroupOffset]],
    fresh: Collection[TopicName],
    problems: dict[str, str],
) -> tuple[dict[str, Mapping[TopicPartition, GroupOffset]], list[str]]:
    writes: dict[str, Mapping[TopicPartition, GroupOffset]] = {}
    unchanged: list[str] = []
    for group, current in old.offsets_each(wanted).items():
        if isinstance(current, BrokerError):
            problems[group] = str(current)
            continue
        ahead = {
            at: place
            for at, place in wanted[group].items()
            if _is_ahead(place, current.get(at), is_fresh=at.topic in fresh)
        }
        if ahead:
            writes[group] = ahead
        else:
            unchanged.append(group)
    return writes, unchanged


def _is_ahead(place: GroupOffset, current: GroupOffset | None, *, is_fresh: bool) -> bool:
    if current is None:
        return True
    return place.offset != current.offset if is_fresh else place.offset > current.offset


def _active(old: GroupAdmin, writes: Collection[str], problems: dict[str, str]) -> set[str]:
    active: set[str] = set()
    for group, view in old.describe_each(writes).items():
        if isinstance(view, BrokerError):
            problems[group] = str(view)
        elif not view.is_idle:
            active.add(group)
    return active
