"""The clusters a process has open, whose settings may change meanwhile. Driver and executors."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClientRole, ClusterConfig
from heliograph.model import ClusterAlias


class OpenClusters:
    """One `Cluster` for each alias and role, opened on first use. Used by one event loop.

    Each role has connections of its own: it may have credentials of its own.
    """

    def __init__(self, configs: Mapping[ClusterAlias, ClusterConfig]) -> None:
        self.configs = configs
        self._opened: dict[tuple[ClusterAlias, ClientRole], Cluster] = {}

    def get(self, alias: ClusterAlias, role: ClientRole) -> Cluster:
        if (alias, role) not in self._opened:
            self._opened[alias, role] = open_cluster(self.configs[alias], role)
        return self._opened[alias, role]

    @property
    def opened(self) -> Mapping[tuple[ClusterAlias, ClientRole], Cluster]:
        return self._opened

    def use(self, configs: Mapping[ClusterAlias, ClusterConfig]) -> list[Coroutine[Any, Any, None]]:
        """Reach clusters so from here on; what is to be awaited for those whose settings differ.

        One that is not among `configs` stays as it is until `drop`.
        """
        before, self.configs = self.configs, configs
        due: list[Coroutine[Any, Any, None]] = []
        for (alias, role), cluster in self._opened.items():
            old, new = before.get(alias), configs.get(alias)
            if new is not None:
                cluster.registry = new.registry
            if new is not None and (old is None or _of_role(old, role) != _of_role(new, role)):
                settings = aiokafka_settings(new, role)
                due.append(cluster.reconnect(new.bootstrap_servers, settings))
        return due

    def drop(self) -> None:
        """Let go of clusters that the configuration has no more."""
        for key in [key for key in self._opened if key[0] not in self.configs]:
            self._opened.pop(key).close()

    def close(self) -> None:
        for cluster in self._opened.values():
            cluster.close()


def _of_role(config: ClusterConfig, role: ClientRole) -> tuple[object, ...]:
    return config.bootstrap_servers, config.security_of(role), config.overrides_of(role)
