"""Commit planned offsets to groups, atomically per group; skip groups with members. Driver only.

The only code that writes group offsets: periodic sync, failover, `offsets`, failback and the drill
come through here. All groups are looked at before the first is written, each is written with one
request, each is read back, and what a broker took only in part is undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from heliograph.broker.group_view import SHARE_METADATA, GroupOffset, is_share
from heliograph.broker.groups import GROUPS_AT_ONCE_MAX, CommitOutcome, GroupAdmin
from heliograph.errors import BrokerError, BrokerUnreachable, GroupActive, NotAuthorised
from heliograph.groups.placement import GroupMove, groups_of
from heliograph.groups.reading import read_offsets, read_states
from heliograph.model import TopicPartition

OnDone = Callable[[Sequence[str]], Awaitable[None]]
Offsets = Mapping[TopicPartition, GroupOffset]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Which groups have members, and which the cluster does not describe to us."""

    active: frozenset[str]
    hidden: Mapping[str, BrokerError] = field(default_factory=dict)

    def may_move(self, group: str) -> bool:
        return group not in self.active and group not in self.hidden


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCommit:
    """Where one group is to stand, and where it stood when that was decided."""

    wanted: Offsets
    before: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """What became of commits that were sent; every group is named at least once."""

    written: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)
    """Partitions that stand as wanted, by group."""
    active: frozenset[str] = frozenset()
    """Groups that a member joined after the look; their brokers refused the whole commit."""
    problems: Mapping[str, BrokerError] = field(default_factory=dict)

    def __or__(self, other: Committed) -> Committed:
        return Committed(
            written={**self.written, **other.written},
            active=self.active | other.active,
            problems={**self.problems, **other.problems},
        )


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
    views, hidden = read_states(groups, ids)
    active = frozenset(group for group, view in views.items() if not view.is_idle)
    return Activity(active=active, hidden=hidden)


def commit_groups(groups: GroupAdmin, commits: Mapping[str, GroupCommit]) -> Committed:
    """Each group whole or not at all, and read back; raises `BrokerError`.

    Whoever calls has looked for members with `active_groups`; a group that a member joins since is
    refused by its broker, whole.
    """
    done = Committed()
    for some in _in_chunks(commits):
        sent = commit_partitions(groups, some)
        undone = {
            group: _put_back(groups, group, some[group], sent, why)
            for group, why in sent.problems.items()
        }
        written = {group: at for group, at in sent.written.items() if group not in undone}
        differing = _differing(groups, {group: some[group].wanted for group in written})
        done |= Committed(
            written={group: at for group, at in written.items() if group not in differing},
            active=sent.active,
            problems={**undone, **differing},
        )
    return done


def commit_partitions(groups: GroupAdmin, commits: Mapping[str, GroupCommit]) -> Committed:
    """As far as brokers take each group; a partition that is refused keeps no other back.

    For periodic sync: a group with one partition that its broker always refuses must go on
    following on the others, and the next step reads every group again before it writes.
    """
    written: dict[str, frozenset[TopicPartition]] = {}
    active: set[str] = set()
    problems: dict[str, BrokerError] = {}
    outcomes = groups.commit_each({group: each.wanted for group, each in commits.items()})
    for group, outcome in outcomes.items():
        if isinstance(outcome, GroupActive):
            active.add(group)
        elif isinstance(outcome, BrokerError):
            problems[group] = outcome
        else:
            written[group] = outcome.written
            if outcome.problems:
                problems[group] = _refusal(outcome)
    return Committed(written=written, active=frozenset(active), problems=problems)


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
    """
    by_group = groups_of(moves)
    needed = {
        group: _commit_of(of_group)
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
    free = {group: each for group, each in needed.items() if seen.may_move(group)}
    for some in _in_chunks(free):
        done = await asyncio.to_thread(commit_groups, groups, some)
        active |= done.active
        problems |= {group: str(why) for group, why in done.problems.items()}
        committed.extend(done.written)
        if on_done is not None:
            await on_done(tuple(done.written))
    return CommitReport(
        committed=tuple(committed),
        unchanged=unchanged,
        active=tuple(sorted(active)),
        problems=problems,
    )


def _commit_of(moves: Iterable[GroupMove]) -> GroupCommit:
    each = list(moves)
    # Partitions the group never stood on have no metadata; the group has one type all the same.
    mark = SHARE_METADATA if any(is_share(move.metadata) for move in each) else None
    return GroupCommit(
        wanted={
            # Without a leader epoch: it counts elections of the source.
            move.target: GroupOffset(offset=move.target_offset, metadata=mark or move.metadata)
            for move in each
        },
        before={
            move.target: GroupOffset(offset=move.committed_offset, metadata=mark or "")
            for move in each
            if move.committed_offset is not None
        },
    )


def _refusal(outcome: CommitOutcome) -> BrokerError:
    """One error for all partitions that a broker refused, of their kind where they have one."""
    kinds = {type(problem) for problem in outcome.problems.values()}
    kind = kinds.pop() if len(kinds) == 1 else BrokerError
    if kind not in (NotAuthorised, BrokerUnreachable):
        kind = BrokerError
    return kind("; ".join(sorted({str(problem) for problem in outcome.problems.values()})))


def _put_back(
    groups: GroupAdmin, group: str, commit: GroupCommit, sent: Committed, why: BrokerError
) -> BrokerError:
    """Undo a commit that a broker took in part, as far as there is something to go back to."""
    written = sent.written.get(group, frozenset())
    if not written:
        return why
    before = {at: offset for at, offset in commit.before.items() if at in written}
    undone = groups.commit_each({group: before})[group]
    restored = frozenset() if isinstance(undone, BrokerError) else undone.written
    left = sorted(str(at) for at in written - restored)
    end = f"moved all the same: {', '.join(left)}" if left else "put back"
    return type(why)(f"{why}; {end}")


def _differing(groups: GroupAdmin, wanted: Mapping[str, Offsets]) -> dict[str, BrokerError]:
    """Groups that do not stand where they were committed, or that cannot be read back."""
    found, hidden = read_offsets(groups, wanted)
    problems: dict[str, BrokerError] = {
        group: BrokerError(f"committed, but not read back: {why}") for group, why in hidden.items()
    }
    for group, offsets in found.items():
        for at, to in wanted[group].items():
            there = offsets.get(at)
            if there is None or there.offset != to.offset:
                stands = "nowhere" if there is None else str(there.offset)
                problems[group] = BrokerError(
                    f"{at} was committed at {to.offset} and stands at {stands} a moment later: "
                    "another client commits in this group"
                )
                break
    return problems


def _in_chunks(commits: Mapping[str, GroupCommit]) -> Iterable[dict[str, GroupCommit]]:
    rest = iter(commits)
    while some := list(islice(rest, GROUPS_AT_ONCE_MAX)):
        yield {group: commits[group] for group in some}
