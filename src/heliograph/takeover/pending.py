"""Lanes that MirrorMaker 2 mirrored and that were not adopted yet. Runs on the driver.

Carried as they are, they would be copied again from their first record, after the copy that is
there. So they wait for `heliograph adopt`, or for `on.unadopted = append`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heliograph.broker.view import ClusterView
from heliograph.config.schema import ClusterConfig, FlowConfig
from heliograph.ledger.heads import released_lanes
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LedgerView
from heliograph.model import Lane, LaneId, TopicPartition
from heliograph.takeover.mm2_state import offsets_topic, stored_offsets


class PendingAdoption:
    """Of one flow. What MirrorMaker 2 stored is read once: it does not run while we do."""

    def __init__(self, flow: FlowConfig, target: ClusterConfig) -> None:
        self._flow, self._target = flow, target
        self._stored: Mapping[TopicPartition, int] | None = None

    def waiting(
        self, lanes: Iterable[Lane], target: ClusterView, ledgers: LedgerService
    ) -> frozenset[LaneId]:
        """Those of `lanes` that must be adopted before they are carried; raises `BrokerError`."""
        released = ledgers.ask(self._flow.id, released_lanes)
        if self._stored is None:
            ask = self._flow.on_unadopted == "refuse"
            is_there = offsets_topic(self._flow, self._target) in target.topics
            self._stored = stored_offsets(self._flow, self._target) if ask and is_there else {}
        begun = ledgers.ask(self._flow.id, _begun) if self._stored else frozenset()
        return frozenset(
            lane.id
            for lane in lanes
            if lane.id.source in released
            or (lane.id.source in self._stored and lane.id.source not in begun)
        )


def _begun(view: LedgerView) -> frozenset[TopicPartition]:
    return frozenset(view.begun())
