"""What a cluster's brokers are too old for, said once when a mirror begins. Runs on the driver."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from heliograph.broker.cluster import open_cluster
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.doctor.versions import lacks
from heliograph.errors import MirrorError

log: Final = logging.getLogger(__name__)
_ANSWER_S_MAX: Final = 10.0


async def say_what_is_lacking(config: MirrorConfig) -> None:
    """A line for each, of the clusters that are mirrored here; one that does not answer is left to
    the lanes, which say why."""
    used = {alias for flow in config.flows for alias in (flow.id.source, flow.id.target)}
    await asyncio.gather(*(_say(config.clusters[alias]) for alias in sorted(used)))


async def _say(config: ClusterConfig) -> None:
    try:
        known = await _versions(config)
    except Exception as exc:  # noqa: BLE001 - no mirror ends for a line in the log
        # What is no error of ours may quote a setting.
        why = exc if isinstance(exc, MirrorError) else type(exc).__name__
        log.debug("versions of the brokers of %s are not known: %s", config.alias, why)
        return
    for since, what in lacks(known):
        log.info("brokers of %s are older than Kafka %s and lack %s", config.alias, since, what)


async def _versions(config: ClusterConfig) -> list[dict[int, tuple[int, int]]]:
    cluster = open_cluster(config, "admin")
    try:
        async with asyncio.timeout(_ANSWER_S_MAX):
            await cluster.refresh([])
            return [
                (await cluster.connection(each, "control")).versions for each in cluster.brokers
            ]
    finally:
        cluster.close()
