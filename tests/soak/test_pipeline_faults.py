"""Queries whose driver, executors, workers or brokers are killed -9, again and again."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import md5
from pathlib import Path
from typing import Any

import psutil
import pytest

from heliograph_tools.localkafka.cluster import LocalCluster
from heliograph_tools.localkafka.spec import ClusterSpec
from tests.kit.clusters import ClusterFactory
from tests.kit.mirror import write_config
from tests.kit.records import Rec, numbered, produce, read_all
from tests.kit.topics import create_topic
from tests.spark.faulty_query import FaultyOrder
from tests.spark.kit import REPOSITORY
from tests.spark.standalone import standalone

pytestmark = pytest.mark.timeout(1_200)

RUNS_MAX = 40
_EXECUTOR = "CoarseGrainedExecutorBackend"


def begun(order: FaultyOrder, folder: Path) -> subprocess.Popen[str]:
    file = folder / f"order-{time.monotonic_ns()}.json"
    file.write_text(json.dumps(asdict(order)), encoding="utf-8")
    paths = os.pathsep.join(map(str, (REPOSITORY / "src", REPOSITORY)))
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.faulty_query", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def kill_family(process: subprocess.Popen[str]) -> None:
    """The driver first; then its JVM and workers, which would end a moment later."""
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.communicate()


def to_the_end(order: FaultyOrder, folder: Path, kills: int, seed: int) -> None:
    """Run again and again, so many times only for some seconds of work."""
    drawn = random.Random(seed)
    for run in range(RUNS_MAX):
        process = begun(order, folder)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("begins"):
                break
        try:
            process.communicate(timeout=drawn.uniform(1.0, 15.0) if run < kills else 500)
        except subprocess.TimeoutExpired:
            kill_family(process)
            continue
        if process.returncode == 0:
            return
    raise AssertionError(f"not at its end after {RUNS_MAX} runs")


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


@pytest.mark.parametrize("kind", ["random", "repartitioned", "direct"])
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

    process = begun(order, tmp_path)
    killed = kill_executors(process, 3)
    said, _ = process.communicate(timeout=500)
    if process.returncode != 0:
        to_the_end(order, tmp_path, kills=0, seed=0)

    assert killed == 3, said
    assert_each_once(pair, order)


def kill_executors(process: subprocess.Popen[str], count: int) -> int:
    """One after the other, each some seconds after it has appeared; how many were."""
    seen, killed, until = set[int](), 0, time.monotonic() + 240
    while killed < count and process.poll() is None and time.monotonic() < until:
        time.sleep(4)
        with suppress(psutil.NoSuchProcess):
            for member in psutil.Process(process.pid).children(recursive=True):
                if member.pid not in seen and any(_EXECUTOR in word for word in member.cmdline()):
                    seen.add(member.pid)
                    member.kill()
                    killed += 1
                    break
    return killed


def test_a_worker_of_a_standalone_cluster_that_is_killed_costs_no_row(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    with standalone(tmp_path / "spark") as cluster:
        worker = cluster.start_worker()
        cluster.start_worker()
        order = order_of(pair, tmp_path, topic, 120_000, kind="random", master=cluster.url)
        process = begun(order, tmp_path)
        assert process.stdout is not None
        while not process.stdout.readline().startswith("begins"):
            assert process.poll() is None
        time.sleep(8)
        for member in [*worker.children(recursive=True), worker]:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.communicate(timeout=500)
        if process.returncode != 0:
            to_the_end(order, tmp_path, kills=0, seed=0)

    assert_each_once(pair, order)


def test_brokers_that_are_killed_cost_no_row(
    clusters: ClusterFactory, tmp_path: Path, topic: Any
) -> None:
    both = clusters(ClusterSpec(alias="A"), ClusterSpec(alias="B"))
    order = order_of(both, tmp_path, topic, 200_000, kind="random")

    process = begun(order, tmp_path)
    assert process.stdout is not None
    while not process.stdout.readline().startswith("begins"):
        assert process.poll() is None
    for alias in ("B", "A", "B"):
        time.sleep(4)
        both[alias].kill_broker(0)
        time.sleep(2)
        both[alias].start_broker(0)
    process.communicate(timeout=500)
    if process.returncode != 0:
        to_the_end(order, tmp_path, kills=0, seed=0)

    assert_each_once(both, order)


def test_two_copies_of_a_query_and_a_copied_checkpoint_repeat_nothing(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    order = order_of(pair, tmp_path, topic, 40_000, kind="random", records_max=5_000)
    first = begun(order, tmp_path)
    time.sleep(12)
    kill_family(first)
    if not Path(order.folder).exists():
        to_the_end(replace(order, records_max=1_000_000), tmp_path, kills=0, seed=0)
    copy = replace(order, folder=str(tmp_path / "copy"))
    shutil.copytree(order.folder, copy.folder)

    both = [begun(order, tmp_path), begun(copy, tmp_path)]
    said = [process.communicate(timeout=500)[0] for process in both]
    codes = [process.returncode for process in both]

    assert 0 in codes, said
    assert_each_once(pair, order)


def test_several_queries_write_to_one_topic(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    order = order_of(pair, tmp_path, topic, 20_000, kind="random", records_max=5_000)
    other = replace(order, name=topic("p"), folder=str(tmp_path / "other"), kind="direct")

    both = [begun(order, tmp_path), begun(other, tmp_path)]
    for process in both:
        said, _ = process.communicate(timeout=500)
        assert process.returncode == 0, said

    assert_each_once(pair, order, times=2)


def test_a_query_goes_on_with_another_number_of_partitions(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    order = order_of(pair, tmp_path, topic, 10_000, kind="repartitioned", records_max=2_000)
    first = begun(order, tmp_path)
    time.sleep(14)
    kill_family(first)

    create_more(pair["B"], order.target_topic, 6)
    to_the_end(replace(order, shuffle_partitions=5), tmp_path, kills=0, seed=0)

    assert_each_once(pair, order)


def create_more(cluster: LocalCluster, topic: str, partitions: int) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    admin = AdminClient(cluster.librdkafka_config)
    for made in admin.create_partitions([NewPartitions(topic, partitions)]).values():
        made.result(30)
