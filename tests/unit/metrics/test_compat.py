from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.driver.periodic import JobFigures
from heliograph.metrics.compat import SPELLINGS, Windows, compat_families, latency_ms
from heliograph.metrics.families import Family
from heliograph.metrics.gather import Looked
from heliograph.model import TopicName, TopicPartition
from tests.unit.metrics.looks import AB, A, B, at, looked

CONFIG = MirrorConfig(
    clusters={
        alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",)) for alias in (A, B)
    },
    pairs=(FlowConfig(id=AB, enabled=True),),
)


def families_of(found: Looked, spelling: str) -> dict[str, Family]:
    shown = frozenset(found.lag.topics)
    made = compat_families(found, CONFIG, SPELLINGS[spelling], shown, Windows())
    return {family.definition.name: family for family in made}


def rows(family: Family) -> dict[tuple[str, ...], object]:
    return {tuple(labels): value for labels, value in family.rows}


def test_strimzis_names_have_its_labels_and_quoted_client_ids() -> None:
    families = families_of(looked(at(0, lag=5)), "strimzi")

    count = families["kafka_connect_mirror_mirrorsourceconnector_record_count"]
    assert count.definition.labels == ("source", "target", "topic", "partition")
    assert rows(count) == {("A", "B", "A.orders", "0"): 10}
    lag = families["kafka_consumer_fetch_manager_records_lag"]
    assert lag.definition.labels == ("clientid", "topic", "partition")
    assert rows(lag) == {('"A->B|MirrorSourceConnector-0|replication-consumer"', "orders", "0"): 5}
    assert rows(families["kafka_connect_worker_connector_count"]) == {(): 3}
    assert rows(families["kafka_producer_buffer_available_bytes"]) == {
        ('"A->B|MirrorSourceConnector-0"',): 900
    }


def test_the_jmx_exporters_example_says_destination() -> None:
    families = families_of(looked(at(0)), "jmx-exporter")

    latency = families["kafka_connect_mirror_source_connector_replication_latency_ms_avg"]
    assert latency.definition.labels == ("destination", "topic", "partition")
    assert rows(latency) == {("B", "A.orders", "0"): 8.0}
    fetch = families["kafka_consumer_fetch_manager_fetch_latency_avg"]
    assert list(rows(fetch).values()) == [5.0]


def test_a_checkpoints_latency_names_its_group() -> None:
    where = TopicPartition(topic=TopicName("A.orders"), partition=1)
    job = JobFigures(
        flow=AB, what="checkpoints", took_s=1.0, failures=0, latency_ms={("readers", where): 42}
    )

    families = families_of(looked(at(0), jobs=(job,)), "strimzi")

    name = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    assert rows(families[name]) == {("A", "B", "readers", "A.orders", "1"): 42}


def test_a_group_with_ten_thousand_partitions_has_a_bounded_number_of_series() -> None:
    topic = TopicName("A.orders")
    took = {("readers", TopicPartition(topic=topic, partition=n)): n for n in range(10_000)}
    job = JobFigures(flow=AB, what="checkpoints", took_s=1.0, failures=0, latency_ms=took)

    families = families_of(looked(at(0), jobs=(job,)), "strimzi")

    name = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    slowest = {("A", "B", "readers", "A.orders", str(n)): n for n in range(9_000, 10_000)}
    assert rows(families[name]) == slowest


def test_all_names_are_gauges_and_none_is_one_of_ours() -> None:
    families = families_of(looked(at(0)), "strimzi")

    assert {family.definition.kind for family in families.values()} == {"gauge"}
    assert not any(name.startswith("heliograph") for name in families)


def test_latency_is_that_of_the_window_and_bounded_by_its_buckets() -> None:
    before = at(0)
    counts = list(before.latency_counts)
    counts[6] += 1
    now = replace(
        before, latency_counts=tuple(counts), latency_ms_sum=before.latency_ms_sum + 80, records=11
    )

    assert latency_ms(before, now) == (50.0, 100.0, 80.0)
    assert latency_ms(None, now) == pytest.approx((5.0, 100.0, 112 / 5))


def test_latency_of_a_quiet_window_is_that_since_the_lane_came() -> None:
    assert latency_ms(at(0), at(0)) == (5.0, 10.0, 8.0)


def test_a_lane_that_copied_only_a_backlog_has_no_latency() -> None:
    assert latency_ms(None, replace(at(0), latency_counts=(), latency_ms_sum=0)) is None


def test_windows_overlap_so_that_none_is_empty() -> None:
    windows, first, second = Windows(), {at(0).lane: at(0)}, {at(1).lane: at(1)}

    windows.move(100.0, first)
    windows.move(110.0, second)
    windows.move(116.0, second)

    assert windows.base is first and windows.next is second
