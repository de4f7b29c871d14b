"""The audit as a Spark job on executors of their own: outcomes, and what goes wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from pyspark import SparkContext

from heliograph.audit.conflict_run import ConflictQuestion, find_conflicts, plan_conflicts
from heliograph.audit.findings import FindingKind, UnitOutcome
from heliograph.audit.job import new_order, run_audit
from heliograph.audit.units import AuditUnit
from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig
from heliograph.doctor.executors import look_from_executors
from heliograph.doctor.place import Listener, PlaceOrder, read_kernel
from heliograph.ledger.mark import mark_of
from heliograph.ledger.runs import Run
from heliograph.model import ClusterAlias, FlowId, LaneId, OffsetRange, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.auditing import rows, write_rows
from tests.kit.clusters import TopicNames
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import NewRec, Transaction, produce, produce_transactions
from tests.kit.topics import produce_raw
from tests.spark.kit import engine, running_session

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


@pytest.fixture(scope="module")
def session() -> Iterator[SparkContext]:
    config = engine("local-cluster[2,1,1024]").model_copy(update={"slot_cpus": 1.0})
    with running_session(config) as session:
        yield session


def test_the_doctor_looks_from_the_executors(
    session: SparkContext, pair: dict[str, LocalCluster]
) -> None:
    """Here because starting executors takes longer than asking them."""
    alias, (host, _, port) = ClusterAlias("A"), pair["A"].bootstrap.partition(":")
    config = ClusterConfig(alias=alias, bootstrap_servers=(pair["A"].bootstrap,))
    there = Listener(cluster=alias, broker=0, host=host, port=int(port))
    nowhere = Listener(cluster=alias, broker=1, host=host, port=1)
    order = PlaceOrder(
        clusters={alias: (config, "consumer")}, listeners=(there, nowhere), answer_s_max=10
    )

    (seen,) = look_from_executors(session, order)

    reached, refused = seen.listeners
    assert (reached.error, reached.round_trip_s is not None) == ("", True)
    assert refused.error
    (clock,) = seen.clocks
    assert (clock.controller, clock.why_not) == (0, "")
    assert seen.kernel.keys() == read_kernel().keys()


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


def test_keys_written_on_both_sides_are_found_and_what_the_mirror_brought_is_not(
    session: SparkContext, pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """Same names on both sides; B has what local producers wrote, and a copy of A's."""
    name = topic("written")
    for alias in ("A", "B"):
        lasting_topic(pair[alias], name, partitions=2)
        # By a client that tries again: a broker may not lead yet what it was just given.
        produce(pair[alias], name, [NewRec(key=None, value=b"v", partition=0)])
    ours, theirs = rows(3_000), rows(2)
    write_rows(pair["A"], name, ours)
    write_rows(pair["B"], name, [(at + 9, key, b"other", more) for at, key, _, more in theirs])
    aborted = [NewRec(key=b"k2", value=b"no", timestamp_ms=ours[2][0], partition=1)]
    produce_transactions(
        pair["B"], name, [Transaction(records=aborted, commit=False)], transactional_id=name
    )
    copied = DefaultRecordBatchBuilder(2, 0, False, 77, mark_of(FLOW), 0, 1_000_000)
    for n, (at_ms, key, value, headers) in enumerate(ours[:500]):
        copied.append(n, at_ms, key, value, headers)
    assert produce_raw(pair["B"], name, bytes(copied.build())).error_code == 0
    config = load_config(write_config(tmp_path / "mm2.properties", pair, {"A->B": {}}))
    asked = ConflictQuestion(
        flow=FLOW, topics=(TopicName(name),), window_ms=1_000, parquet=tmp_path / "found"
    )

    report = find_conflicts(lambda: session, plan_conflicts(config, asked), asked)

    assert report.problems == ()
    assert [(one.key, one.conflicting, one.closest_ms) for one in report.worst] == [
        (b"k0", (1, 1), 9),
        (b"k1", (1, 1), 9),
    ]
    (of_topic,) = report.topics
    assert (of_topic.keys, of_topic.keys_on_both, of_topic.writes) == (3_000, 2, [3_000, 2])
    assert (report.counts.mirrored, report.counts.keyless) == ((0, 500), (1, 1))
    saved = pq.read_table(report.file).to_pylist()
    assert sorted((one["key"], one["target_offset"]) for one in saved) == [(b"k0", 1), (b"k1", 2)]


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
