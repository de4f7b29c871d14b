"""A real mirror on a standalone master: workers come and are killed while it copies."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames, is_alive
from tests.kit.mirror import RECORDS_ONLY, Route, lasting_topic, route, write_config
from tests.kit.records import end_offsets, numbered, produce
from tests.kit.runs import MirrorRun, mirror_runs, running_mirror
from tests.kit.soaking import in_soak
from tests.kit.spark_start import LIGHT_JVM, light_jvm
from tests.kit.topics import wait_until
from tests.spark.standalone import standalone

_PARTITIONS: Final = 4
_ROUND: Final = 200
_WAIT_S: Final = 150.0
_USED_WITHIN_S: Final = in_soak(30.0, ci=_WAIT_S)
"""A machine that does much else starts an executor late."""
_ENGINE: Final = {
    # One slot for each worker, so that killing one must leave the other slot alone.
    "slots": "auto",
    "slots.cpus": "1",
    "slots.lease.ms.max": "4000",
    "link.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.pyspark.python": sys.executable,
    "spark.driver.extraJavaOptions": LIGHT_JVM,
}


def test_a_worker_that_comes_is_used_and_one_that_is_killed_costs_no_record_and_repeats_none(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    source, target = pair["A"], pair["B"]
    name = lasting_topic(source, topic("standalone"), partitions=_PARTITIONS)
    with standalone(tmp_path / "spark") as spark:
        first = spark.start_worker()
        config = write_config(
            tmp_path / "mm2.properties",
            {"node": source, "to": target},
            {"node->to": {"topics": name}},
            top=_top(spark.url),
        )
        way = route(config, ("node", source), ("to", target))
        with running_mirror(config) as run:
            with _traffic(source, name):
                spared = _wait_slot(first, source)
                _wait_more(way, name)

                # Machines come and go: each that comes is used, and the first slot never notices.
                second = spark.start_worker()
                came_s = time.monotonic()
                lost = _wait_slot(second, source)
                used_within_s = time.monotonic() - came_s
                run.wait_for_words("2 slots: 2 executors", timeout_s=_WAIT_S)
                _wait_more(way, name)
                for member in (second, *_executors(second)):
                    member.kill()
                run.wait_for_words("1 slot: ", timeout_s=_WAIT_S)
                _wait_more(way, name)

            assert way.assert_arrives(name) > _PARTITIONS * _ROUND
            assert used_within_s < _USED_WITHIN_S
            assert not is_alive(lost.pid)
            assert _wait_slot(first, source).pid == spared.pid
            assert run.stop() == 0
            assert not is_alive(spared.pid)
            way.assert_exact_map(name)


def _top(master: str) -> dict[str, str]:
    executors = {"spark.executor.extraJavaOptions": light_jvm()}
    return {**RECORDS_ONLY, **_ENGINE, "master": master, **executors}


@contextmanager
def _traffic(source: LocalCluster, topic: str) -> Iterator[None]:
    """Records without pause, to every partition, until the block ends."""
    ended = threading.Event()

    def write() -> None:
        for number in itertools.count():
            produce(
                source,
                topic,
                numbered(_ROUND, partitions=_PARTITIONS, start=number * _ROUND),
                linger_ms=1,
                batch_records_max=20,
            )
            if ended.wait(0.4):
                return

    with ThreadPoolExecutor(max_workers=1) as pool:
        writing = pool.submit(write)
        try:
            yield
        finally:
            ended.set()
        writing.result()


def _wait_more(way: Route, topic: str) -> None:
    """Until every partition has got more than it has now."""
    before = _appended(way, topic)
    wait_until(
        lambda: all(now > then for now, then in zip(_appended(way, topic), before, strict=True)),
        f"more records in each partition of {topic}",
        timeout_s=_WAIT_S,
        poll_s=0.1,
    )


def _appended(way: Route, topic: str) -> list[int]:
    return list(end_offsets(way.target, way.renamed(topic)).values())


def _wait_slot(worker: psutil.Process, source: LocalCluster) -> psutil.Process:
    """The Python process below this worker that is connected to the source."""
    wait_until(lambda: bool(_slots(worker, source)), "a slot on the worker", timeout_s=_WAIT_S)
    (slot,) = _slots(worker, source)
    return slot


def _slots(worker: psutil.Process, source: LocalCluster) -> list[psutil.Process]:
    port = source.broker(0).ports.client
    found = []
    for member in worker.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            peers = [link.raddr for link in member.net_connections("tcp")]
            if any(peer and peer.port == port for peer in peers):
                found.append(member)
    return found


def _executors(worker: psutil.Process) -> list[psutil.Process]:
    return [child for child in worker.children() if child.name() == "java"]


def test_a_master_without_workers_gets_a_sentence_and_one_signal_ends_the_run(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with standalone(tmp_path / "spark") as spark:
        spark.wait_up()
        config = write_config(
            tmp_path / "mm2.properties",
            {"idle": pair["A"], "to": pair["B"]},
            {"idle->to": {"topics": topic("none")}},
            top=_top(spark.url),
        )
        with mirror_runs() as runs:
            run = MirrorRun(config, tmp_path / "run.log")
            runs.append(run)
            run.wait_for_words("no worker with enough free cores", timeout_s=_WAIT_S)
            began_s = time.monotonic()
            code = run.stop()

    assert code == 0
    assert time.monotonic() - began_s < 10
