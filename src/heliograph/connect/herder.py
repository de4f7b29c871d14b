"""What the dialect asks of whoever keeps connectors; Connect calls it a herder. Runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from heliograph.config.schema import MirrorConfig
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.offsets import Wanted
from heliograph.connect.translate import Errors
from heliograph.driver.live import LiveMirror
from heliograph.model import FlowId, LaneId


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    """What a worker says of itself."""

    worker_id: str
    """`host:port` of its server."""
    kafka_cluster_id: str | None = None
    """Of the cluster that keeps its connectors; None where a file does, or it is not known yet."""
    tracks_topics: bool = True
    allows_topic_reset: bool = True
    alters_by_rewinds: bool = False
    """Whether altered offsets are rewinds that a driver carries out."""


class ConnectorControl(Protocol):
    """What somebody wants of connectors, acted upon and remembered.

    Guarantee: what `want` returned from is on a cluster (decisions in the flow's ledger, or the
    topic of the connectors), outlives the driver, and is followed within about two seconds.
    """

    async def want(self, connector: Connector, state: TargetState, who: str) -> None:
        """Idempotent. `who` wants it, where that is remembered too. Raises `MirrorError`."""
        ...

    async def restart(self, connector: Connector, lanes: Sequence[LaneId] | None) -> None:
        """Try these lanes again at once; None: all of the connector."""
        ...

    async def alter(self, connector: Connector, wanted: Wanted | None, who: str) -> None:
        """A stopped connector goes on behind these offsets; None: with all that its source has.
        Done when it returns. Raises `MirrorError`."""
        ...


class Herder(ConnectorControl, Protocol):
    """The connectors of one driver."""

    @property
    def facts(self) -> WorkerFacts: ...

    def live(self) -> LiveMirror | None:
        """None while the mirror is being started."""
        ...

    def connectors(self) -> Sequence[Connector]: ...

    def problems(self) -> Mapping[str, str]:
        """Why a connector could not be run, by name."""
        ...

    def errors_of(self, candidate: Connector) -> Errors:
        """What is wrong with a configuration, beside those there are."""
        ...

    async def put(self, connector: Connector) -> None:
        """Create or change it. Raises `ConnectProblem` where connectors cannot be changed."""
        ...

    async def delete(self, connector: Connector) -> None: ...

    def config_for(self, connector: Connector) -> MirrorConfig:
        """A configuration with the flow of a connector, whatever is wanted of it. Raises
        `ConnectProblem`."""
        ...


def try_again(live: LiveMirror | None, flow: FlowId, lanes: Sequence[LaneId] | None) -> None:
    """Those of the flow, or of `lanes`, that are not to be paused: to resume would undo that."""
    status = None if live is None else live.status()
    if live is None or status is None:
        return
    orders, chosen = live.decided(flow), set(status.progress if lanes is None else lanes)
    found = [
        lane
        for lane in status.progress
        if lane.flow == flow and lane in chosen and orders.lane(lane.source).paused is None
    ]
    if found:
        live.resume(found)
