"""What a cluster's brokers are too old for, said once when a mirror begins. Runs on the driver."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from heliograph.broker.cluster import open_cluster
from heliograph.config.schema import ClusterConfig
from heliograph.doctor.versions import lacks
from heliograph.errors import MirrorError

log: Final = logging.getLogger(__name__)
_ANSWER_S_MAX: Final = 10.0


async def say_what_is_lacking(clusters: Iterable[ClusterConfig]) -> None:
    """A line for each; a cluster that does not answer is left to the lanes, which say why."""
    await asyncio.gather(*(_say(config) for config in clusters))


async def _say(config: ClusterConfig) -> None:
    cluster = open_cluster(config, "admin")
    try:
        async with asyncio.timeout(_ANSWER_S_MAX):
            await cluster.refresh([])
            known = [
                (await cluster.connection(each, "control")).versions for each in cluster.brokers
            ]
    except (MirrorError, TimeoutError) as exc:
        log.debug("versions of the brokers of %s are not known: %s", config.alias, exc)
        return
    finally:
        cluster.close()
    for since, what in lacks(known):
        log.info("brokers of %s are older than Kafka %s and lack %s", config.alias, since, what)
