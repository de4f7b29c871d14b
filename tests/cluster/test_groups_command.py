"""`heliograph groups` against real clusters, with a ledger as a mirror that has ended left it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from heliograph.broker.cluster import Cluster
from heliograph.cli.groups import GROUPS_HELP, groups
from heliograph.cli.output import flowed
from heliograph.ledger.entries import (
    Entry,
    RunsEntry,
    ledger_topic,
    new_author,
)
from heliograph.ledger.runs import Run
from heliograph.ledger.store import LedgerStore
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.entries import head_entry, start_entry
from tests.kit.groups import commit, commit_as_member, member
from tests.kit.mirror import write_config
from tests.kit.records import numbered, produce
from tests.kit.topics import create_topic

FLOW = FlowId(source=ClusterAlias("groupsA"), target=ClusterAlias("groupsB"))
ORDERS, COPY = "groups-orders", "groupsA.groups-orders"
TARGET_START, RECORDS, GAP = 5, 60, 40
"""Source offsets 0 to 39 and 80 to 99 were mirrored to 5 to 64: the rest was a gap."""

app = typer.Typer(add_completion=False)
app.command(help=flowed(GROUPS_HELP))(groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    file: Path
    silent: Path
    """The same, without group offsets."""
    unreachable: Path


def asked(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def documents(*arguments: str | Path) -> dict[tuple[str, int], dict[str, Any]]:
    (flow,) = json.loads(asked(*arguments, "--json").stdout)["flows"]
    assert flow["problems"] == []
    return {(row["group"], row["partition"]): row for row in flow["groups"]}


@pytest.fixture(scope="module")
def followed(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Followed]:
    source, target = pair["A"], pair["B"]
    for cluster, name in ((source, ORDERS), (target, COPY)):
        create_topic(cluster, name, partitions=2, config={"retention.ms": "-1"})
    produce(target, COPY, numbered(2 * (TARGET_START + RECORDS), partitions=2))
    leave_ledger(target)
    for group, at_source, at_target in (
        ("g-step", 90, 55),
        ("g-behind", 90, 54),
        ("g-ahead", 90, 56),
        ("g-gap", 70, None),
        ("g-active", 90, None),
    ):
        commit(source, group, ORDERS, {0: at_source})
        if at_target is not None:
            commit(target, group, COPY, {0: at_target})
    commit(source, "g-step", ORDERS, {1: 3})
    commit(source, "stranger", ORDERS, {0: 3})

    root = tmp_path_factory.mktemp("groups")
    clusters: dict[str, LocalCluster | str] = {FLOW.source: source, FLOW.target: target}
    settings = {"topics": ORDERS, "groups": "g-.*"}
    writing = {**settings, "sync.group.offsets.enabled": "true"}
    dead: dict[str, LocalCluster | str] = {**clusters, FLOW.source: "127.0.0.1:1"}
    with member(target, "g-active", COPY) as consumer:
        commit_as_member(consumer, COPY, 7)
        yield Followed(
            file=write_config(root / "mm2.properties", clusters, {str(FLOW): writing}),
            silent=write_config(root / "silent.properties", clusters, {str(FLOW): settings}),
            unreachable=write_config(root / "dead.properties", dead, {str(FLOW): settings}),
        )


def leave_ledger(target: LocalCluster) -> None:
    """Partition 0 has a gap in the source; partition 1 was never carried."""
    name = create_topic(target, ledger_topic(FLOW.source), config={"cleanup.policy": "compact"})
    topic = TopicName(ORDERS)
    author = new_author()
    runs = (
        Run(position=0, source_offset=0, target_offset=TARGET_START),
        Run(position=40, source_offset=40 + GAP, target_offset=TARGET_START + 40),
    )
    entries: list[Entry] = [
        start_entry(topic, author=author, target_offset=TARGET_START),
        RunsEntry(topic=topic, partition=0, author=author, runs=runs, end_position=RECORDS),
        head_entry(
            topic,
            records=RECORDS,
            source_next_offset=RECORDS + GAP,
            source_end_offset=RECORDS + GAP,
            target_next_offset=TARGET_START + RECORDS,
        ),
    ]

    async def write() -> None:
        cluster = Cluster(FLOW.target, [target.bootstrap], {})
        store = LedgerStore(cluster, TopicName(name))
        try:
            await store.write(entries)
        finally:
            await store.close()
            cluster.close()

    asyncio.run(write())


def test_every_group_is_told_with_both_offsets_and_a_verdict(followed: Followed) -> None:
    found = documents(followed.file)

    assert {key: row["verdict"] for key, row in found.items()} == {
        ("g-step", 0): "in step",
        ("g-step", 1): "not translatable",
        ("g-behind", 0): "behind",
        ("g-ahead", 0): "ahead",
        ("g-gap", 0): "behind",
        ("g-active", 0): "active on target",
    }
    assert found["g-behind", 0] == {
        "group": "g-behind",
        "type": "classic",
        "topic": ORDERS,
        "partition": 0,
        "target_topic": COPY,
        "source_offset": 90,
        "target_offset": 55,
        "clamped": None,
        "committed_offset": 54,
        "target_end_offset": 65,
        "lag_records": 11,
        "source_state": "empty",
        "target_state": "empty",
        "verdict": "behind",
    }
    assert found["g-gap", 0]["target_offset"] == TARGET_START + 40
    assert found["g-gap", 0]["target_state"] == "dead"
    assert found["g-active", 0]["committed_offset"] == 7
    assert found["g-active", 0]["target_state"] == "stable"


def test_a_flow_that_writes_no_offsets_says_so(followed: Followed) -> None:
    found = documents(followed.silent)

    not_written = "not written: sync.group.offsets.enabled is false"
    assert {key: row["verdict"] for key, row in found.items()} == {
        ("g-step", 0): "in step",
        ("g-step", 1): "not translatable",
        ("g-behind", 0): not_written,
        ("g-ahead", 0): "ahead",
        ("g-gap", 0): not_written,
        ("g-active", 0): "active on target",
    }


def test_the_table_has_a_row_per_group_and_a_line_per_flow(followed: Followed) -> None:
    said = asked(followed.file)

    assert said.exit_code == 0
    head, _, *rows = said.stdout.strip().splitlines()
    assert head == (
        f"{FLOW}: 5 groups, 6 offsets: 1 active on target, 1 ahead, 2 behind, 1 in step, "
        "1 not translatable"
    )
    assert len(rows) == 6
    (active,) = (row.split() for row in rows if row.startswith("g-active"))
    assert active == [
        *("g-active", "groups-orders-0", "90", "55", "7", "58", "empty", "stable"),
        *("active", "on", "target"),
    ]


def test_groups_and_flows_can_be_chosen(followed: Followed) -> None:
    found = documents(followed.file, "--group", "g-(step|gap)", "--flow", str(FLOW))

    assert {group for group, _ in found} == {"g-step", "g-gap"}


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [("--group", "g-(", "not a regex"), ("--flow", "x->y", "not an enabled flow")],
)
def test_a_choice_that_means_nothing_is_refused(
    followed: Followed, option: str, value: str, words: str
) -> None:
    said = asked(followed.file, option, value)

    assert said.exit_code == 2
    assert words in " ".join(said.output.split())


def test_a_cluster_that_does_not_answer_is_named(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heliograph.inspect.groups.ANSWER_S_MAX", 0.5)

    said = asked(followed.unreachable)

    assert said.exit_code == 1
    assert f"problem: cluster {FLOW.source}: unreachable" in said.stdout
