"""Shadow groups: they stand in for the real groups while a drill lasts. Runs on the driver.

The metadata of a shadow's commits names the drill that made it. Only groups with such a tag are
deleted: a group with that prefix and without a tag is refused, not overwritten. A drill that was
killed leaves its shadows behind; the next one finds them by prefix and tag and removes them.
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
from heliograph.errors import GroupActive, MirrorError
from heliograph.groups.commit import GroupCommit, active_groups, commit_groups
from heliograph.groups.reading import list_groups, read_offsets
from heliograph.model import FlowId, TopicPartition
from heliograph.processes import is_alive

GROUP_BYTES_MAX: Final = 32_767
"""What a request has room for."""
_STALE_MS: Final = 15 * 60_000
"""No drill takes so long; a drill on another machine that is older was killed."""
_TAG: Final = "heliograph drill"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillTag:
    """Which drill made a shadow; in the metadata of each of its commits."""

    id: str
    flow: str
    host: str
    pid: int
    at_ms: int

    def text(self) -> str:
        fields = [self.id, self.flow, self.host, self.pid, self.at_ms]
        return f"{_TAG} {json.dumps(fields)}"

    def is_over(self) -> bool:
        """Whether the drill cannot be running any more."""
        if now_ms() - self.at_ms > _STALE_MS:
            return True
        return self.host == socket.gethostname() and not is_alive(self.pid)


def new_tag(flow: FlowId) -> DrillTag:
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
    """Groups with the shadows' prefix, before a drill begins."""

    stale: tuple[str, ...]
    """Of drills that are over."""
    in_use: Mapping[str, DrillTag] = field(default_factory=dict)
    """Of drills that may be running."""
    unknown_owner: tuple[str, ...] = ()
    """Without a drill's tag, or with members."""


def look_for_shadows(groups: GroupAdmin) -> Shadows:
    """Raises `BrokerError`."""
    named = list_groups(groups, is_shadow)
    seen = active_groups(groups, named)
    committed, _ = read_offsets(groups, named)
    stale: list[str] = []
    in_use: dict[str, DrillTag] = {}
    unknown_owner: list[str] = []
    for group in named:
        tag = _tag_of(committed.get(group, {}))
        if tag is None or not seen.may_move(group):
            unknown_owner.append(group)
        elif tag.is_over():
            stale.append(group)
        else:
            in_use[group] = tag
    return Shadows(
        stale=tuple(sorted(stale)), in_use=in_use, unknown_owner=tuple(sorted(unknown_owner))
    )


def require_free(shadows: Shadows, wanted: Iterable[str]) -> None:
    """Raises `MirrorError` where a shadow cannot have its name."""
    for group in wanted:
        shadow = shadow_of(group)
        if len(shadow.encode()) > GROUP_BYTES_MAX:
            raise MirrorError(f"group {group[:80]}…: its name is too long for a shadow of it")
        if shadow in shadows.unknown_owner:
            raise MirrorError(
                f"a group {shadow} is there that no drill has made; rename it, or leave "
                f"{group} out with --group"
            )
        if shadow in shadows.in_use:
            tag = shadows.in_use[shadow]
            age_s = max(0, now_ms() - tag.at_ms) / 1000
            raise MirrorError(
                f"a drill of {tag.flow} is under way since {age_s:.0f} s (host {tag.host}, pid "
                f"{tag.pid}) and uses {shadow}; try again when it is over"
            )


def commit_shadows(
    groups: GroupAdmin,
    wanted: Mapping[str, Mapping[TopicPartition, int]],
    tag: DrillTag,
) -> None:
    """Each shadow in one commit; raises `BrokerError` for the first that is refused."""
    text = tag.text()
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


def _tag_of(offsets: Mapping[TopicPartition, GroupOffset]) -> DrillTag | None:
    """The tag that all commits of a group have; None where one has another or none."""
    texts = {at.metadata for at in offsets.values()}
    if len(texts) != 1:
        return None
    head, _, fields = texts.pop().partition(" [")
    if head != _TAG:
        return None
    try:
        id, flow, host, pid, at_ms = json.loads(f"[{fields}")
        return DrillTag(id=str(id), flow=str(flow), host=str(host), pid=int(pid), at_ms=int(at_ms))
    except (ValueError, TypeError):
        return None
