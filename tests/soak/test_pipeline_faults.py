"""Queries whose driver, executors, workers or brokers are killed -9, again and again."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import md5
from pathlib import Path
from typing import Any

import psutil
import pytest

from heliograph import probe
from heliograph_tools.localkafka.cluster import LocalCluster
from heliograph_tools.localkafka.spec import ClusterSpec
from tests.kit.clusters import ClusterFactory
from tests.kit.faulty_runs import FaultyRun, disturbed, to_the_end
from tests.kit.mirror import write_config
from tests.kit.records import Rec, numbered, produce, read_all
from tests.kit.topics import create_topic
from tests.spark.faulty_query import BETWEEN, FaultyOrder
from tests.spark.standalone import standalone

pytestmark = pytest.mark.timeout(1_200)


def order_of(
    pair: dict[str, LocalCluster],
    folder: Path,
    topic: Callable[[str], str],
    records: int,
    **more: Any,
) -> FaultyOrder:
    source, target = topic("in"), topic("out")
    create_topic(pair["A"], source, partitions=3)
    create_topic(pair["B"], target, partitions=4)
    produce(pair["A"], source, numbered(records, partitions=3))
    config = write_config(folder / "mm2.properties", pair, {"A->B": {}})
    return FaultyOrder(
        config=str(config),
        source_topic=source,
        target_topic=target,
        name=topic("p"),
        folder=str(folder / "query"),
        **more,
    )


def marked(records: dict[int, list[Rec]]) -> Counter[bytes]:
    return Counter(
        (rec.value or b"").partition(b"#")[0] for part in records.values() for rec in part
    )


def assert_each_once(pair: dict[str, LocalCluster], order: FaultyOrder, times: int = 1) -> None:
    there = marked(read_all(pair["B"], order.target_topic))
    wanted = marked(read_all(pair["A"], order.source_topic))
    assert there == Counter({value: times * count for value, count in wanted.items()})


@pytest.mark.parametrize("kind", ["random", "repartitioned", "direct", "format", "format-direct"])
def test_a_driver_that_is_killed_again_and_again_writes_each_row_once(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any, kind: str
) -> None:
    order = order_of(pair, tmp_path, topic, 60_000, kind=kind, records_max=10_000)

    to_the_end(order, tmp_path, kills=5, seed=len(kind))

    assert_each_once(pair, order)


def test_a_million_rows_are_there_once(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    order = order_of(pair, tmp_path, topic, 1_000_000, kind="random", records_max=200_000)

    to_the_end(order, tmp_path, kills=2, seed=1)

    assert_each_once(pair, order)


def test_a_query_with_state_that_is_killed_has_the_right_totals(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    order = order_of(pair, tmp_path, topic, 30_000, kind="stateful", records_max=5_000)

    to_the_end(order, tmp_path, kills=4, seed=3)

    assert_totals(pair, order)


def assert_totals(pair: dict[str, LocalCluster], order: FaultyOrder) -> None:
    wanted = Counter(
        str(int(md5(value).hexdigest()[0], 16)).encode()
        for value in marked(read_all(pair["A"], order.source_topic)).elements()
    )
    newest: dict[bytes, int] = {}
    for part in read_all(pair["B"], order.target_topic).values():
        for rec in part:
            count = int(rec.value or b"0")
            assert count > newest.get(rec.key or b"", 0), "a total that was written twice"
            newest[rec.key or b""] = count
    assert newest == dict(wanted)


@pytest.mark.parametrize("kind", ["random", "direct"])
def test_executors_that_are_killed_cost_no_row(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any, kind: str
) -> None:
    master = "local-cluster[2,1,1024]"
    order = order_of(pair, tmp_path, topic, 120_000, kind=kind, master=master)

    query = FaultyRun(order, tmp_path)
    query.await_begin()
    killed = query.kill_executors(3)
    query.finish()

    assert killed == 3, query.said
    assert_each_once(pair, order)


def test_a_worker_of_a_standalone_cluster_that_is_killed_costs_no_row(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    with standalone(tmp_path / "spark") as cluster:
        worker = cluster.start_worker()
        cluster.start_worker()
        order = order_of(pair, tmp_path, topic, 120_000, kind="random", master=cluster.url)
        query = FaultyRun(order, tmp_path)
        query.await_begin()
        time.sleep(8)
        for member in [*worker.children(recursive=True), worker]:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        query.finish()

    assert_each_once(pair, order)


def test_brokers_that_are_killed_cost_no_row(
    clusters: ClusterFactory, tmp_path: Path, topic: Any
) -> None:
    both = clusters(ClusterSpec(alias="A"), ClusterSpec(alias="B"))
    order = order_of(both, tmp_path, topic, 200_000, kind="random")

    query = FaultyRun(order, tmp_path)
    query.await_begin()
    for alias in ("B", "A", "B"):
        time.sleep(4)
        both[alias].kill_broker(0)
        time.sleep(2)
        both[alias].start_broker(0)
    query.finish()

    assert_each_once(both, order)


def killed_at(order: FaultyOrder, folder: Path, step: str) -> None:
    """The first batch has come so far."""

    class Over(Exception):
        """Nothing more."""

    def kill(query: FaultyRun) -> None:
        query.kill()
        raise Over

    with suppress(Over):
        disturbed(replace(order, holds=(step,)), folder, kill)


@pytest.mark.parametrize("kind", ["random", "direct"])
def test_two_copies_of_a_query_and_a_copied_checkpoint_repeat_nothing(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any, kind: str
) -> None:
    order = order_of(pair, tmp_path, topic, 40_000, kind=kind, records_max=5_000)
    killed_at(order, tmp_path, probe.PIPELINE_TO_NOTE)
    copy = replace(order, folder=str(tmp_path / "copy"))
    shutil.copytree(order.folder, copy.folder)

    both = [FaultyRun(order, tmp_path), FaultyRun(copy, tmp_path)]
    codes = [query.code() for query in both]

    assert 0 in codes, [query.said for query in both]
    assert_each_once(pair, order)


@pytest.mark.parametrize("kind", ["random", "direct"])
def test_a_query_that_runs_twice_in_one_folder_repeats_nothing(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any, kind: str
) -> None:
    order = order_of(pair, tmp_path, topic, 40_000, kind=kind, records_max=5_000)

    both = [FaultyRun(order, tmp_path), FaultyRun(order, tmp_path)]
    for query in both:
        query.code()
    to_the_end(order, tmp_path)

    assert_each_once(pair, order)


def test_several_queries_write_to_one_topic(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    order = order_of(pair, tmp_path, topic, 20_000, kind="random", records_max=5_000)
    other = replace(order, name=topic("p"), folder=str(tmp_path / "other"), kind="direct")

    for query in [FaultyRun(order, tmp_path), FaultyRun(other, tmp_path)]:
        assert query.code() == 0, query.said

    assert_each_once(pair, order, times=2)


def test_a_query_goes_on_with_another_number_of_partitions(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    order = order_of(pair, tmp_path, topic, 10_000, kind="repartitioned", records_max=2_000)
    killed_at(order, tmp_path, BETWEEN)

    create_more(pair["B"], order.target_topic, 6)
    to_the_end(replace(order, shuffle_partitions=5), tmp_path)

    assert_each_once(pair, order)


def create_more(cluster: LocalCluster, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient(cluster.librdkafka_config)
    for made in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        made.result(30)
