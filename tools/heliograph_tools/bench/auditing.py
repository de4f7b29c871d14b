"""How long an audit takes, against plain consumers that read one side once. Runs on the driver.

All read the same full topic, one after the other, each in a process of its own, timed from inside
once it is connected and from outside as a whole. The audit reads both sides.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from heliograph.clock import monotonic_s
from heliograph.errors import BenchError
from heliograph_tools.bench.filling import fill_topic
from heliograph_tools.bench.rows import AuditRow, CopyRow, System
from heliograph_tools.bench.stage import Stage
from heliograph_tools.bench.systems import Route, compiled_environment, prepare
from heliograph_tools.localkafka.java import java_executable
from heliograph_tools.localkafka.kafka import kafka_classpath
from heliograph_tools.localkafka.versions import KAFKA_VERSION

_COMMAND_S_MAX: Final = 600.0
_PERF_MAIN: Final = "org.apache.kafka.tools.ConsumerPerformance"
_PERF_LINE: Final = re.compile(r"^\d{4}-\d\d-\d\d .*,")
_FETCH_MS_COLUMN: Final = -3
_MASTER: Final = "local[2]"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRun:
    system: System
    round_index: int
    records: int
    findings: int
    command_s: float
    """Of the whole command, start of Python and Spark included."""
    audit_s: float
    """From the plan to the report, without Spark's start."""
    python_consumer_s: float
    """One pass of confluent-kafka's `Consumer.consume` over the source."""
    java_consumer_s: float
    """Fetch time of Kafka's own `kafka-consumer-perf-test` over the source."""


def run_audit_row(
    stage: Stage,
    row: AuditRow,
    system: System,
    round_index: int,
    heliograph_keys: Mapping[str, str],
) -> AuditRun:
    alias = f"{system.value.replace('_', '')}{round_index}{row.name}"
    topic = f"audited-{alias}"
    stage.create_source_topic(topic, row.partitions)
    route = stage.route(alias, topic)
    folder = stage.folder / "runs" / alias
    prepare(system, route, folder, heliograph_keys)
    file = str(folder / "mm2.properties")
    try:
        fill_topic(stage.source_address, topic, _filled(row))
        _told(["run", file, "--once", "--quiet"], file)
        return _measure(row, route, file, system, round_index)
    finally:
        stage.drop_topics(alias)


def _measure(row: AuditRow, route: Route, file: str, system: System, round_index: int) -> AuditRun:
    python_s = _python_pass(route, row.records)
    java_s = _java_pass(route, row.records)
    began_s = monotonic_s()
    said = _told(["audit", file, "--json", "--master", _MASTER], file)
    command_s = monotonic_s() - began_s
    document: dict[str, Any] = json.loads(said)
    (flow,) = document["flows"]
    if flow["records"] != row.records:
        raise BenchError(f"{flow['records']} of {row.records} records were compared")
    return AuditRun(
        system=system,
        round_index=round_index,
        records=flow["records"],
        findings=len(flow["findings"]),
        command_s=command_s,
        audit_s=flow["seconds"] - document["spark_start_seconds"],
        python_consumer_s=python_s,
        java_consumer_s=java_s,
    )


def _filled(row: AuditRow) -> CopyRow:
    return CopyRow(
        name=row.name,
        records=row.records,
        record_bytes=row.record_bytes,
        batch_bytes=row.batch_bytes,
        partitions=row.partitions,
        systems=row.systems,
        goals=(),
    )


def _told(words: Sequence[str], file: str) -> str:
    """What a command of Heliograph's own printed; raises unless it ended with 0."""
    environment = compiled_environment(Path(file).parent.parent)
    return _output([sys.executable, "-m", "heliograph", *words], environment)


def _python_pass(route: Route, records: int) -> float:
    said = _output(
        [sys.executable, "-m", __name__, route.source_bootstrap, route.topic, str(records)]
    )
    return float(said)


def _java_pass(route: Route, records: int) -> float:
    classpath = os.pathsep.join(map(str, kafka_classpath(KAFKA_VERSION, ("kafka-tools",))))
    said = _output(
        [
            str(java_executable()),
            "-cp",
            classpath,
            _PERF_MAIN,
            "--bootstrap-server",
            route.source_bootstrap,
            "--topic",
            route.topic,
            "--num-records",
            str(records),
            "--timeout",
            "30000",
        ]
    )
    lines = [line for line in said.splitlines() if _PERF_LINE.match(line)]
    if not lines:
        raise BenchError(f"the consumer gave no figures: {said.strip()[-200:]}")
    return float(lines[-1].split(",")[_FETCH_MS_COLUMN]) / 1000


def _output(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        argv,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_COMMAND_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(
            f"{Path(argv[0]).name} {' '.join(argv[1:4])} ended with {done.returncode}: "
            f"{done.stderr.strip()[-500:]}"
        )
    return done.stdout


def consume_all(bootstrap: str, topic: str, records: int) -> float:
    """Seconds from the first record to the last of one plain consumer; runs in a child."""
    from confluent_kafka import Consumer, TopicPartition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "plain",
            "enable.auto.commit": False,
            # By default it stops fetching for a second whenever 100,000 records wait for Python.
            "queued.min.messages": 1_000_000,
            "fetch.queue.backoff.ms": 5,
        }
    )
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    began_s = time.monotonic()
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    seen = 0
    while seen < records:
        seen += sum(message.error() is None for message in consumer.consume(10_000, timeout=1.0))
    seconds = time.monotonic() - began_s
    consumer.close()
    return seconds


if __name__ == "__main__":
    sys.stdout.write(f"{consume_all(sys.argv[1], sys.argv[2], int(sys.argv[3])):.3f}\n")
