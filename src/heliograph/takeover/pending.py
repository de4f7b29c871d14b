"""Lanes that MirrorMaker 2 mirrored and that were not adopted yet. Runs on the driver.

Carried as they are, they would be copied again from their first record, after the copy that is
there. So they wait for `heliograph adopt`, or for `on.unadopted = append`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from heliograph.broker.view import ClusterView
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.ledger.heads import released_lanes
from heliograph.ledger.service import LedgerService
from heliograph.ledger.view import LedgerView
from heliograph.model import FlowId, Lane, LaneId, TopicName, TopicPartition
from heliograph.takeover.mm2_state import offsets_topic, stored_offsets
from heliograph.words import counted


class PendingAdoption:
    """Of one flow. What MirrorMaker 2 stored is read once: it does not run while we do."""

    def __init__(self, flow: FlowConfig, target: ClusterConfig) -> None:
        self._flow, self._target = flow, target
        self._stored: Mapping[TopicPartition, int] | None = None

    def waiting(
        self, lanes: Iterable[Lane], target: ClusterView, ledgers: LedgerService
    ) -> frozenset[LaneId]:
        """Those of `lanes` that must be adopted before they are carried; raises `BrokerError`."""
        self._read(target.topics)
        unadopted = ledgers.ask(self._flow.id, self._unadopted)
        return frozenset(lane.id for lane in lanes if lane.id.source in unadopted)

    def partitions(
        self, target_topics: Collection[TopicName], view: LedgerView
    ) -> frozenset[TopicPartition]:
        """Every source partition that must be adopted before it is carried, whether or not there
        is a lane for it. Raises `BrokerError`."""
        self._read(target_topics)
        return self._unadopted(view)

    def _read(self, target_topics: Collection[TopicName]) -> None:
        if self._stored is None:
            ask = self._flow.on_unadopted == "refuse"
            is_there = offsets_topic(self._flow, self._target) in target_topics
            self._stored = stored_offsets(self._flow, self._target) if ask and is_there else {}

    def _unadopted(self, view: LedgerView) -> frozenset[TopicPartition]:
        stored = frozenset(self._stored or ())
        return released_lanes(view) | (stored - frozenset(view.begun()))


def pending_adoptions(config: MirrorConfig) -> Mapping[FlowId, PendingAdoption]:
    """Of every flow, for commands that show what waits."""
    return {flow.id: PendingAdoption(flow, config.target_of(flow.id)) for flow in config.flows}


def words_on_unadopted(partitions: int) -> str:
    if not partitions:
        return ""
    were, wait = ("was", "waits") if partitions == 1 else ("were", "wait")
    return (
        f"{counted(partitions, 'partition')} {were} mirrored by MirrorMaker 2 and {wait} for "
        "`heliograph adopt` (on.unadopted = append copies them again from the start)"
    )
