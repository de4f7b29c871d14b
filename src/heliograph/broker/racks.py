"""Whether a reader's rack is one that the brokers know (KIP-392). Does I/O; runs on the driver."""

from __future__ import annotations

import asyncio

from heliograph.broker.cluster import open_cluster
from heliograph.config.schema import ClusterConfig, FlowConfig
from heliograph.errors import MirrorError


def words_on_rack(flow: FlowConfig, source: ClusterConfig, *, timeout_s: float = 10.0) -> str:
    """A sentence where no broker is in the rack that the flow reads from; nothing where one is, or
    no rack is set. Blocks."""
    rack = flow.clients.source_consumer.get("client.rack", "").strip()
    if not rack:
        return ""
    try:
        racks = asyncio.run(_racks(source, timeout_s))
    except (MirrorError, TimeoutError):
        # Only a remark depends on it; the lanes stall on what keeps a reader from this cluster.
        return ""
    if rack in racks:
        return ""
    known = f"they are in {', '.join(sorted(racks))}" if racks else "they have none"
    return (
        f"no broker of {source.alias} is in the rack {rack} ({known}): client.rack changes "
        "nothing, lanes are read from their leaders"
    )


async def _racks(source: ClusterConfig, timeout_s: float) -> frozenset[str]:
    cluster = open_cluster(source, "consumer")
    try:
        async with asyncio.timeout(timeout_s):
            await cluster.refresh([])
        return cluster.racks
    finally:
        cluster.close()
