"""Give a running mirror another configuration, whole or not at all. Runs on the driver's loop.

First all that may fail is tried: keys that need a restart, what clients cannot be made of, clusters
that do not answer as they are to be reached now. Then each part is told, in an order in which
nothing is asked for what it does not know yet; lanes of flows that are not concerned never hear of
it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from heliograph.broker.blocking import blocking
from heliograph.broker.clients import Clients
from heliograph.broker.cluster import open_cluster
from heliograph.broker.kerberos import require_kerberos
from heliograph.config.clients import aiokafka_settings, confluent_settings
from heliograph.config.difference import Difference, difference
from heliograph.config.mm2.keys import ROLES
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.config.tls.oauth import require_signer
from heliograph.copy.flow import fetch_limits
from heliograph.driver.activity import FlowActivity
from heliograph.driver.periodic import PeriodicJob, PeriodicJobs
from heliograph.driver.reconcile import Reconciler
from heliograph.engine.sealed import SlotSettings
from heliograph.engine.slots import Slots
from heliograph.errors import (
    BrokerError,
    BrokerUnreachable,
    ConfigError,
    InvariantError,
    MirrorError,
)
from heliograph.ledger.access import LedgerAccess
from heliograph.ledger.lease import Leases
from heliograph.model import FlowId

log = logging.getLogger("heliograph")

_TRY_S_MAX: Final = 15.0
_SETTLE_S_MAX: Final = 10.0
"""A flow that ended appends what was fetched for it; after so long, what was not is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningParts:
    """All of a running mirror that has a configuration."""

    leases: Leases
    ledgers: LedgerAccess
    slots: Slots
    activity: FlowActivity
    clients: Clients
    jobs: PeriodicJobs
    jobs_of: Callable[[MirrorConfig], Sequence[PeriodicJob]]
    """All jobs of a configuration."""
    reconciler: Reconciler | None
    """None where Spark does not run, since no flow mirrors records."""
    adopt: Callable[[MirrorConfig], None]
    """Told what the mirror runs with from now on."""


async def apply(parts: RunningParts, before: MirrorConfig, after: MirrorConfig) -> Difference:
    """Run with `after`. Raises `ConfigError` and, where a cluster does not let it, `BrokerError`;
    then nothing has changed."""
    found = difference(before, after)
    await _require_usable(parts, after, found)
    for note in after.notes:
        if note not in before.notes:
            log.info("%s", note)
    if not found.changes and not found.concerned:
        parts.adopt(after)
        return found
    try:
        await _switch(parts, after, found)
    except MirrorError as exc:
        # Neither the one nor the other: a mirror that starts anew is better.
        raise InvariantError(f"a changed configuration was followed by half: {exc}") from exc
    return found


async def _switch(parts: RunningParts, after: MirrorConfig, found: Difference) -> None:
    """All that may fail was tried before."""
    # Their steps first, which ask for clients and ledgers of what there was.
    await parts.jobs.end(found.concerned)
    stale = parts.clients.use(after)
    parts.adopt(after)
    parts.slots.configure(_slot_settings(after))
    await parts.ledgers.use(after.clusters)
    parts.leases.use(after)
    if parts.reconciler is not None:
        parts.reconciler.use(after, found.concerned)
        # Lanes that leave do so at once; the reconciler's own task plans what is due.
        await parts.reconciler.drop_lost_flows(parts.slots)
        parts.leases.leaderships.changed.notify()
    jobs = [job for job in parts.jobs_of(after) if job.flow in found.concerned]
    parts.jobs.begin(jobs)
    for writer in stale:
        await blocking(writer.close)
    for flow in found.ended:
        await _end(parts, flow)


async def _require_usable(parts: RunningParts, after: MirrorConfig, found: Difference) -> None:
    if found.refused:
        raise ConfigError("a change that cannot act while running", found.refused)
    require_kerberos(after.clusters.values())
    require_signer(after.clusters.values())
    fetch_limits(after)
    for cluster in _clusters_of(after, found.concerned):
        for role in ROLES:
            try:
                confluent_settings(cluster, role)
                aiokafka_settings(cluster, role)
            except (ssl.SSLError, ValueError) as exc:
                why = f"{role}: cannot be used: {type(exc).__name__}"
                raise ConfigError(f"cluster {cluster.alias}", (why,)) from exc
    used = {alias for pair in found.concerned for alias in (pair.source, pair.target)}
    tried = [_try(after.clusters[alias]) for alias in found.reconnected if alias in used]
    await asyncio.gather(*tried)
    for cluster in _clusters_of(after, found.concerned):
        await blocking(parts.clients.admin, cluster)  # kept, and found there once it acts


def _clusters_of(config: MirrorConfig, pairs: Collection[FlowId]) -> Iterator[ClusterConfig]:
    for pair in config.pairs:
        if pair.id in pairs:
            yield config.source_of(pair.id)
            yield config.target_of(pair.id)
            yield config.offset_syncs_of(pair.id)


async def _try(config: ClusterConfig) -> None:
    """Log in as each role. A password that the cluster does not know yet must not take the place of
    one that it takes."""
    tried: list[object] = []
    for role in ROLES:
        if config.security_of(role) in tried:
            continue
        tried.append(config.security_of(role))
        cluster = open_cluster(config, role)
        try:
            async with asyncio.timeout(_TRY_S_MAX):
                await cluster.refresh(())
        except TimeoutError as exc:
            raise BrokerUnreachable(f"cluster {config.alias}: no answer in time") from exc
        except BrokerError:
            raise
        except MirrorError as exc:
            raise BrokerError(str(exc)) from exc
        finally:
            cluster.close()


def _slot_settings(config: MirrorConfig) -> SlotSettings:
    return SlotSettings(
        clusters=config.clusters,
        limits=fetch_limits(config),
        bytes_max=config.engine.bytes_max,
    )


async def _end(parts: RunningParts, flow: FlowId) -> None:
    """Let go of a flow once the last of its lanes has left the slots."""
    try:
        async with asyncio.timeout(_SETTLE_S_MAX):
            await parts.activity.idle(flow)
    except TimeoutError:
        # A target that does not answer would keep its lanes for ever.
        if parts.reconciler is not None:
            parts.reconciler.abandon(frozenset({flow}))
            await parts.reconciler.drop_lost_flows(parts.slots)
        await parts.activity.idle(flow)
    if parts.reconciler is not None:
        parts.reconciler.abandon(frozenset())
    await parts.leases.end(flow)
    await parts.ledgers.forget(flow)
