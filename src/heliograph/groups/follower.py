"""What is known of the consumer groups of one flow, for all loops that need it. Runs on the driver.

Which groups are followed, where they stand on both sides, what was told of them as checkpoints, and
where this mirror put them on the target. All but the last is in the clusters, and is read from
there by a driver that starts anew.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.broker.clients import Clients
from heliograph.broker.groups import GroupAdmin
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClusterConfig, FlowConfig
from heliograph.errors import BrokerError, BrokerUnreachable, NotAuthorised
from heliograph.groups.checkpoint_plan import (
    CheckpointKey,
    GroupOffsetPair,
    checkpoint_key,
    group_places,
    raised_to,
    wanted_offsets,
)
from heliograph.groups.checkpoints_topic import NOTHING_TOLD, read_checkpoints
from heliograph.groups.reading import list_groups, read_offsets
from heliograph.groups.sync_plan import Placed
from heliograph.ledger.flow_map import FlowMap
from heliograph.model import TopicPartition
from heliograph.topics.filters import group_filter, topic_filter
from heliograph.topics.naming import naming_policy, source_alias
from heliograph.wire.mirror_records import Checkpoint

log = logging.getLogger(__name__)

_NAMED_MAX: Final = 3
_PLAIN_NAME: Final = re.compile(r"[\w-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """Where the followed groups stand, all at about the same moment."""

    at_ms: int
    """When the offsets were listed, which is the time checkpoints carry."""
    locations: tuple[GroupOffsetPair, ...]
    problems: Mapping[str, BrokerError]
    """Groups whose offsets the source would not show."""

    def by_group(self) -> dict[str, list[GroupOffsetPair]]:
        found: dict[str, list[GroupOffsetPair]] = {}
        for place in self.locations:
            found.setdefault(place.group, []).append(place)
        return found


class GroupFollower:
    """Shared by the loops of one flow, which may step at the same time."""

    def __init__(self, flow: FlowConfig, clients: Clients, flow_map: FlowMap) -> None:
        self.flow: Final = flow
        self.clients: Final = clients
        self.source: Final[ClusterConfig] = clients.source(flow.id)
        self.target: Final[ClusterConfig] = clients.target(flow.id)
        self.checkpoints_topic: Final = naming_policy(flow).checkpoints_topic(source_alias(flow))
        self._flow_map = flow_map
        self._group_filter, self._topic_filter = group_filter(flow), topic_filter(flow)
        self._looking = threading.Lock()
        self._followed: frozenset[str] = frozenset()
        self._refresh_due_s: float | None = 0.0
        self._loading = threading.Lock()
        self._is_loaded = False
        self._lock = threading.Lock()
        """Held for moments only; guards what is below."""
        self._checkpoints: dict[CheckpointKey, Checkpoint] = {}
        self._placed: dict[str, dict[TopicPartition, Placed]] = {}
        self._active: frozenset[str] = frozenset()
        self._garbage_records = 0

    @property
    def followed(self) -> frozenset[str]:
        """Groups that pass the filter and have an offset on a mirrored topic."""
        return self._followed

    @property
    def active(self) -> frozenset[str]:
        """Groups that had members on the target when it was last asked; they are left alone."""
        with self._lock:
            return self._active

    @property
    def garbage_records(self) -> int:
        """Records of the checkpoints topic that are no checkpoints, and were skipped."""
        with self._lock:
            return self._garbage_records

    def look(self) -> GroupLook:
        """List the source's offsets and translate them; raises `BrokerError`."""
        with self._looking:
            source = self.clients.groups(self.source)
            candidates = self._candidates(source)
            at_ms = now_ms()
            found, problems = read_offsets(source, candidates)
            offsets = {
                group: each
                for group, each in found.items()
                if any(self._topic_filter.should_mirror(at.topic) for at in each)
            }
            self._followed = frozenset(offsets.keys() | problems.keys())
        asked = {(at, stood.offset) for each in offsets.values() for at, stood in each.items()}
        lanes, translated = self._flow_map.translate(asked)
        wanted = wanted_offsets(offsets, lanes, self._topic_filter.should_mirror)
        locations = self._in_log(group_places(wanted, lanes, translated))
        return GroupLook(at_ms=at_ms, locations=locations, problems=problems)

    def _in_log(self, locations: tuple[GroupOffsetPair, ...]) -> tuple[GroupOffsetPair, ...]:
        """Coarse offsets, but none from before the target's log begins: the exact ones may be in
        it, and a consumer whose offset is not goes wherever its auto.offset.reset says."""
        coarse = {place.target for place in locations if place.clamped == "coarse"}
        if not coarse:
            return locations
        starts = self.clients.admin(self.target).list_offsets(coarse, "earliest")
        return raised_to(locations, starts)

    def load(self) -> None:
        """Read earlier checkpoints, once: a restart neither rewrites nor moves them back."""
        with self._loading:
            if self._is_loaded:
                return
            try:
                told = read_checkpoints(self.target, self.checkpoints_topic)
            except NotAuthorised as exc:
                # As MirrorMaker 2 does: what is told from here on is right without it.
                log.warning("%s: %s; earlier checkpoints are not known", self.flow.id, exc)
                told = NOTHING_TOLD
            if told.garbage_records:
                log.warning(
                    "%s: %d records of topic %s are no checkpoints and were skipped",
                    self.flow.id,
                    told.garbage_records,
                    self.checkpoints_topic,
                )
            with self._lock:
                self._garbage_records = told.garbage_records
                for key, checkpoint in told.checkpoints.items():
                    group, target = key
                    if not self._group_filter.should_follow(group):
                        continue
                    self._checkpoints[key] = checkpoint
                    self._placed.setdefault(group, {})[target] = Placed(
                        source_offset=checkpoint.upstream_offset,
                        target_offset=checkpoint.downstream_offset,
                    )
            self._is_loaded = True

    def told(self) -> Mapping[CheckpointKey, Checkpoint]:
        """The last checkpoint of each group and partition."""
        with self._lock:
            return dict(self._checkpoints)

    def record_written(self, checkpoints: Iterable[Checkpoint]) -> None:
        with self._lock:
            self._checkpoints.update({checkpoint_key(told): told for told in checkpoints})

    def placed(self, group: str) -> Mapping[TopicPartition, Placed]:
        """Where this mirror last put the group on the target."""
        with self._lock:
            return dict(self._placed.get(group, {}))

    def note_placed(self, group: str, placed: Mapping[TopicPartition, Placed]) -> None:
        with self._lock:
            self._placed.setdefault(group, {}).update(placed)

    def note_active(self, groups: Iterable[str]) -> None:
        with self._lock:
            self._active = frozenset(groups)

    def _candidates(self, source: GroupAdmin) -> frozenset[str]:
        """The followed groups, and now and then all that might be."""
        if self._refresh_due_s is None or monotonic_s() < self._refresh_due_s:
            return self._followed
        listed = list_groups(source)
        groups = self.flow.groups
        due_s = monotonic_s() + groups.refresh_interval_s
        self._refresh_due_s = due_s if groups.refresh_enabled else None
        # A list leaves groups out that we may not describe; asked by name, a broker says so.
        named = filter(_PLAIN_NAME.fullmatch, groups.include)
        # After the list counts as done: where a filter of the operator's own fails at one group,
        # the looks until the next list still follow those that are known.
        wanted = {id for id in (*listed, *named) if self._group_filter.should_follow(id)}
        # A broker that is away hides its groups from the list, but not from whoever knows them.
        return self._followed | wanted


def trouble(problems: Mapping[str, BrokerError], consequence: str) -> BrokerError:
    """One error for many groups: the first ones by name, the others by number."""
    named = list(problems.values())[:_NAMED_MAX]
    more = len(problems) - len(named)
    text = "; ".join(map(str, named)) + (f"; and {more} more groups" if more else "")
    kinds = {type(problem) for problem in problems.values()}
    kind = kinds.pop() if len(kinds) == 1 else BrokerError
    if kind not in (NotAuthorised, BrokerUnreachable):
        kind = BrokerError
    return kind(f"{text}: {consequence}")
