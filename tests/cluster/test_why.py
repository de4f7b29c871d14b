"""Why a topic is mirrored or not, asked of real clusters with a mirror beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from heliograph.cli.app import app
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.inside import running_inside
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import numbered, produce
from tests.kit.topics import wait_until


def ask(file: Path, topic: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    said = CliRunner().invoke(app("why"), ["why", str(file), topic, "--json", *arguments])
    return said.exit_code, json.loads(said.stdout)


def first(found: dict[str, Any], flow: str = "wyA->wyB") -> dict[str, Any]:
    return next(each for each in found["flows"] if each["flow"] == flow)


def commit(cluster: LocalCluster, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({**cluster.librdkafka_config, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def test_every_answer_names_the_line_and_what_is_missing(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    orders, private, other = topic("why-orders"), topic("why-private"), topic("why-other")
    for name in (orders, private, other):
        lasting_topic(pair["A"], name)
        produce(pair["A"], name, numbered(50))
    group = topic("why-group")
    commit(pair["A"], group, orders, 30)
    file = write_config(
        tmp_path / "mm2.properties",
        {"wyA": pair["A"], "wyB": pair["B"]},
        {
            "wyA->wyB": {
                "topics": "why-orders-.*, why-private.*",
                "topics.exclude": "why-private.*",
                "groups": "why-group.*",
            }
        },
    )
    lines = file.read_text().splitlines()
    topics_line = next(n for n, line in enumerate(lines, 1) if ".topics =" in line)

    _, not_begun = ask(file, orders)
    with running_inside(file, leased=True):

        def is_mirrored() -> bool:
            return str(first(ask(file, orders)[1])["standing"]) == "mirrored"

        wait_until(is_mirrored, "the topic to be mirrored", timeout_s=60, poll_s=0.5)
        code, mirrored = ask(file, orders, "--group", group)
        left_out_code, left_out = ask(file, private)
        _, unmatched = ask(file, other)
        absent_code, absent = ask(file, orders.replace("why-orders", "why-ordres"))
        _, copy = ask(file, f"wyA.{orders}", "--group", "payments")

    waits = first(not_begun)
    assert waits["standing"] == "waiting"
    assert "no driver mirrors wyA->wyB" in [reason["text"] for reason in waits["reasons"]]
    found = first(mirrored)
    assert (code, found["target_topic"], found["lag_records"]) == (0, f"wyA.{orders}", 0)
    assert found["since_ms"] > 1_700_000_000_000
    assert found["reasons"][-1]["line"] == topics_line
    assert found["reasons"][-1]["key"] == "wyA->wyB.topics"
    (translated,) = mirrored["groups"]
    assert (translated["followed"], translated["translated"]) == (True, True)
    assert [row["target_offset"] for row in translated["offsets"]] == [30]
    assert translated["reasons"][0]["key"] == "sync.group.offsets.enabled"
    assert first(mirrored, "wyB->wyA")["standing"] == "flow disabled"
    excluded = first(left_out)["reasons"][0]
    assert (left_out_code, excluded["line"]) == (3, topics_line + 1)
    assert excluded["text"] == "matches topics.exclude `why-private.*`"
    assert first(unmatched)["reasons"][0]["text"].startswith("no pattern of topics matches it")
    gone = first(absent)["reasons"]
    assert absent_code == 3
    assert f"did you mean `{orders}`?" in gone[0]["text"]
    assert copy["hints"][0].startswith(f"wyA.{orders} on cluster wyB is the copy of {orders}")
    assert copy["groups"][0]["reasons"][0]["text"] == "not followed: no pattern of groups"


def test_a_cluster_that_does_not_answer_is_no_answer(
    pair: dict[str, LocalCluster], tmp_path: Path
) -> None:
    file = write_config(
        tmp_path / "mm2.properties",
        {"deadA": "127.0.0.1:1", "deadB": pair["B"]},
        {"deadA->deadB": {"topics": "orders"}},
    )

    code, found = ask(file, "orders")

    assert (code, first(found, "deadA->deadB")["standing"]) == (1, "unknown")
    plain = CliRunner().invoke(app("why"), ["why", str(file), "orders", "--flow", "deadB->deadA"])
    assert plain.exit_code == 3
    assert "deadB->deadA: not enabled" in plain.stdout
    assert "set deadB->deadA.enabled = true" in plain.stdout
