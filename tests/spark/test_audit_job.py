"""The audit as a Spark job on executors of their own: outcomes, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from heliograph.audit.findings import FindingKind, UnitOutcome
from heliograph.audit.job import new_order, run_audit
from heliograph.audit.units import AuditUnit
from heliograph.config.schema import ClusterConfig
from heliograph.ledger.runs import Run
from heliograph.model import ClusterAlias, FlowId, LaneId, OffsetRange, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.auditing import rows, write_rows
from tests.kit.clusters import TopicNames
from tests.kit.mirror import lasting_topic
from tests.spark.kit import engine, running_session

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


@pytest.fixture(scope="module")
def session() -> Iterator[SparkContext]:
    config = engine("local-cluster[2,1,1024]").model_copy(update={"slot_cpus": 1.0})
    with running_session(config) as session:
        yield session


def test_every_unit_has_an_outcome_that_says_what_is_missing_where(
    session: SparkContext, pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = topic("framed")
    records = rows(6_000)
    for alias in ("A", "B"):
        lasting_topic(pair[alias], name)
    write_rows(pair["A"], name, records)
    write_rows(pair["B"], name, [*records[:3_500], *records[3_501:]])
    units = _units(name, 6_000, 2_000)
    order = new_order({FLOW: (_cluster(pair, "A"), _cluster(pair, "B"))})
    heard: list[UnitOutcome] = []

    run_audit(session, order, units, heard.append)

    results = {one.unit.start_position: one.result for one in heard}
    assert sorted(results) == [0, 2_000, 4_000]
    assert [result.records for result in results.values() if result] == [2_000] * 3
    found = results[2_000]
    assert found is not None
    assert found.counts == {FindingKind.MISSING: 1}
    assert [one.source for one in found.findings] == [OffsetRange(start=3_500, end=3_501)]


def test_a_cluster_that_cannot_be_read_is_a_problem_of_its_unit_and_not_a_job_without_end(
    session: SparkContext, pair: dict[str, LocalCluster], topic: TopicNames
) -> None:
    name = topic("absent")
    lasting_topic(pair["A"], name)
    order = new_order({FLOW: (_cluster(pair, "A"), _dead("B"))})
    heard: list[UnitOutcome] = []

    run_audit(session, order, _units(name, 10, 10), heard.append)

    (outcome,) = heard
    assert outcome.result is None
    assert "no broker answers" in outcome.problem


def _units(topic: str, records: int, unit_records: int) -> list[AuditUnit]:
    partition = TopicPartition(topic=TopicName(topic), partition=0)
    return [
        AuditUnit(
            lane=LaneId(flow=FLOW, source=partition),
            target=partition,
            start_position=start,
            end_position=start + unit_records,
            runs=(Run(position=start, source_offset=start, target_offset=start),),
            source_start=start or None,
            target_start=start or None,
        )
        for start in range(0, records, unit_records)
    ]


def _cluster(pair: dict[str, LocalCluster], alias: str) -> ClusterConfig:
    return ClusterConfig(alias=ClusterAlias(alias), bootstrap_servers=(pair[alias].bootstrap,))


def _dead(alias: str) -> ClusterConfig:
    return ClusterConfig(alias=ClusterAlias(alias), bootstrap_servers=("127.0.0.1:1",))
