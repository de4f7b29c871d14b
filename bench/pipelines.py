"""Pipelines against MirrorMaker 2, in the same run on the same two brokers.

    python -m bench.pipelines [--records 5000000] [--rounds 3] [--row identity] [--add]

Rows: `count` (the source alone, into `count()`; beside it Spark's own Kafka source, of the release
that runs on this engine, see tests/kit/connector.py), `identity` (every record staged and written),
`deterministic` (the same, declared so: nothing is staged; MirrorMaker 2 is `identity`'s),
`filter` (a tenth is kept, by a header; MirrorMaker 2 has Kafka's own Filter for it), `restart`
(kill -9 of a driver, then from the start of another to the first new row). Pipelines are those of
the file, run by `heliograph run`. MirrorMaker 2 is timed from the first record on the target. A
pipeline is timed twice: so (`steady`), and from the moment its query begins (`heliograph`), with
all that a new JVM and the first micro-batch cost. Every run must leave as many rows as there should
be. Writes bench/results/pipelines/pipelines.json; with `--add` what it holds of as many records
stays, so that rows and rounds may be run one by one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from tests.kit.connector import connector_jars

from heliograph.clock import monotonic_s
from heliograph.errors import BenchError
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.machine import this_machine
from heliograph_tools.bench.mirror import MirrorProcess, running
from heliograph_tools.bench.raw import RawConnection
from heliograph_tools.bench.rows import CopyRow, System
from heliograph_tools.bench.stage import Stage, open_stage
from heliograph_tools.bench.systems import prepare
from heliograph_tools.bench.watch import wait_until, watch

RESULTS: Final = Path(__file__).parent / "results" / "pipelines" / "pipelines.json"
ROWS: Final = ("count", "identity", "deterministic", "filter", "restart")
PARTITIONS: Final = 4
KEPT: Final = 10
"""One in so many has the header that `filter` looks for."""
_HEADER: Final = "keep"
_ROW_NAME: Final = "pipelines"
_SQL: Final = {
    "identity": "SELECT key, value, timestamp, partition FROM records",
    "deterministic": "SELECT key, value, timestamp, partition FROM records",
    "filter": "SELECT key, value, timestamp, headers, partition FROM records "
    f"WHERE exists(headers, h -> h.key = '{_HEADER}')",
}
_FILTER: Final[Mapping[str, str]] = {
    "transforms": "keep",
    "transforms.keep.type": "org.apache.kafka.connect.transforms.Filter",
    "transforms.keep.predicate": "marked",
    "transforms.keep.negate": "true",
    "predicates": "marked",
    "predicates.marked.type": "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    "predicates.marked.name": _HEADER,
}
_COUNT: Final = """
import json, sys, time
from pyspark.sql import SparkSession
from heliograph.config.schema import EngineConfig
from heliograph.engine.session import start_session, stop_session
from heliograph.pipeline.source import HeliographSource
asked = json.loads(sys.argv[1])
engine = EngineConfig(master="local[*]", spark=asked["spark"])
context = start_session(engine, has_queries=True)
spark = SparkSession(context)
spark.dataSource.register(HeliographSource)
read = spark.read.format(asked["format"]).options(**asked["options"])
read.option("endingOffsets", asked["first"]).load().count()
began_s = time.monotonic()
found = read.option("endingOffsets", "latest").load().count()
print(found, time.monotonic() - began_s)
stop_session(context)
"""
"""After some records, so that neither source is timed with a cold JVM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    row: str
    system: str
    round_index: int
    source_records: int
    seconds: float
    records_per_s: float
    """Of the source, whatever is kept of them."""
    steady_records_per_s: float | None = None
    """Of those behind the first that was seen on the target, from that moment on."""
    startup_s: float | None = None
    """To the first row on the target."""
    cpu_s: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--row", action="append", choices=ROWS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--add", action="store_true")
    asked = parser.parse_args()
    rows = asked.row or list(ROWS)
    machine = this_machine()
    with (
        tempfile.TemporaryDirectory(prefix="pipelines-") as folder,
        open_stage(Path(folder)) as stage,
    ):
        runs = _measured(stage, rows, asked.records, asked.rounds)
    if asked.add:
        runs = [*_earlier(asked.results, asked.records), *runs]
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "machine": asdict(machine),
        "records": asked.records,
        "medians": _medians(runs),
        "runs": [asdict(run) for run in runs],
    }
    asked.results.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(document["medians"], indent=2))


def _earlier(results: Path, records: int) -> list[Run]:
    """Raises `BenchError` for runs that cannot be compared with those of now."""
    if not results.exists():
        return []
    document = json.loads(results.read_text(encoding="utf-8"))
    if document["records"] != records:
        raise BenchError(f"{results} is of {document['records']:,} records")
    return [Run(**run) for run in document["runs"]]


def _measured(stage: Stage, rows: list[str], records: int, rounds: int) -> list[Run]:
    records -= records % (PARTITIONS * KEPT)
    plain, marked = f"{_ROW_NAME}-plain", f"{_ROW_NAME}-marked"
    if set(rows) - {"filter", "restart"}:
        stage.create_source_topic(plain, PARTITIONS)
        fill_topic(stage.source_address, plain, _row(records))
    if "filter" in rows:
        stage.create_source_topic(marked, PARTITIONS)
        _fill_marked(stage, marked, records)
    runs: list[Run] = []
    for number in range(rounds):
        for row in rows:
            for work in _works(row, stage, marked if row == "filter" else plain, records, number):
                runs.append(work())
                print(runs[-1], flush=True)
    return runs


def _works(
    row: str, stage: Stage, topic: str, records: int, number: int
) -> list[Callable[[], Run]]:
    if row == "count":
        return [
            lambda: _count(stage, "spark_kafka", topic, records, number),
            lambda: _count(stage, "heliograph", topic, records, number),
        ]
    if row == "restart":
        return [lambda: _restart(stage, topic, records, number)]
    if row == "deterministic":
        return [lambda: _pipeline(stage, row, topic, records, number)]
    return [
        lambda: _mm2(stage, row, topic, records, number),
        lambda: _pipeline(stage, row, topic, records, number),
    ]


def _row(records: int) -> CopyRow:
    return CopyRow(
        name=_ROW_NAME,
        records=records,
        record_bytes=100,
        batch_bytes=16 * 1024,
        partitions=PARTITIONS,
        systems=(),
        goals=(),
    )


def _fill_marked(stage: Stage, topic: str, records: int) -> None:
    producer = Producer(
        {
            **stage.source.librdkafka_config,
            "linger.ms": 20,
            "batch.size": 16 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = b"x" * 92
    for number in range(records):
        headers = [(_HEADER, b"")] if number // PARTITIONS % KEPT == 0 else []
        while True:
            try:
                producer.produce(
                    topic, value, b"%08d" % number, number % PARTITIONS, headers=headers
                )
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1_000 == 0:
            producer.poll(0)
    producer.flush(120)


def _count(stage: Stage, system: str, topic: str, records: int, number: int) -> Run:
    asked: dict[str, Any] = {
        "format": "kafka",
        "options": {
            "subscribe": topic,
            "includeHeaders": "false",
            "kafka.bootstrap.servers": stage.source.bootstrap,
        },
        "spark": {"spark.jars": ",".join(map(str, connector_jars()))},
        "first": json.dumps({topic: {str(each): 1_000 for each in range(PARTITIONS)}}),
    }
    if system == "heliograph":
        config = _folder(stage, f"count{number}") / "mm2.properties"
        config.write_text(
            "clusters = A, B\n"
            f"A.bootstrap.servers = {stage.source.bootstrap}\n"
            f"B.bootstrap.servers = {stage.target.bootstrap}\n"
        )
        options = {"config": str(config), "cluster": "A"}
        options |= {"subscribe": topic, "includeHeaders": "false"}
        asked |= {"format": "heliograph", "options": options, "spark": {}}
    ended = subprocess.run(
        [sys.executable, "-c", _COUNT, json.dumps(asked)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    found, seconds = ended.stdout.split()[-2:]
    if int(found) != records:
        raise AssertionError(f"counted {found} of {records}")
    return _run("count", system, number, records, float(seconds))


def _mm2(stage: Stage, row: str, topic: str, records: int, number: int) -> Run:
    alias = f"mm{row}{number}"
    route = stage.route(alias, topic)
    folder = _folder(stage, alias)
    smt = {f"{alias}->{route.target_alias}.{key}": value for key, value in _FILTER.items()}
    launch = prepare(System.MM2_DEFAULT, route, folder, {}, smt if row == "filter" else {})
    wanted = records // KEPT if row == "filter" else records
    with (
        running(launch, folder / "mirror.log") as mirror,
        RawConnection(stage.target_address) as connection,
    ):
        sighting = watch(
            connection, route.target_topic, PARTITIONS, wanted, ensure_alive=mirror.ensure_alive
        )
        cpu_s = mirror.cpu_s()
    stage.drop_topics(alias)
    share = (sighting.last.records - sighting.first.records) / wanted
    return _run(
        row,
        "mm2_default",
        number,
        round(records * share),
        sighting.seconds,
        startup_s=sighting.first.at_s - mirror.started_s,
        cpu_s=cpu_s,
    )


def _pipeline(stage: Stage, row: str, topic: str, records: int, number: int) -> Run:
    alias = f"he{row}{number}"
    target = f"{alias}.{topic}"
    stage.create_target_topic(target, PARTITIONS)
    wanted = records // KEPT if row == "filter" else records
    more = {"deterministic": "true"} if row == "deterministic" else {}
    launch, folder = _launch(stage, alias, topic, target, _SQL[row], more)
    with (
        running(launch, folder / "mirror.log") as mirror,
        RawConnection(stage.target_address) as connection,
    ):
        sighting = watch(connection, target, PARTITIONS, wanted, ensure_alive=mirror.ensure_alive)
        cpu_s, began_s = mirror.cpu_s(), _began_s(mirror)
        if sighting.last.records != wanted:
            raise AssertionError(f"{sighting.last.records} rows, not {wanted}")
    stage.drop_topics(alias)
    return _run(
        row,
        "heliograph",
        number,
        records,
        sighting.last.at_s - began_s,
        steady=sighting.records_per_s * records / wanted,
        startup_s=sighting.first.at_s - mirror.started_s,
        cpu_s=cpu_s,
    )


def _restart(stage: Stage, topic: str, records: int, number: int) -> Run:
    """Of a pipeline that had written all there was; the new row is there before the start."""
    alias = f"he-restart{number}"
    source, target = f"{alias}.in", f"{alias}.out"
    stage.create_source_topic(source, PARTITIONS)
    stage.create_target_topic(target, PARTITIONS)
    producer = Producer(stage.source.librdkafka_config)
    launch, folder = _launch(stage, alias, source, target, _SQL["identity"])
    with RawConnection(stage.target_address) as connection:

        def rows() -> int:
            return sum(connection.end_offsets(target, PARTITIONS))

        producer.produce(source, b"first", partition=0)
        producer.flush(30)
        with running(launch, folder / "first.log") as mirror:
            wait_until(lambda: rows() == 1, mirror.ensure_alive, "the first row")
            members = mirror._tree()
            for member in members:
                member.kill()
        producer.produce(source, b"second", partition=0)
        producer.flush(30)
        with running(launch, folder / "second.log") as mirror:
            wait_until(lambda: rows() == 2, mirror.ensure_alive, "the new row")
            seconds = monotonic_s() - mirror.started_s
    stage.drop_topics(alias)
    return _run("restart", "heliograph", number, 1, seconds)


def _launch(
    stage: Stage,
    alias: str,
    topic: str,
    target: str,
    sql: str,
    more: Mapping[str, str] | None = None,
) -> tuple[Any, Path]:
    folder = _folder(stage, alias)
    route = stage.route(alias, "none-of-them")
    prefix = f"{alias}->{route.target_alias}.pipeline.{alias}"
    keys = {
        f"{prefix}.topics": topic.replace(".", "\\\\."),
        f"{prefix}.sql": sql,
        f"{prefix}.target.topic": target,
        f"{prefix}.folder": str(folder / "state"),
        f"{prefix}.trigger.ms": "0",
        **{f"{prefix}.{key}": value for key, value in (more or {}).items()},
    }
    return prepare(System.HELIOGRAPH, route, folder, keys), folder


def _began_s(mirror: MirrorProcess) -> float:
    """When the query began, by the driver's own word."""
    line = next(each for each in mirror.lines if each.text.endswith(": begins"))
    return mirror.started_s + line.at_s


def _run(
    row: str,
    system: str,
    number: int,
    records: int,
    seconds: float,
    steady: float | None = None,
    startup_s: float | None = None,
    cpu_s: float | None = None,
) -> Run:
    return Run(
        row=row,
        system=system,
        round_index=number,
        source_records=records,
        seconds=round(seconds, 3),
        records_per_s=round(records / seconds, 1) if seconds > 0 else 0.0,
        steady_records_per_s=None if steady is None else round(steady, 1),
        startup_s=None if startup_s is None else round(startup_s, 2),
        cpu_s=None if cpu_s is None else round(cpu_s, 2),
    )


def _medians(runs: list[Run]) -> dict[str, dict[str, float]]:
    """Records a second, by row and system; seconds for `restart`; and the ratio."""
    found: dict[str, dict[str, float]] = {}
    for run in runs:
        same = [each for each in runs if (each.row, each.system) == (run.row, run.system)]
        values = [each.seconds if run.row == "restart" else each.records_per_s for each in same]
        found.setdefault(run.row, {})[run.system] = statistics.median(values)
        steady = [each.steady_records_per_s for each in same if each.steady_records_per_s]
        if steady:
            found[run.row]["steady"] = statistics.median(steady)
    if "identity" in found and "deterministic" in found:
        found["deterministic"]["mm2_default"] = found["identity"]["mm2_default"]
    for row in found.values():
        beside = row.get("mm2_default") or row.get("spark_kafka")
        for name in ("heliograph", "steady"):
            if beside and name in row:
                row[f"{name}_ratio"] = round(row[name] / beside, 2)
    return found


def _folder(stage: Stage, name: str) -> Path:
    folder = stage.folder / "runs" / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
