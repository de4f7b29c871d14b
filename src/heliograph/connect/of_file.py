"""The flows of a driver's file as connectors: read, paused, resumed, restarted. Driver only.

Named as Strimzi names them, `A->B.MirrorSourceConnector`, for one server has many flows. What the
file says is changed in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from heliograph.config.keys import Key
from heliograph.config.load import real_environment
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.connect.herder import WorkerFacts
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.plugins import (
    CLASS,
    NAME,
    SOURCE_ALIAS,
    SOURCE_SERVERS,
    TARGET_ALIAS,
    TARGET_SERVERS,
    Plugin,
    keys_of_plugin,
    value_text,
)
from heliograph.connect.problems import ConnectProblem
from heliograph.connect.translate import Errors, errors_of
from heliograph.driver.run import LiveMirror
from heliograph.model import FlowId, LaneId

_OF_THE_FLOW: Final = frozenset({NAME, CLASS, SOURCE_ALIAS, TARGET_ALIAS, "enabled"})


class FileConnectors:
    """A herder whose connectors come from a file. A pause is forgotten when the driver ends."""

    def __init__(self, live: LiveMirror, worker_id: str) -> None:
        self._live = live
        self._facts = WorkerFacts(worker_id=worker_id)
        self._named = {
            connector.name: connector for connector in connectors_of_file(self._live.config)
        }
        self._paused: set[str] = set()

    @property
    def facts(self) -> WorkerFacts:
        return self._facts

    def live(self) -> LiveMirror | None:
        return self._live

    def connectors(self) -> Sequence[Connector]:
        return [
            Connector(name=each.name, config=each.config, target_state=TargetState.PAUSED)
            if each.name in self._paused
            else each
            for each in self._named.values()
        ]

    def problems(self) -> Mapping[str, str]:
        return {}

    def errors_of(self, candidate: Connector) -> Errors:
        """By itself: none of a driver's file is changed by it."""
        return errors_of(candidate, (), (), real_environment())

    async def put(self, connector: Connector) -> None:
        raise _refused(connector)

    async def delete(self, connector: Connector) -> None:
        raise _refused(connector)

    def config_for(self, connector: Connector) -> MirrorConfig:
        return self._live.config

    async def want(self, connector: Connector, state: TargetState) -> None:
        if state is TargetState.STOPPED:
            raise ConnectProblem(
                403,
                f"Connector {connector.name} comes from the driver's file and cannot be stopped; "
                "pause it, or stop the driver",
            )
        if connector.plugin is not Plugin.SOURCE:
            raise ConnectProblem(
                403,
                f"Connector {connector.name} comes from the driver's file: only its "
                "MirrorSourceConnector can be paused; switch the other off in the file",
            )
        if state is TargetState.PAUSED:
            self._paused.add(connector.name)
        else:
            self._paused.discard(connector.name)
            self._resume(self._lanes(connector.flow))
        self.hold()

    async def restart(self, connector: Connector, lanes: Sequence[LaneId] | None) -> None:
        if connector.name not in self._paused and connector.plugin is Plugin.SOURCE:
            self._resume(self._lanes(connector.flow) if lanes is None else lanes)

    def _resume(self, lanes: Sequence[LaneId]) -> None:
        if lanes:
            self._live.resume(lanes)

    def hold(self) -> None:
        """Pause what should be: lanes may have come since, or been resumed by a policy."""
        for name in self._paused:
            lanes = self._lanes(self._named[name].flow)
            if lanes:
                self._live.pause(lanes)

    def _lanes(self, flow: FlowId) -> list[LaneId]:
        status = self._live.status()
        return [] if status is None else [lane for lane in status.progress if lane.flow == flow]


def connectors_of_file(config: MirrorConfig) -> Iterator[Connector]:
    for pair in config.chosen_pairs:
        if pair.enabled:
            yield _connector(Plugin.SOURCE, pair, config)
        if pair.enabled and (pair.checkpoints.enabled or pair.groups.sync_offsets_enabled):
            yield _connector(Plugin.CHECKPOINT, pair, config)
        if pair.heartbeats.enabled:
            yield _connector(Plugin.HEARTBEAT, pair, config)


def _connector(plugin: Plugin, pair: FlowConfig, config: MirrorConfig) -> Connector:
    name = f"{pair.id}.{plugin}"
    servers = {
        key: ",".join(config.clusters[alias].bootstrap_servers)
        for key, alias in ((SOURCE_SERVERS, pair.id.source), (TARGET_SERVERS, pair.id.target))
    }
    told = {
        key.name: value_text(_value(key, pair))
        for key in keys_of_plugin(plugin)
        if key.path and key.name not in _OF_THE_FLOW and _value(key, pair) != key.default
    }
    return Connector(
        name=name,
        config={
            NAME: name,
            CLASS: plugin.class_path,
            SOURCE_ALIAS: pair.id.source,
            TARGET_ALIAS: pair.id.target,
            **servers,
            **told,
        },
    )


def _value(key: Key, pair: FlowConfig) -> object:
    found: object = pair
    for name in key.path:
        found = getattr(found, name)
    return found


def _refused(connector: Connector) -> ConnectProblem:
    return ConnectProblem(
        403,
        f"Connector {connector.name} cannot be changed here: the driver's flows come from its "
        "file; change the file, or run connectors with `heliograph connect`",
    )
