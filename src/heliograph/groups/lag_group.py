"""Commit what is mirrored as a consumer group on the source, for every tool that shows lag.

Runs on the driver. Where a lane goes on is known from the target alone, so nothing needs it back;
what others commit as the same group is looked at by `takeover.group_start`. The group has no
members, so a broker takes the commits; one that somebody joined is left to them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from heliograph.broker.clients import Clients
from heliograph.broker.group_view import GroupOffset
from heliograph.clock import monotonic_s
from heliograph.config.schema import FlowConfig
from heliograph.errors import BrokerError, InvariantError
from heliograph.groups.follower import trouble
from heliograph.model import FlowId, LaneId, LaneProgress, TopicPartition

MIRRORED: Final = "mirrored by heliograph"
"""Metadata of each commit, which most tools show; tells it from one of a reader."""
_AGAIN_S: Final = 3_600.0
"""A broker forgets what a group without members committed a week ago (offsets.retention.minutes),
however idle the partition is: then whoever goes on as that group would not find its place."""


class LagGroupJob:
    what: Final = "lag group"

    def __init__(
        self,
        flow: FlowConfig,
        clients: Clients,
        progress: Callable[[], Mapping[LaneId, LaneProgress]],
    ) -> None:
        if flow.lag_group_id is None:
            raise InvariantError(f"{flow.id}: no lag group is asked for")
        self.flow: Final[FlowId] = flow.id
        self._group: Final = flow.lag_group_id
        self.interval_s: Final = flow.lag_group_interval_ms / 1000
        self._clients, self._progress = clients, progress
        self._committed: dict[TopicPartition, int] = {}
        self._whole_since_s = monotonic_s()

    def step(self) -> None:
        """What has changed, and now and then all; what a broker did not take is tried again."""
        if monotonic_s() - self._whole_since_s >= _AGAIN_S:
            self._whole_since_s = monotonic_s()
            self._committed.clear()
        self.drained(self._progress())

    def drained(self, progress: Mapping[LaneId, LaneProgress]) -> None:
        """As far as it came: whoever goes on as the group goes on there."""
        news = {
            lane.source: at.source_next_offset
            for lane, at in progress.items()
            if lane.flow == self.flow
            and at.target_next_offset >= 0
            and self._committed.get(lane.source) != at.source_next_offset
        }
        if not news:
            return
        groups = self._clients.groups(self._clients.source(self.flow))
        done = groups.commit(
            self._group,
            {at: GroupOffset(offset=offset, metadata=MIRRORED) for at, offset in news.items()},
        )
        self._committed.update((at, news[at]) for at in done.written)
        if done.problems:
            problems: dict[str, BrokerError] = {
                str(at): problem for at, problem in done.problems.items()
            }
            raise trouble(problems, f"group {self._group} does not show how far they are")

    def finish(self) -> None:
        """Once more when the run ends, so that lag is not shown of what was mirrored."""
        self.step()
