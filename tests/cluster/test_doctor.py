"""The doctor on real clusters: all is well, beside a cluster that is dead, and in a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from heliograph.cli.app import app
from heliograph.doctor.trial import SCRATCH_PREFIX
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import numbered, produce
from tests.kit.topics import admin_of, set_topic_config

DEAD = "127.0.0.1:1"


def examined(file: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    said = CliRunner().invoke(app("doctor"), ["doctor", str(file), "--json", *arguments])
    return said.exit_code, json.loads(said.stdout)["findings"]


def about(findings: list[dict[str, Any]], check: str, what: str = "") -> list[dict[str, Any]]:
    return [each for each in findings if each["check"] == check and what in each["about"]]


@pytest.fixture(scope="module")
def file(pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A flow that has caught up, and a third cluster that is not there."""
    lasting_topic(pair["A"], "doctor-orders", partitions=2)
    produce(pair["A"], "doctor-orders", numbered(20_000, partitions=2, value_bytes=100))
    path = write_config(
        tmp_path_factory.mktemp("doctor") / "mm2.properties",
        {"drA": pair["A"], "drB": pair["B"], "drC": DEAD},
        {"drA->drB": {"topics": "doctor-orders"}},
    )
    carry(path)
    yield path


def test_a_healthy_pair_has_no_problem_and_every_check_has_said_something(
    file: Path, pair: dict[str, LocalCluster]
) -> None:
    code, findings = examined(file, "--cluster", "drA", "--cluster", "drB", "--try")

    bad = [each for each in findings if each["severity"] == "problem"]
    assert (code, bad) == (0, [])
    severities = {each["check"]: each["severity"] for each in findings}
    assert severities.keys() == {
        "listeners",
        "versions",
        "permissions",
        "clocks",
        "network",
        "replicas",
        "sites",
        "plan",
        "limits",
        "outages",
        "capacity",
        "bottleneck",
    }
    reached = [each["what"] for each in about(findings, "listeners", "cluster drA")]
    assert reached[0].startswith("1 of 1 listener reached from the driver, round trip ")
    # One machine, so one clock: by the controllers, and by the records of the trial.
    clocks = about(findings, "clocks")
    assert {each["severity"] for each in clocks} == {"ok"}
    assert any(each["what"].startswith("broker 0 is ") for each in clocks)
    assert any("node 0, the active controller" in each["what"] for each in clocks)
    (granted,) = about(findings, "permissions")
    assert granted["severity"] == "ok"
    (release,) = about(findings, "versions", "drA")
    assert "metadata.version" in release["what"]
    written = [
        e["what"] for e in about(findings, "network", "cluster drB") if "written" in e["what"]
    ]
    read = [e["what"] for e in about(findings, "network", "cluster drA") if "read at" in e["what"]]
    assert (len(written), len(read)) == (1, 1)
    (side,) = about(findings, "bottleneck")
    assert side["what"].startswith("one reader gets ")
    left = admin_of(pair["B"]).list_topics(timeout=30).topics
    assert not [name for name in left if name.startswith(SCRATCH_PREFIX)]


def test_a_dead_cluster_costs_its_own_findings_and_what_the_target_lacks_is_found(
    file: Path, pair: dict[str, LocalCluster]
) -> None:
    set_topic_config(pair["B"], "drA.doctor-orders", {"max.message.bytes": "2000"})

    code, findings = examined(file, "--no-bandwidth")

    assert code == 1
    (dead,) = about(findings, "listeners", "cluster drC")
    assert dead["severity"] == "problem"
    assert "could not be asked" in dead["what"]
    assert "drC.bootstrap.servers" in dead["fix"]
    (small,) = [e for e in about(findings, "plan") if e["severity"] == "problem"]
    assert small["what"].startswith("drA.doctor-orders: max.message.bytes is 2000 on the target")
    assert about(findings, "versions", "drA")[0]["severity"] == "ok"
    (side,) = about(findings, "bottleneck")
    assert (side["severity"], "api.listen is not set" in side["what"]) == ("unknown", True)


def test_a_table_says_what_why_and_how(file: Path) -> None:
    said = CliRunner().invoke(app("doctor"), ["doctor", str(file), "--cluster", "drC"])

    assert said.exit_code == 1
    for words in ("problem", "why: nothing else of it could be checked", "fix: check drC"):
        assert words in said.stdout
