"""A herder that keeps its connectors in memory, for the routes of Connect's dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from heliograph.config.load import real_environment
from heliograph.config.schema import MirrorConfig
from heliograph.connect.herder import WorkerFacts
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.offsets import Wanted
from heliograph.connect.translate import Errors, errors_of
from heliograph.driver.live import LiveMirror
from heliograph.model import LaneId
from tests.unit.api.pretend import CONFIG, live


class PretendHerder:
    def __init__(self, *connectors: Connector, mirror: LiveMirror | None = None) -> None:
        self.kept = {connector.name: connector for connector in connectors}
        self.mirror = mirror or live()
        self.facts = WorkerFacts(worker_id="127.0.0.1:8083", kafka_cluster_id="c" * 22)
        self.restarted: list[Sequence[LaneId] | None] = []
        self.altered: list[tuple[str, Wanted | None, str]] = []
        self.why: dict[str, str] = {}
        self.puts = 0

    def live(self) -> LiveMirror | None:
        return self.mirror

    def connectors(self) -> Sequence[Connector]:
        return list(self.kept.values())

    def problems(self) -> Mapping[str, str]:
        return self.why

    def errors_of(self, candidate: Connector) -> Errors:
        return errors_of(candidate, self.kept.values(), [], real_environment())

    async def put(self, connector: Connector) -> None:
        self.puts += 1
        self.kept[connector.name] = connector

    async def delete(self, connector: Connector) -> None:
        del self.kept[connector.name]

    def config_for(self, connector: Connector) -> MirrorConfig:
        return CONFIG

    async def want(self, connector: Connector, state: TargetState, who: str) -> None:
        self.kept[connector.name] = replace(connector, target_state=state)

    async def restart(self, connector: Connector, lanes: Sequence[LaneId] | None) -> None:
        self.restarted.append(lanes)

    async def alter(self, connector: Connector, wanted: Wanted | None, who: str) -> None:
        self.altered.append((connector.name, wanted, who))
