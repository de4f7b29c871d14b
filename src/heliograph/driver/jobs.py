"""Which slow loops a configuration asks for. Runs on the driver.

MirrorMaker 2 has three connectors per pair of clusters for the same work; here each concern is a
loop with its own interval and its own switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from heliograph.broker.clients import Clients
from heliograph.compat.acls import acls_loop
from heliograph.compat.checkpoints import GroupFollower, checkpoints_loop
from heliograph.compat.heartbeats import heartbeats_loop
from heliograph.compat.offset_syncs import offset_syncs_loop
from heliograph.compat.topic_configs import topic_configs_loop
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.driver.periodic import FlowLoop
from heliograph.groups.sync import group_offsets_loop
from heliograph.ledger.flow_map import RunningMap
from heliograph.ledger.service import LedgerService
from heliograph.model import LaneId, LaneProgress

Progress = Callable[[], Mapping[LaneId, LaneProgress]]


def upkeep_loops(
    config: MirrorConfig, clients: Clients, ledgers: LedgerService, progress: Progress
) -> tuple[FlowLoop, ...]:
    """Every loop of every pair; a pair that mirrors nothing may still have heartbeats."""
    return tuple(
        loop for pair in config.pairs for loop in _loops_of(pair, clients, ledgers, progress)
    )


def _loops_of(
    flow: FlowConfig, clients: Clients, ledgers: LedgerService, progress: Progress
) -> Iterator[FlowLoop]:
    if flow.heartbeats.enabled:
        yield heartbeats_loop(flow, clients)
    if not flow.enabled:
        return
    if flow.topic_configs.enabled:
        yield topic_configs_loop(flow, clients)
    if flow.acls.enabled:
        yield acls_loop(flow, clients, ledgers)
    flow_map = RunningMap(flow, ledgers, progress)
    if flow.offset_syncs.enabled:
        yield offset_syncs_loop(flow, clients, flow_map)
    if flow.checkpoints.enabled:
        follower = GroupFollower(flow, clients, flow_map)
        yield checkpoints_loop(follower)
        if flow.groups.sync_offsets_enabled:
            yield group_offsets_loop(follower)
