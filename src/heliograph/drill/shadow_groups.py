"""Groups that stand in for the real ones while a drill lasts. Runs on the driver.

A shadow's commits say whose they are. Only what says so is ever deleted: somebody's own group of
such a name is refused, not overwritten. A drill that was killed leaves its shadows behind; the next
one finds them by their prefix and knows by their marks that nobody needs them.
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from heliograph.broker.group_view import SHADOW_PREFIX, GroupOffset, is_shadow
from heliograph.broker.groups import GroupAdmin
from heliograph.clock import now_ms
from heliograph.errors import BrokerError, GroupActive, MirrorError
from heliograph.groups.commit import GroupCommit, commit_groups
from heliograph.model import FlowId, TopicPartition
from heliograph.processes import is_alive

GROUP_BYTES_MAX: Final = 32_767
"""What a request has room for."""
_FORSAKEN_MS: Final = 15 * 60_000
"""No drill takes so long; one on another machine that did not end in this time never will."""
_MARK: Final = "heliograph drill"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillTag:
    """Who drills; in the metadata of each commit of a shadow."""

    id: str
    flow: str
    host: str
    pid: int
    at_ms: int

    def text(self) -> str:
        fields = [self.id, self.flow, self.host, self.pid, self.at_ms]
        return f"{_MARK} {json.dumps(fields)}"

    def is_over(self) -> bool:
        """Whether the drill cannot be running any more."""
        if now_ms() - self.at_ms > _FORSAKEN_MS:
            return True
        return self.host == socket.gethostname() and not is_alive(self.pid)


def new_mark(flow: FlowId) -> DrillTag:
    return DrillTag(
        id=uuid.uuid4().hex[:12],
        flow=str(flow),
        host=socket.gethostname(),
        pid=os.getpid(),
        at_ms=now_ms(),
    )


def shadow_of(group: str) -> str:
    return f"{SHADOW_PREFIX}{group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadows:
    """What is there under the prefix, before a drill begins."""

    forsaken: tuple[str, ...]
    """Of drills that are over."""
    busy: Mapping[str, DrillTag] = field(default_factory=dict)
    """Of drills that may be running."""
    strange: tuple[str, ...] = ()
    """Nobody's shadow, whatever it is called."""


def look_for_shadows(groups: GroupAdmin) -> Shadows:
    """Raises `BrokerError`."""
    named = [group for group in groups.list_groups() if is_shadow(group)]
    views = groups.describe_each(named)
    forsaken: list[str] = []
    busy: dict[str, DrillTag] = {}
    strange: list[str] = []
    for group, offsets in groups.offsets_each(named).items():
        view = views.get(group)
        is_known = view is not None and not isinstance(view, BrokerError) and view.is_idle
        mark = None if isinstance(offsets, BrokerError) else _mark_of(offsets)
        if mark is None or not is_known:
            strange.append(group)
        elif mark.is_over():
            forsaken.append(group)
        else:
            busy[group] = mark
    return Shadows(forsaken=tuple(sorted(forsaken)), busy=busy, strange=tuple(sorted(strange)))


def require_free(shadows: Shadows, wanted: Iterable[str]) -> None:
    """Raises `MirrorError` where a shadow cannot have its name."""
    for group in wanted:
        shadow = shadow_of(group)
        if len(shadow.encode()) > GROUP_BYTES_MAX:
            raise MirrorError(f"group {group[:80]}…: its name is too long for a shadow of it")
        if shadow in shadows.strange:
            raise MirrorError(
                f"a group {shadow} is there that no drill has made; rename it, or leave "
                f"{group} out with --group"
            )
        if shadow in shadows.busy:
            mark = shadows.busy[shadow]
            age_s = max(0, now_ms() - mark.at_ms) / 1000
            raise MirrorError(
                f"a drill of {mark.flow} is under way since {age_s:.0f} s (host {mark.host}, pid "
                f"{mark.pid}) and uses {shadow}; try again when it is over"
            )


def commit_shadows(
    groups: GroupAdmin,
    wanted: Mapping[str, Mapping[TopicPartition, int]],
    mark: DrillTag,
) -> None:
    """Each shadow in one commit; raises `BrokerError` for the first that is refused."""
    text = mark.text()
    done = commit_groups(
        groups,
        {
            shadow_of(group): GroupCommit(
                wanted={at: GroupOffset(offset=to, metadata=text) for at, to in each.items()}
            )
            for group, each in wanted.items()
        },
    )
    for problem in done.problems.values():
        raise problem
    for shadow in sorted(done.active):
        raise GroupActive(f"cluster {groups.alias}: group {shadow} has members")


def remove_shadows(groups: GroupAdmin, shadows: Sequence[str]) -> tuple[str, ...]:
    """Sentences about those that could not be removed; what is gone already is no trouble."""
    problems = groups.delete_each([shadow for shadow in shadows if is_shadow(shadow)])
    return tuple(f"{shadow} is left behind: {why}" for shadow, why in problems.items())


def _mark_of(offsets: Mapping[TopicPartition, GroupOffset]) -> DrillTag | None:
    """The drill all commits of a group are of; None where one is not."""
    texts = {at.metadata for at in offsets.values()}
    if len(texts) != 1:
        return None
    head, _, fields = texts.pop().partition(" [")
    if head != _MARK:
        return None
    try:
        id, flow, host, pid, at_ms = json.loads(f"[{fields}")
        return DrillTag(id=str(id), flow=str(flow), host=str(host), pid=int(pid), at_ms=int(at_ms))
    except (ValueError, TypeError):
        return None
