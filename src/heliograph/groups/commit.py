"""Put groups on the target where they were placed, none half and none that is in use. Driver only.

All groups are looked at before the first is written, each is written with one request, and each is
read back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from heliograph.broker.group_view import GroupOffset
from heliograph.broker.groups import GROUPS_AT_ONCE_MAX, CommitOutcome, GroupAdmin
from heliograph.errors import BrokerError, GroupActive
from heliograph.groups.placement import GroupMove, groups_of
from heliograph.model import TopicPartition

OnDone = Callable[[Sequence[str]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Which groups somebody uses, and which nobody may tell of."""

    active: frozenset[str]
    hidden: Mapping[str, BrokerError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitReport:
    committed: tuple[str, ...] = ()
    """Written, and read back as written."""
    unchanged: tuple[str, ...] = ()
    """Stood there before, or were committed by an earlier attempt."""
    active: tuple[str, ...] = ()
    """Have members, so they were left alone."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why groups were not written, or not whole; by group."""
    is_refused: bool = False
    """Whether nothing at all was written, because of groups that are active or hidden."""

    @property
    def is_complete(self) -> bool:
        return not (self.active or self.problems)


def active_groups(groups: GroupAdmin, ids: Iterable[str]) -> Activity:
    """Who has members at this moment; raises `BrokerError` where the cluster does not answer."""
    active: set[str] = set()
    hidden: dict[str, BrokerError] = {}
    for group, view in groups.describe_each(ids).items():
        if isinstance(view, BrokerError):
            hidden[group] = view
        elif not view.is_idle:
            active.add(group)
    return Activity(active=frozenset(active), hidden=hidden)


async def commit_moves(
    groups: GroupAdmin,
    moves: Iterable[GroupMove],
    *,
    already: Collection[str] = (),
    on_done: OnDone | None = None,
    skip_active: bool = False,
) -> CommitReport:
    """Commit every group that does not stand there yet; raises `BrokerError`.

    Nothing is written while a group is active or hidden, unless those are to be skipped. `on_done`
    is told of groups as they are done, so that whoever is cut off can leave them out as `already`.
    A group that somebody joins meanwhile is refused by its broker, whole.
    """
    by_group = groups_of(moves)
    needed = {
        group: of_group
        for group, of_group in by_group.items()
        if group not in already and any(move.is_needed for move in of_group)
    }
    unchanged = tuple(group for group in by_group if group not in needed)
    seen = await asyncio.to_thread(active_groups, groups, needed)
    problems = {group: str(why) for group, why in seen.hidden.items()}
    if (seen.active or problems) and not skip_active:
        return CommitReport(
            unchanged=unchanged,
            active=tuple(sorted(seen.active)),
            problems=problems,
            is_refused=True,
        )
    active = set(seen.active)
    committed: list[str] = []
    free = iter([group for group in needed if group not in active and group not in problems])
    while some := list(islice(free, GROUPS_AT_ONCE_MAX)):
        told = await asyncio.to_thread(_commit_some, groups, {g: needed[g] for g in some})
        active |= told.active
        problems |= told.problems
        committed.extend(told.committed)
        if on_done is not None:
            await on_done(told.committed)
    return CommitReport(
        committed=tuple(committed),
        unchanged=unchanged,
        active=tuple(sorted(active)),
        problems=problems,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Some:
    committed: tuple[str, ...]
    active: frozenset[str]
    problems: Mapping[str, str]


def _commit_some(groups: GroupAdmin, moves: Mapping[str, Sequence[GroupMove]]) -> _Some:
    wanted = {
        group: {
            # Without a leader epoch: it counts elections of the source.
            move.target: GroupOffset(offset=move.target_offset, metadata=move.metadata)
            for move in of_group
        }
        for group, of_group in moves.items()
    }
    active: set[str] = set()
    problems: dict[str, str] = {}
    for group, outcome in groups.commit_each(wanted).items():
        if isinstance(outcome, GroupActive):
            active.add(group)
        elif isinstance(outcome, BrokerError):
            problems[group] = str(outcome)
        elif outcome.problems:
            problems[group] = _put_back(groups, moves[group], outcome)
    written = [group for group in wanted if group not in active and group not in problems]
    for group, found in groups.offsets_each(written).items():
        differs = _difference(wanted[group], found)
        if differs:
            problems[group] = differs
    return _Some(
        committed=tuple(group for group in written if group not in problems),
        active=frozenset(active),
        problems=problems,
    )


def _put_back(groups: GroupAdmin, moves: Sequence[GroupMove], outcome: CommitOutcome) -> str:
    """Undo a commit that a broker took in part, as far as there is something to go back to."""
    before = {
        move.target: GroupOffset(offset=move.committed_offset)
        for move in moves
        if move.target in outcome.written and move.committed_offset is not None
    }
    undone = groups.commit_each({moves[0].group: before})[moves[0].group]
    restored = frozenset() if isinstance(undone, BrokerError) else undone.written
    left = sorted(str(at) for at in outcome.written - restored)
    why = "; ".join(sorted({str(problem) for problem in outcome.problems.values()}))
    return f"{why}; moved all the same: {', '.join(left)}" if left else f"{why}; put back"


def _difference(
    wanted: Mapping[TopicPartition, GroupOffset],
    found: Mapping[TopicPartition, GroupOffset] | BrokerError,
) -> str:
    if isinstance(found, BrokerError):
        return f"committed, but not read back: {found}"
    for at, offset in wanted.items():
        there = found.get(at)
        if there is None or there.offset != offset.offset:
            stands = "nowhere" if there is None else str(there.offset)
            return (
                f"{at} was committed at {offset.offset} and stands at {stands} a moment later: "
                "somebody else commits in this group"
            )
    return ""
