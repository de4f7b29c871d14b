"""Topics of a flow that were failed over alone, as the driver plans by them. Driver only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heliograph.broker.view import ClusterView
from heliograph.config.schema import FlowConfig
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.fence import Fence, topic_fences
from heliograph.ledger.fenced_topics import begun_elsewhere
from heliograph.ledger.locations import begun_topics
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, TopicName


def read_own_fences(
    ledgers: LedgerService, flow: FlowId, target: ClusterView
) -> Mapping[TopicName, Fence]:
    """Blocks. Without a ledger nothing was failed over, and to read none would wait for one."""
    if ledger_topic(flow.source) not in target.topics:
        return {}
    return ledgers.ask(flow, topic_fences)


def read_fences(
    ledgers: LedgerService,
    flow: FlowConfig,
    flows: Iterable[FlowConfig],
    source: ClusterView,
    target: ClusterView,
) -> dict[TopicName, Fence]:
    """Topics the flow must not carry: its own, and those it would begin to carry back. Blocks."""
    own = read_own_fences(ledgers, flow.id, target)
    there = FlowId(source=flow.id.target, target=flow.id.source)
    if not (flow.policy.keeps_names and any(each.id == there for each in flows)):
        return dict(own)
    of_there = read_own_fences(ledgers, there, source)
    if not of_there:
        return dict(own)
    has_ledger = ledger_topic(flow.id.source) in target.topics
    begun = ledgers.ask(flow.id, begun_topics) if has_ledger else ()
    return {**begun_elsewhere(of_there, begun), **own}
