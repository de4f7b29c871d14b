"""A mirror that ends and starts again goes on exactly there; what it cannot reach it says."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from heliograph_tools.localkafka.ports import PortHold
from tests.kit.clusters import ClusterFactory, TopicNames
from tests.kit.inside import carry, running_inside
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import (
    NewRec,
    Transaction,
    end_offsets,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.runs import HELIOGRAPH, ROOT, WITHOUT_SPARK, mirror_once, running_mirror
from tests.kit.topics import force_compaction, wait_until


@pytest.fixture
def again(pair: dict[str, LocalCluster], tmp_path: Path, topic: TopicNames) -> Iterator[Route]:
    """A flow of its own for each test; topics that begin with its source's alias are mirrored."""
    alias = topic("again")
    config = write_config(
        tmp_path / "mm2.properties",
        {alias: pair["A"], "to": pair["B"]},
        {f"{alias}->to": {"topics": f"{alias}-.*"}},
    )
    yield route(config, (alias, pair["A"]), ("to", pair["B"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Twice:
    """One flow, mirrored by two runs one after the other."""

    way: Route
    codes: tuple[int | None, int | None]
    said: str
    settled: Mapping[str, Mapping[int, int]]
    """Topics that nobody wrote to between the two runs, with their ends on the target."""
    grown: str
    """Between the two, others wrote into it on the target, and more came at the source."""


@pytest.fixture(scope="module")
def twice(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Twice]:
    source, target = pair["A"], pair["B"]
    config = write_config(
        tmp_path_factory.mktemp("twice") / "mm2.properties",
        {"twice": source, "to": target},
        {"twice->to": {"topics": "twice-.*"}},
    )
    way = route(config, ("twice", source), ("to", target))
    plain = lasting_topic(source, "twice-plain", partitions=4)
    produce(source, plain, numbered(4_000, partitions=4), codec="lz4")
    ended = lasting_topic(source, "twice-transactions")
    transactions = [
        Transaction(records=numbered(10, start=100 * part), commit=part % 3 != 0)
        for part in range(9)
    ]
    produce_transactions(source, ended, transactions, transactional_id=ended)
    holes = _compacted(way, "twice-compacted")
    grown = lasting_topic(source, "twice-foreign")
    produce(source, grown, numbered(100))
    first = mirror_once(config, program=WITHOUT_SPARK)
    ends = {name: end_offsets(target, way.renamed(name)) for name in (plain, ended, holes)}
    produce(target, way.renamed(grown), [NewRec(key=b"intruder", value=b"")] * 5)
    produce(source, grown, numbered(100, start=1_000))
    second = mirror_once(config, program=WITHOUT_SPARK)
    yield Twice(
        way=way,
        codes=(first.exit_code, second.exit_code),
        said=first.last_words + second.last_words,
        settled=ends,
        grown=grown,
    )


def test_once_mirrors_all_kinds_of_topics_and_a_second_once_repeats_nothing(twice: Twice) -> None:
    way = twice.way

    ends = {name: end_offsets(way.target, way.renamed(name)) for name in twice.settled}

    assert twice.codes == (0, 0), twice.said
    assert ends == twice.settled
    for name in twice.settled:
        way.assert_arrives(name)
        way.assert_exact_map(name)


def test_records_others_wrote_between_two_runs_leave_the_map_exact(twice: Twice) -> None:
    way, name = twice.way, twice.grown

    (wanted,) = read_all(way.source, name).values()
    (mirrored,) = read_all(way.target, way.renamed(name)).values()

    own = [rec.content for rec in mirrored if rec.key != b"intruder"]
    assert own == [rec.content for rec in wanted]
    assert len(mirrored) == 205
    way.assert_exact_map(name)


def _compacted(again: Route, name: str) -> str:
    """Holes within batches, tombstones, batches that are gone as a whole."""
    lasting_topic(again.source, name, config={"cleanup.policy": "compact"})
    produce(again.source, name, numbered(500, keys=60), codec="zstd")
    produce(again.source, name, [NewRec(key=b"k%d" % n, value=None) for n in range(0, 60, 7)])
    produce(again.source, name, numbered(90, keys=200, start=700), batch_records_max=5)
    force_compaction(again.source, name)
    produce(again.source, name, numbered(100, start=2_000))
    return name


def test_a_mirror_asked_to_stop_drains_and_the_next_one_goes_on_there(again: Route) -> None:
    name = lasting_topic(again.source, f"{again.flow.source}-load", partitions=3)
    # As `kill` does; as a terminal does, whose Ctrl-C reaches Spark's JVM and Python workers too.
    stops = ((signal.SIGTERM, False, WITHOUT_SPARK), (signal.SIGINT, True, HELIOGRAPH))
    for part, (number, group, program) in enumerate(stops):
        more = numbered(10_000, partitions=3, start=part * 10_000, value_bytes=500)
        produce(again.source, name, more)
        before = again.appended(name) if part else 0

        with running_mirror(again.config, program=program) as run:
            _wait_appended(again, name, more_than=before)
            members = run.family()
            code = run.stop(number, group=group)
            said = run.said

        (record, *_) = again.lane_records(name).values()
        assert code == 0, said[-4_000:]
        assert "Traceback" not in said
        _wait_gone(members)
        assert record.head is not None
    produce(again.source, name, numbered(3_000, partitions=3, start=100_000))

    carry(again.config)

    assert again.assert_arrives(name) == 23_000
    again.assert_exact_map(name)


def _wait_appended(again: Route, topic: str, *, more_than: int) -> None:
    wait_until(
        lambda: again.appended(topic) > more_than,
        f"more than {more_than} records",
        timeout_s=120,  # a slot begins when Spark has started a Python worker
    )


def _wait_gone(members: list[psutil.Process]) -> None:
    """Spark's JVM ends when it sees that its driver has."""
    wait_until(lambda: not any(member.is_running() for member in members), "the end of all")


def test_clusters_that_refuse_or_do_not_answer_are_named_and_other_flows_go_on(
    pair: dict[str, LocalCluster],
    clusters: ClusterFactory,
    topic: TopicNames,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    closed = clusters(ClusterSpec(alias="C", sasl="PLAIN", users={"alice": "right"}))["C"]
    wrong = {
        name: value.replace("right", "mistaken")
        for name, value in closed.client_config_of("alice").items()
    }
    alias = topic("fine")
    name = lasting_topic(pair["A"], f"{alias}-records")
    produce(pair["A"], name, numbered(100))
    with contextlib.closing(PortHold()) as nobody:
        config = write_config(
            tmp_path / "mm2.properties",
            {
                alias: pair["A"],
                "to": pair["B"],
                "away": f"127.0.0.1:{nobody.port}",
                "locked": closed.bootstrap,
            },
            {
                f"{alias}->to": {"topics": f"{alias}-.*"},
                "away->to": {"topics": "nothing"},
                "locked->to": {"topics": "nothing"},
            },
        )
        with config.open("a", encoding="utf-8") as more:
            more.writelines(f"locked.{key} = {value}\n" for key, value in wrong.items())
        with running_inside(config) as run:
            count = route(config, (alias, pair["A"]), ("to", pair["B"])).assert_arrives(name)
            wait_until(lambda: len(run.reconciler.problems) == 2, "two flows with problems")
            problems = {str(flow): why for flow, why in run.reconciler.problems.items()}

    assert count == 100
    assert problems.keys() == {"away->to", "locked->to"}
    assert "cluster away" in problems["away->to"]
    assert "cluster locked" in problems["locked->to"]
    assert "mistaken" not in caplog.text + str(problems)
    errors = [line.getMessage() for line in caplog.records if line.levelno == logging.ERROR]
    assert all(any(line.startswith(flow) for line in errors) for flow in problems)


def test_a_mirror_whose_jvm_is_killed_says_so_starts_spark_again_and_goes_on(again: Route) -> None:
    name = lasting_topic(again.source, f"{again.flow.source}-jvm", partitions=2)
    produce(again.source, name, numbered(500, partitions=2))
    with running_mirror(again.config) as run:
        again.await_records(name, 500)

        for member in run.family():
            if "java" in member.name():
                member.kill()
        run.wait_for_words("ERROR", "Spark is gone: its JVM ended", "starting Spark again")
        produce(again.source, name, numbered(500, partitions=2, start=500))
        run.wait_for_words("Spark is up again", timeout_s=120)
        again.await_records(name, 1_000, timeout_s=120)
        code = run.stop()

        assert code == 0, run.last_words
        assert "Traceback" not in run.said
    again.assert_arrives(name)


def test_the_library_call_mirrors_until_it_has_seen_enough_or_is_asked_to_stop(
    again: Route,
) -> None:
    name = lasting_topic(again.source, f"{again.flow.source}-library")
    produce(again.source, name, numbered(300))
    script = f"""
import sys, threading
import heliograph
assert "heliograph.driver" not in sys.modules

seen = []
once = heliograph.run({str(again.config)!r}, once=True, on_progress=seen.append)
print("once", sum(at.records for at in once.progress.values()), once.is_well, bool(seen))

# The other two ways to end are the driver's own, whatever runs the slots.
sys.path.insert(0, {str(ROOT)!r})
from tests.kit.without_spark import install
install()
enough = heliograph.run({str(again.config)!r}, until=lambda progress: len(progress) == 1)
print("until", len(enough.progress), enough.is_well)

stop = heliograph.StopRequest()
def stop_soon(status):
    if status.progress:
        threading.Thread(target=stop.make).start()
asked = heliograph.run({str(again.config)!r}, stop=stop, on_progress=stop_soon)
print("stop", asked.is_well)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=180, check=False
    )

    assert ran.stdout.splitlines() == ["once 300 True True", "until 1 True", "stop True"], (
        ran.stderr[-3000:]
    )
    again.assert_arrives(name)
