"""Which slow loops a configuration asks for. Runs on the driver.

MirrorMaker 2 has three connectors per pair of clusters for the same work; here each concern is a
loop with its own interval and its own switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from heliograph.broker.clients import Clients
from heliograph.compat.acls import AclsJob
from heliograph.compat.checkpoints import CheckpointsJob, GroupFollower
from heliograph.compat.heartbeats import HeartbeatsJob
from heliograph.compat.offset_syncs import OffsetSyncsJob
from heliograph.compat.topic_configs import TopicConfigsJob
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.driver.periodic import PeriodicJob
from heliograph.groups.sync import GroupOffsetsJob
from heliograph.ledger.flow_map import RunningMap
from heliograph.ledger.service import LedgerService
from heliograph.model import LaneId, LaneProgress

Progress = Callable[[], Mapping[LaneId, LaneProgress]]


def periodic_jobs(
    config: MirrorConfig, clients: Clients, ledgers: LedgerService, progress: Progress
) -> tuple[PeriodicJob, ...]:
    """Every loop of every pair; a pair that mirrors nothing may still have heartbeats."""
    return tuple(
        loop for pair in config.chosen_pairs for loop in _jobs_of(pair, clients, ledgers, progress)
    )


def _jobs_of(
    flow: FlowConfig, clients: Clients, ledgers: LedgerService, progress: Progress
) -> Iterator[PeriodicJob]:
    if flow.heartbeats.enabled:
        yield HeartbeatsJob(flow, clients)
    if not flow.enabled:
        return
    if flow.topic_configs.enabled:
        yield TopicConfigsJob(flow, clients)
    if flow.acls.enabled:
        yield AclsJob(flow, clients, ledgers)
    flow_map = RunningMap(flow, ledgers, progress)
    if flow.offset_syncs.enabled:
        yield OffsetSyncsJob(flow, clients, flow_map)
    follower = GroupFollower(flow, clients, flow_map)
    if flow.checkpoints.enabled:
        yield CheckpointsJob(follower)
    if flow.groups.sync_offsets_enabled:
        yield GroupOffsetsJob(follower)
