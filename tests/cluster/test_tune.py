"""A load test on real brokers: what it measures, what it writes, and that nothing is left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import write_config
from tests.kit.records import NewRec, produce
from tests.kit.runs import WITHOUT_SPARK
from tests.kit.topics import create_topic, wait_until

_S_MAX = 120.0


def tune(file: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *WITHOUT_SPARK, "tune", str(file), "--yes", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=file.parent,
    )


def scratch_topics(pair: dict[str, LocalCluster]) -> list[str]:
    return [
        name
        for cluster in pair.values()
        for name in AdminClient(cluster.librdkafka_config).list_topics(timeout=20).topics
        if "heliograph-tune-" in name
    ]


def test_slots_are_compared_the_peak_is_found_and_all_is_removed(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = topic("busy")
    create_topic(pair["A"], name)
    produce(pair["A"], name, [NewRec(value=b"%d" % n) for n in range(3_600)])
    file = write_config(tmp_path / "mm2.properties", pair, {"A->B": {"topics": name}})
    before = file.read_bytes()

    load = ("--slots", "1,2", "--mb", "4", "--days", "1", "--out", "chart.svg", "--json")
    told, said = (child := tune(file, *load)).communicate(timeout=_S_MAX)

    assert child.returncode == 0, said
    found = json.loads(told)
    assert [(step["slots"], step["bytes_per_s"] > 0) for step in found["steps"]] == [
        (1, True),
        (2, True),
    ]
    assert all(step["target"]["bytes"] >= 4_000_000 for step in found["steps"])
    assert found["knee"]["slots"] in (1, 2)
    assert round(found["peak"]["records_per_s"], 3) == 1.0
    assert [row[0] for row in found["peak"]["topics"]] == [name]
    assert found["headroom"] > 1
    assert (tmp_path / "heliograph-tune.properties").read_text().startswith("# heliograph tune")
    assert (tmp_path / "chart.svg").read_text().startswith("<svg")
    assert file.read_bytes() == before
    wait_until(lambda: not scratch_topics(pair), "scratch topics removed")

    # The second step is there for a machine on which the first is over before the signal comes.
    child = tune(file, "--slots", "1,2", "--mb", "200", "--days", "0")
    wait_until(lambda: len(scratch_topics(pair)) >= 3, "a test under way", timeout_s=_S_MAX)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=_S_MAX)

    assert child.returncode != 0
    wait_until(lambda: not scratch_topics(pair), "scratch topics removed after Ctrl-C")
