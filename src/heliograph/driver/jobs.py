"""Which slow loops a configuration asks for. Runs on the driver.

MirrorMaker 2 has three connectors per pair of clusters for the same work; here each concern is a
loop with its own interval and its own switch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from heliograph.audit.job import audit_runner
from heliograph.audit.loop import audit_jobs
from heliograph.broker.clients import Clients
from heliograph.compat.acls import AclsJob
from heliograph.compat.checkpoints import CheckpointsJob, GroupFollower
from heliograph.compat.heartbeats import HeartbeatsJob
from heliograph.compat.offset_syncs import OffsetSyncsJob
from heliograph.compat.quotas import QuotasJob
from heliograph.compat.topic_configs import TopicConfigsJob
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.drill.schedule import DrillJob
from heliograph.driver.lag_book import no_lag
from heliograph.driver.periodic import PeriodicJob
from heliograph.groups.both_ways import BothWaysMap
from heliograph.groups.lag_group import LagGroupJob
from heliograph.groups.sync import GroupOffsetsJob
from heliograph.health.canary_job import CanaryJob
from heliograph.health.watch import Lags, SlotClocks, WatchJob
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.fence import topic_fences
from heliograph.ledger.flow_map import FlowMap, RunningMap
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, LaneId, LaneProgress
from heliograph.schemas.job import SchemasJob

Progress = Callable[[], Mapping[LaneId, LaneProgress]]


def periodic_jobs(
    config: MirrorConfig,
    clients: Clients,
    ledgers: LedgerService,
    progress: Progress,
    lags: Lags = no_lag,
    slot_clocks: SlotClocks = dict,
) -> tuple[PeriodicJob, ...]:
    """Every loop of every pair; a pair that mirrors nothing may still have heartbeats."""
    return tuple(
        loop
        for pair in config.chosen_pairs
        for loop in (
            *_jobs_of(config, pair, clients, ledgers, progress),
            *_watching(config, pair, clients, ledgers, progress, lags, slot_clocks),
        )
    )


def heartbeat_jobs(
    clients: Clients, ledgers: LedgerService, config: MirrorConfig
) -> tuple[PeriodicJob, ...]:
    """Those of pairs that mirror nothing."""
    found = periodic_jobs(config, clients, ledgers, dict)
    return tuple(job for job in found if not config.flow(job.flow).enabled)


def proofs(
    config: MirrorConfig,
    ledgers: LedgerService,
    session: Callable[[], Any],
    is_wanted: Callable[[], bool],
) -> tuple[PeriodicJob, ...]:
    """What proves the copy while it is made: drills as scheduled, audits as the file asks."""
    clusters = {
        flow.id: (config.source_of(flow.id), config.target_of(flow.id)) for flow in config.flows
    }
    audits = audit_runner(session, clusters, is_wanted)
    drills = [DrillJob(config, flow, ledgers) for flow in config.flows]
    return (*drills, *audit_jobs(config, audits))


def _for_groups(
    config: MirrorConfig, flow: FlowId, clients: Clients, ledgers: LedgerService, there: FlowMap
) -> FlowMap:
    """Where groups go on is another question where the target takes writes too."""
    back = config.way_back(flow)
    if back is None:
        return there
    name = ledger_topic(back.source)

    def has_begun() -> bool:
        return name in clients.admin(clients.source(flow)).describe_topics([name])

    return BothWaysMap(flow, back, there, ledgers, has_begun)


def _jobs_of(
    config: MirrorConfig,
    flow: FlowConfig,
    clients: Clients,
    ledgers: LedgerService,
    progress: Progress,
) -> Iterator[PeriodicJob]:
    if flow.heartbeats.enabled:
        yield HeartbeatsJob(flow, clients)
    if not flow.enabled:
        return
    if flow.topic_configs.enabled:
        yield TopicConfigsJob(flow, clients, lambda: ledgers.ask(flow.id, topic_fences))
    if flow.acls.enabled:
        yield AclsJob(flow, clients, ledgers)
    if flow.schemas.enabled:
        yield SchemasJob(flow, clients.source(flow.id), clients.target(flow.id), ledgers)
    if flow.quotas.enabled:
        yield QuotasJob(flow, clients.source(flow.id), clients.target(flow.id), ledgers)
    if flow.lag_group is not None:
        yield LagGroupJob(flow, clients, progress)
    flow_map = RunningMap(flow, ledgers, progress)
    if flow.offset_syncs.enabled:
        yield OffsetSyncsJob(flow, clients, flow_map)
    follower = GroupFollower(
        flow, clients, _for_groups(config, flow.id, clients, ledgers, flow_map)
    )
    if flow.checkpoints.enabled:
        yield CheckpointsJob(follower)
    if flow.groups.sync_offsets_enabled:
        yield GroupOffsetsJob(follower)


def _watching(
    config: MirrorConfig,
    flow: FlowConfig,
    clients: Clients,
    ledgers: LedgerService,
    progress: Progress,
    lags: Lags,
    slot_clocks: SlotClocks,
) -> Iterator[PeriodicJob]:
    if flow.enabled and flow.canary.enabled:
        yield CanaryJob(flow, clients, ledgers)
    if flow.enabled and flow.alarms.enabled:
        yield WatchJob(config, flow, clients, ledgers, progress, lags, slot_clocks)
