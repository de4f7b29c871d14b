"""Admin clients and writers, one per cluster and settings, for all slow loops. Runs on the driver.

Flows share a cluster's client unless the configuration gives them different settings, so a full
mesh of five clusters has five of each kind, not forty.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from heliograph.broker.acls import AclAdmin
from heliograph.broker.admin import TIMEOUT_S_DEFAULT, ClusterAdmin
from heliograph.broker.groups import GroupAdmin
from heliograph.broker.records import RecordWriter
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.log_once import LogOnce
from heliograph.model import ClusterAlias, FlowId

T = TypeVar("T")


class Clients:
    """Made on first use, closed together. Safe to share between threads."""

    def __init__(self, config: MirrorConfig) -> None:
        self.said: Final = LogOnce()
        """Remarks about clusters: flows share them, so that none repeats another's."""
        self._lock = threading.Lock()
        self._admins: list[tuple[ClusterConfig, ClusterAdmin]] = []
        self._groups: list[tuple[ClusterConfig, GroupAdmin]] = []
        self._acls: list[tuple[ClusterConfig, AclAdmin]] = []
        self._writers: list[tuple[ClusterConfig, RecordWriter]] = []
        self._config, self._timeouts_s = config, _timeouts_s(config)

    def use(self, config: MirrorConfig) -> list[RecordWriter]:
        """Be those of this configuration: whose settings are as before go on.

        Returns writers that nobody gets any more, to be closed once those who have them are done.
        """
        wanted: list[ClusterConfig] = []
        for pair in config.pairs:
            wanted += [
                config.source_of(pair.id),
                config.target_of(pair.id),
                config.offset_syncs_of(pair.id),
            ]
        timeouts_s = _timeouts_s(config)
        with self._lock:
            kept = {alias for alias, s in timeouts_s.items() if self._timeouts_s.get(alias) == s}
            self._config, self._timeouts_s = config, timeouts_s
            self._admins = [m for m in self._admins if m[0] in wanted and m[0].alias in kept]
            self._groups = [made for made in self._groups if made[0] in wanted]
            self._acls = [made for made in self._acls if made[0] in wanted]
            stale = [writer for settings, writer in self._writers if settings not in wanted]
            self._writers = [made for made in self._writers if made[0] in wanted]
        return stale

    def source(self, flow: FlowId) -> ClusterConfig:
        return self._config.source_of(flow)

    def target(self, flow: FlowId) -> ClusterConfig:
        return self._config.target_of(flow)

    def offset_syncs(self, flow: FlowId) -> ClusterConfig:
        """The cluster with the topic, with the settings of the producer that writes it."""
        return self._config.offset_syncs_of(flow)

    def admin(self, cluster: ClusterConfig) -> ClusterAdmin:
        timeout_s = self._timeouts_s.get(cluster.alias, TIMEOUT_S_DEFAULT)
        return self._one(self._admins, cluster, partial(ClusterAdmin, timeout_s=timeout_s))

    def groups(self, cluster: ClusterConfig) -> GroupAdmin:
        return self._one(self._groups, cluster, GroupAdmin)

    def acls(self, cluster: ClusterConfig) -> AclAdmin:
        return self._one(self._acls, cluster, AclAdmin)

    def writer(self, cluster: ClusterConfig) -> RecordWriter:
        return self._one(self._writers, cluster, RecordWriter)

    def close(self) -> None:
        for _, writer in self._writers:
            writer.close()

    def _one(
        self,
        made: list[tuple[ClusterConfig, T]],
        cluster: ClusterConfig,
        make: Callable[[ClusterConfig], T],
    ) -> T:
        with self._lock:
            found = next((client for settings, client in made if settings == cluster), None)
            if found is None:
                found = make(cluster)
                made.append((cluster, found))
            return found


def _timeouts_s(config: MirrorConfig) -> dict[ClusterAlias, float]:
    found: dict[ClusterAlias, float] = {}
    for flow in config.pairs:
        for alias in (flow.id.source, flow.id.target):
            found[alias] = max(flow.connector.admin_timeout_ms / 1000, found.get(alias, 0.0))
    return found
