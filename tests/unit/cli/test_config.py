"""`heliograph config` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from heliograph.cli.config import CONFIG_HELP, config
from heliograph.cli.output import flowed
from tests.unit.config.texts import TWO_CLUSTERS

app = typer.Typer()
app.command(help=flowed(CONFIG_HELP))(config)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"{TWO_CLUSTERS}A->B.topics = orders\nA.ssl.key.password = hunter2\nlisteners = x\n"
        "A->B.source.consumer.fetch.max.bytes = 1000\n"
    )
    return path


def test_tables_have_value_key_and_line_and_no_secret(file: Path) -> None:
    result = CliRunner().invoke(app, [str(file)])

    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["topics", "orders", "A->B.topics", "5"] in lines
    assert ["replication.factor", "2", "default"] in lines
    assert ["fetch.max.bytes", "1000", "A->B.source.consumer.fetch.max.bytes", "8"] in lines
    assert ["max.partition.fetch.bytes", "found", "by", "itself", "default"] in lines
    assert ["ssl.key.password", "********", "A.ssl.key.password", "6"] in lines
    assert "hunter2" not in result.output


def test_keys_of_connect_are_in_the_tables_only_when_the_file_has_them(file: Path) -> None:
    shown = CliRunner().invoke(app, [str(file)]).stdout

    assert "listeners (Connect's)" in shown
    assert "admin.listeners" not in shown
    assert "transaction.boundary" not in shown


def test_a_pair_that_mirrors_nothing_is_named_and_can_be_asked_for(file: Path) -> None:
    whole = CliRunner().invoke(app, [str(file)]).stdout
    one = CliRunner().invoke(app, [str(file), "--flow", "B->A"]).stdout

    assert "B->A: only heartbeats; --flow 'B->A' shows it" in whole
    assert one.startswith("B->A\n")
    assert "A->B" not in one


def test_json_has_every_pair_and_every_key(file: Path) -> None:
    result = CliRunner().invoke(app, [str(file), "--json"])

    document = json.loads(result.stdout)
    assert set(document["clusters"]) == {"A", "B"}
    assert set(document["flows"]) == {"A->B", "B->A"}
    assert set(document["flows"]["A->B"]["clients"]) == {
        "source consumer",
        "source admin",
        "target producer",
        "target admin",
        "offset syncs producer",
    }
    values = {row["key"]: row for row in document["flows"]["A->B"]["values"]}
    assert values["topics"] == {
        "key": "topics",
        "value": "orders",
        "from": "A->B.topics",
        "line": 5,
        "acts": True,
    }
    assert values["transaction.boundary"]["acts"] is False
    assert len(document["notes"]) == 1


def test_a_pair_that_is_not_there_is_refused_with_those_that_are(file: Path) -> None:
    result = CliRunner().invoke(app, [str(file), "--flow", "A->C"])

    assert result.exit_code == 2
    assert "A->B, B->A" in " ".join(result.output.split())
