"""Two clusters that allow nothing by themselves, where each role of a mirror is a user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters

ROLES: Final = ("admin", "consumer", "producer")


@contextmanager
def guarded_clusters(root: Path, *more_users: str) -> Iterator[dict[str, LocalCluster]]:
    """A and B; a user's password is its name and `-word`."""
    specs = [
        ClusterSpec(
            alias=alias,
            sasl="PLAIN",
            authorizer=True,
            users={user: f"{user}-word" for user in (*ROLES, *more_users)},
            jvm_options=("-XX:TieredStopAtLevel=1",),
        )
        for alias in ("A", "B")
    ]
    with local_clusters(specs, root=root) as clusters:
        yield clusters


def role_lines(clusters: Mapping[str, LocalCluster]) -> list[str]:
    """Lines of an `mm2.properties`: addresses, and credentials role by role."""
    lines: list[str] = []
    for alias, cluster in clusters.items():
        lines.append(f"{alias}.bootstrap.servers = {cluster.bootstrap}")
        for role in ROLES:
            settings = cluster.client_config_of(role)
            lines += [f"{alias}.{role}.{name} = {value}" for name, value in settings.items()]
    return lines
