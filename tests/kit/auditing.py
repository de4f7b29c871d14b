"""Copies made by hand, with the faults a test wants, and the ledger that vouches for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from heliograph.audit.compare import compare_unit
from heliograph.audit.findings import UnitOutcome
from heliograph.audit.plan import AuditOptions
from heliograph.audit.run import AuditReport, Runner, audit_flow
from heliograph.audit.units import AuditUnit
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.ledger.locations import all_topics
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.entries import head_entry, start_entry
from tests.kit.ledgers import open_ledger
from tests.kit.topics import produce_raw, wait_until

Row = tuple[int, bytes, bytes, list[tuple[str, bytes]]]
"""Timestamp, key, value, headers."""
_NOT_YET = (3, 6)
"""UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER."""


def rows(count: int, *, value_bytes: int = 60) -> list[Row]:
    """Records that all differ."""
    return [
        (1_700_000_000_000 + n, b"k%d" % n, b"v%d" % n + b"." * value_bytes, [("n", b"%d" % n)])
        for n in range(count)
    ]


def write_rows(
    cluster: LocalCluster, topic: str, records: Sequence[Row], *, per_batch: int = 2_000
) -> None:
    """Hundreds of thousands a second: whole batches, encoded by compiled code."""
    for start in range(0, len(records), per_batch):
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 10_000_000)
        for n, (timestamp_ms, key, value, headers) in enumerate(records[start : start + per_batch]):
            builder.append(n, timestamp_ms, key, value, headers)
        batch = bytes(builder.build())

        def written(batch: bytes = batch) -> bool:
            # The leader of a topic that was just created may not know yet that it leads.
            answer = produce_raw(cluster, topic, batch)
            assert answer.error_code in (0, *_NOT_YET), answer
            return answer.error_code == 0

        wait_until(written, f"a leader of {topic}")


def vouch(file: Path, flow: FlowId, topic: str, records: int) -> None:
    """Write the ledger of a mirror that copied records 0 to `records` to the same offsets."""
    config = load_config(file)
    with closing(LedgerService(config.clusters)) as ledgers:
        open_ledger(ledgers, flow, ClusterAdmin(config.target_of(flow)), None)
        start = start_entry(topic)
        head = head_entry(topic, records=records)
        ledgers.note(flow, [start, head])


def inside(config: MirrorConfig, flow: FlowId) -> Runner:
    """Compares in this process, without Spark."""

    def run(units: Sequence[AuditUnit], on_outcome: Callable[[UnitOutcome], None]) -> None:
        source, target = _cluster(config.source_of(flow)), _cluster(config.target_of(flow))
        with asyncio.Runner() as runner:
            try:
                for unit in units:
                    result = runner.run(compare_unit(source, target, unit))
                    on_outcome(UnitOutcome(unit=unit, result=result))
            finally:
                runner.run(_closed(source, target))

    return run


async def _closed(*clusters: Cluster) -> None:
    for cluster in clusters:
        cluster.close()


def _cluster(config: ClusterConfig) -> Cluster:
    return open_cluster(config, "consumer")


def audited(file: Path, flow: FlowId, choice: AuditOptions | None = None) -> AuditReport:
    config = load_config(file)
    return audit_flow(config, flow, choice or AuditOptions(), all_topics(), inside(config, flow))
