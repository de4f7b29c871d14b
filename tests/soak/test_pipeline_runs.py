"""Pipelines of the file, run by `heliograph run` beside its lanes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.mirror import write_config
from tests.kit.records import Rec, numbered, produce, read_all
from tests.kit.runs import MirrorRun, mirror_once, running_mirror
from tests.kit.topics import create_topic, wait_until

pytestmark = pytest.mark.timeout(280)

FUNCTIONS = "tests.spark.pipeline_functions"
PATIENCE_S = 90.0


def config_of(
    pair: dict[str, LocalCluster], folder: Path, names: dict[str, str], port: int
) -> Path:
    """One that filters by SQL, one that is random, two that cannot work."""
    pipelines: dict[str, dict[str, str]] = {
        "kept": {
            "sql": "SELECT key, value, timestamp FROM records WHERE offset % 10 = 0",
            "target.topic": names["kept"],
        },
        "routed": {"function": f"{FUNCTIONS}:routed", "target.topic": names["routed"]},
        "failing": {"function": f"{FUNCTIONS}:failing", "target.topic": names["kept"]},
        "wanting": {"function": f"{FUNCTIONS}:wanting", "target.topic": names["kept"]},
    }
    settings = {
        f"pipeline.{names[name]}.{key}": value
        for name, given in pipelines.items()
        for key, value in (
            {"topics": names["in"], "folder": str(folder / name), "trigger.ms": "500"} | given
        ).items()
    }
    config = write_config(
        folder / "mm2.properties", pair, {"A->B": {"topics": "none-of-them", **settings}}
    )
    config.write_text(f"{config.read_text()}api.listen = 127.0.0.1:{port}\n")
    return config


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def marked(records: dict[int, list[Rec]]) -> list[bytes]:
    """Values, without what the transform has drawn."""
    return sorted(
        (rec.value or b"").partition(b"#")[0] for part in records.values() for rec in part
    )


def command(*words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "heliograph", *words]
    return subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)


def await_true(run: MirrorRun, what: Callable[[], bool], words: str) -> None:
    try:
        wait_until(what, words, timeout_s=PATIENCE_S)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{run.last_words}") from exc


def test_pipelines_of_the_file_run_are_seen_paused_and_go_on_elsewhere(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    names = {each: topic(each) for each in ("in", "kept", "routed", "failing", "wanting")}
    create_topic(pair["A"], names["in"], partitions=2)
    for each in ("kept", "routed"):
        create_topic(pair["B"], names[each], partitions=2)
    produce(pair["A"], names["in"], numbered(600, partitions=2))
    port = free_port()
    config = config_of(pair, tmp_path, names, port)

    def seen() -> dict[str, dict[str, Any]]:
        with urlopen(f"http://127.0.0.1:{port}/v1/pipelines", timeout=10) as answer:
            found = json.load(answer)["pipelines"]
        by_name = {each["name"]: each for each in found}
        return {word: by_name[name] for word, name in names.items() if name in by_name}

    def written(word: str) -> int:
        return len(marked(read_all(pair["B"], names[word])))

    with running_mirror(config) as run:
        await_true(run, lambda: written("routed") == 600, "all rows")
        await_true(run, lambda: written("kept") == 60, "a tenth of the rows")
        await_true(run, lambda: seen()["failing"]["reason"] != "", "a reason")
        await_true(run, lambda: seen()["routed"]["rows_written"] == 600, "its figures")
        await_true(run, lambda: seen()["routed"]["lag_records"] == 0, "its lag")
        at = seen()
        assert at["routed"]["state"] == "running" and at["routed"]["batch_ms"] > 0
        assert "column value is missing" in at["wanting"]["reason"]
        assert "no such row" in at["failing"]["reason"]
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        labels = f'pipeline="{names["routed"]}",source="A",target="B"'
        assert f"heliograph_pipeline_rows_total{{{labels}}} 600" in metrics

        # Each try of the one that fails costs the Python workers of its tasks.
        both = ("--pipeline", names["routed"], "--pipeline", names["failing"])
        paused = command("pause", str(config), *both, "--why", "upgrade")
        assert paused.returncode == 0, paused.stderr
        await_true(run, lambda: seen()["routed"]["state"] == "paused", "a pause")
        produce(pair["A"], names["in"], numbered(200, partitions=2, start=600))
        await_true(run, lambda: written("kept") == 80, "what is not paused")
        assert written("routed") == 600
        status = command("status", str(config), "--json")
        (flow,) = json.loads(status.stdout)["flows"]
        by_name = {each["name"]: each for each in flow["pipelines"]}
        assert "upgrade" in by_name[names["routed"]]["reason"]
        assert by_name[names["wanting"]]["state"] == "stalled" and status.returncode == 3
        assert names["wanting"] in command("status", str(config)).stdout
        assert command("resume", str(config), "--pipeline", names["routed"]).returncode == 0
        run.kill_driver()

    again = mirror_once(config)

    assert again.exit_code != 0 and "column value is missing" in again.said
    assert marked(read_all(pair["B"], names["routed"])) == marked(read_all(pair["A"], names["in"]))
    assert written("kept") == 80


def test_a_dry_run_shows_what_the_first_records_would_become_and_writes_nothing(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    names = {each: topic(each) for each in ("in", "kept", "routed", "failing", "wanting")}
    create_topic(pair["A"], names["in"], partitions=2)
    for each in ("kept", "routed"):
        create_topic(pair["B"], names[each], partitions=2)
    produce(pair["A"], names["in"], numbered(100, partitions=2))
    config = str(config_of(pair, tmp_path, names, free_port()))

    tried = command("pipeline", config, names["routed"], "--sample", "20", "--json")
    refused = command("pipeline", config, names["wanting"])

    assert tried.returncode == 0, tried.stderr
    rows = json.loads(tried.stdout)["rows"]
    assert len(rows) == 20 and {row["topic"] for row in rows} == {names["routed"]}
    there = {value.decode() for value in marked(read_all(pair["A"], names["in"]))}
    assert {row["value"].partition("#")[0] for row in rows} <= there
    assert refused.returncode == 1 and "column value is missing" in refused.stderr
    assert not any(read_all(pair["B"], names["routed"]).values())
