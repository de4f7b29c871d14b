"""Ledgers as a run leaves them behind, without a run."""

from __future__ import annotations

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.view import TopicView
from heliograph.ledger.entries import Entry, ledger_topic
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, TopicId, TopicName
from tests.kit.entries import head_entry, start_entry


def open_ledger(
    ledgers: LedgerService, flow: FlowId, target: ClusterAdmin, source_cluster_id: str | None
) -> None:
    """The flow's ledger and its producer, as planning the flow makes them."""
    name = ledger_topic(flow.source)
    target.ensure_compacted_topic(name, partitions=1, replication_factor=1)
    target.await_partitions({name: 1})
    ledgers.open(flow, source_cluster_id)


def begin_lanes(ledgers: LedgerService, flow: FlowId, topic: str, written: TopicView) -> None:
    """Every lane of a source topic has begun, and mirrored nothing, into the topic `written`."""
    entries: list[Entry] = []
    for partition in range(written.partition_count):
        entries += _begun(TopicName(topic), partition, written.id)
    ledgers.note(flow, entries)


def _begun(topic: TopicName, partition: int, target_id: TopicId | None) -> list[Entry]:
    start = start_entry(topic, partition, target_topic_id=target_id)
    head = head_entry(topic, partition, target_topic_id=target_id)
    return [start, head]
