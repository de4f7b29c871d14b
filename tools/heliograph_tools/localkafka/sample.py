"""An `mm2.properties` for clusters on this machine that runs as it stands. Runs on the driver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from heliograph_tools.localkafka.cluster import LocalCluster
from heliograph_tools.localkafka.storage import write_private

_REPLICAS_MAX: Final = 3
_REPLICATED: Final = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")


def write_sample(clusters: Mapping[str, LocalCluster]) -> Path | None:
    """Mirrors the first cluster to the second; it is beside their folders, and goes with them.

    It holds the admin user's credentials, so nobody else may read it. None where there is nothing
    to mirror to.
    """
    if len(clusters) < 2:
        return None
    path = next(iter(clusters.values())).folder.with_name("mm2.properties")
    write_private(path, sample(clusters))
    return path


def sample(clusters: Mapping[str, LocalCluster]) -> str:
    source, target, *_ = clusters
    replicas = min(_REPLICAS_MAX, *(len(each.brokers) for each in clusters.values()))
    lines = [f"clusters = {', '.join(clusters)}"]
    for alias, cluster in clusters.items():
        lines.append(f"{alias}.bootstrap.servers = {cluster.bootstrap}")
        if cluster.spec.security_protocol != "PLAINTEXT":
            for key, value in cluster.client_config.items():
                lines.append(f"{alias}.{key} = {value}".replace("\\", "\\\\"))
    lines += [
        "",
        f"{source}->{target}.enabled = true",
        f"{source}->{target}.topics = .*",
        f"{source}->{target}.sync.group.offsets.enabled = true",
        "refresh.topics.interval.seconds = 10",
        "refresh.groups.interval.seconds = 10",
        "",
        f"# No topic can have more replicas than a cluster has brokers, here {replicas}.",
        *(f"{prefix}replication.factor = {replicas}" for prefix in _REPLICATED),
    ]
    return "\n".join(lines) + "\n"
