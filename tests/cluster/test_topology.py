"""`heliograph topology` on real clusters: what was written there is what is drawn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from heliograph.broker.records import Record, RecordWriter
from heliograph.cli.output import EXIT_STALLED, EXIT_USAGE
from heliograph.cli.topology import topology
from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.config.schema import ClusterConfig
from heliograph.inspect.topology import read_topology
from heliograph.model import ClusterAlias, TopicName
from heliograph.wire.mirror_records import Heartbeat, encode_heartbeat
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import write_config
from tests.kit.topics import create_topic

Pair = dict[str, LocalCluster]


def ask(file: Path, *flags: str) -> Result:
    app = typer.Typer()
    app.command()(topology)
    return CliRunner().invoke(app, [str(file), *flags])


def document(file: Path) -> Any:
    return json.loads(ask(file, "--json").stdout)


def beat(cluster: LocalCluster, topic: str, source: str, target: str, age_s: float = 0.0) -> None:
    config = ClusterConfig(
        alias=ClusterAlias("any"), bootstrap_servers=tuple(cluster.bootstrap.split(","))
    )
    at_ms = now_ms() - int(1000 * age_s)
    key, value = encode_heartbeat(Heartbeat(source=source, target=target, timestamp_ms=at_ms))
    writer = RecordWriter(config)
    writer.write(
        TopicName(topic),
        [Record(key=key, value=value, timestamp_ms=at_ms), Record(key=b"dirt", value=b"dirt")],
    )
    writer.close()


@pytest.fixture
def mirrored(pair: Pair, topic: TopicNames, tmp_path: Path) -> tuple[str, str, Path]:
    """a->b with heartbeats of a and of something above it, b->a without any."""
    a, b = topic("a"), topic("b")
    direct = create_topic(
        pair["B"], f"{a}.heartbeats", config={"message.timestamp.type": "LogAppendTime"}
    )
    above = create_topic(pair["B"], f"{a}.{a}-above.heartbeats")
    beat(pair["B"], direct, b, a, age_s=2.0)
    beat(pair["B"], above, "anybody", f"{a}-above", age_s=30.0)
    file = write_config(
        tmp_path / "mm2.properties",
        {a: pair["A"], b: pair["B"]},
        {f"{a}->{b}": {}, f"{b}->{a}": {}},
    )
    return a, b, file


def test_hops_ages_and_latency_are_those_of_the_heartbeats(
    mirrored: tuple[str, str, Path],
) -> None:
    a, b, file = mirrored

    found = document(file)

    clusters = {each["cluster"]: each for each in found["clusters"]}
    flows = {each["flow"]: each for each in found["flows"]}
    assert clusters[b]["hops"][a] == 1
    assert clusters[b]["hops"][f"{a}-above"] == 2
    assert f"{a}-above" in found["unknown_clusters"]
    assert 2.0 <= flows[f"{a}->{b}"]["age_s"] < 30.0
    assert 2.0 <= flows[f"{a}->{b}"]["latency_s"] <= flows[f"{a}->{b}"]["age_s"]
    assert flows[f"{a}->{b}"]["problem"] is None
    assert flows[f"{a}-above->{a}"]["in_file"] is False
    assert flows[f"{b}->{a}"]["age_s"] is None
    topics = {each["topic"]: each for each in clusters[b]["heartbeats"]}
    assert topics[f"{a}.heartbeats"]["skipped_records"] == 1
    assert topics[f"{a}.{a}-above.heartbeats"]["latency_s"] is None


def test_the_drawing_and_the_graph_show_the_same(mirrored: tuple[str, str, Path]) -> None:
    a, b, file = mirrored

    drawn, graph = ask(file), ask(file, "--dot")

    assert drawn.exit_code == EXIT_STALLED
    assert f"{a}  1 hop, heartbeat" in drawn.stdout
    assert f"{a}-above  2 hops, heartbeat" in drawn.stdout
    row = next(line for line in drawn.stdout.splitlines() if line.startswith(f"{b}->{a}"))
    assert "none" in row
    assert f'"{a}" -> "{b}" [label=' in graph.stdout
    assert graph.stdout.startswith("digraph topology {")
    assert graph.stdout.rstrip().endswith("}")


def test_two_forms_at_once_are_refused(mirrored: tuple[str, str, Path]) -> None:
    assert ask(mirrored[2], "--json", "--dot").exit_code == EXIT_USAGE


def test_a_cluster_that_is_down_is_named_and_the_others_are_drawn(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    a, b, gone = topic("a"), topic("b"), topic("gone")
    beat(pair["B"], create_topic(pair["B"], f"{a}.heartbeats"), gone, a)
    file = write_config(
        tmp_path / "mm2.properties",
        {a: pair["A"], b: pair["B"], gone: "127.0.0.1:1"},
        {f"{a}->{b}": {}, f"{b}->{gone}": {}},
    )

    found = read_topology(load_config(file), timeout_s=3.0)

    flows = {str(each.flow): each for each in found.flows}
    assert list(found.unreachable) == [gone]
    assert f"cluster {gone}" in found.unreachable[ClusterAlias(gone)]
    assert flows[f"{a}->{b}"].problem == ""
    assert flows[f"{b}->{gone}"].problem == f"unknown: cluster {gone} does not answer"


def test_flows_that_name_topics_differently_are_all_found(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    a, x, b = topic("a"), topic("x"), topic("b")
    beat(pair["B"], create_topic(pair["B"], f"{a}.heartbeats"), b, a)
    beat(pair["B"], create_topic(pair["B"], f"{x}_heartbeats"), b, x)
    file = write_config(
        tmp_path / "mm2.properties",
        {a: pair["A"], x: pair["A"], b: pair["B"]},
        {f"{a}->{b}": {}, f"{x}->{b}": {"replication.policy.separator": "_"}},
    )

    found = read_topology(load_config(file))

    seen = {str(each.flow): each.seen_on for each in found.flows}
    assert seen[f"{a}->{b}"] == seen[f"{x}->{b}"] == b
