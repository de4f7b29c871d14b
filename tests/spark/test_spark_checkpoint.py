"""Real queries, stopped or killed on the source, go on from a translated checkpoint on the target.

The connector is not of the engine's own version: none of those resolves (see tests.kit.connector).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from heliograph.cli.app import app
from heliograph.errors import CheckpointError
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import NewRec, Transaction, numbered, produce, produce_transactions
from tests.spark.kafka_query import Order, batches, write_orders

# An empty cache is filled first with Spark's Kafka connector: 257 s beside two other workers.
pytestmark = pytest.mark.timeout(600)

# Aliases of its own: other tests mirror between the same two clusters.
SOURCE, TARGET = "sparkA", "sparkB"
TOPIC: Final = "queried-orders"
PARTITIONS: Final = 2
EARLY, BEFORE, AFTER, FOREIGN = 320, 400, 200, 7
"""Records mirrored before the queries ran, records they read, records that came later."""
KEYS: Final = 5
HELD: Final = 2
QUERY_S_MAX: Final = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Queries on the source, ended in the middle; their translated copies run on the target.

    `ahead` is the killed one once more, translated while the mirror was behind it.
    """

    config: Path
    """Of the mirror, with a source that does not answer."""
    orders: dict[str, Order]
    copies: dict[str, Path]
    told: dict[str, dict[str, Any]]
    first: dict[str, dict[int, list[list[str]]]]
    """What each batch read on the source."""
    last: dict[str, dict[int, list[list[str]]]]
    """What each batch read in the end: a batch that ran twice left what it read last."""
    files: dict[str, dict[str, bytes]]
    """Every checkpoint as it was before it was translated."""


@pytest.fixture(scope="module")
def story(pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder = tmp_path_factory.mktemp("queries")
    a, b = pair["A"], pair["B"]
    lasting_topic(a, TOPIC, partitions=PARTITIONS)
    # What others wrote there first makes every offset another one.
    lasting_topic(b, f"{SOURCE}.{TOPIC}", partitions=PARTITIONS)
    foreign = [NewRec(value=b"foreign", partition=number) for number in range(PARTITIONS)]
    produce(b, f"{SOURCE}.{TOPIC}", foreign * FOREIGN)
    _produce_with_gaps(a, 0, EARLY)
    _mirror(folder, pair)
    _produce_with_gaps(a, EARLY, BEFORE - EARLY)
    orders = {
        name: replace(
            order,
            bootstrap=a.bootstrap,
            topic=TOPIC,
            checkpoint=str(folder / f"{name}-on-a"),
            out=str(folder / f"{name}-out"),
        )
        for name, order in _ORDERS.items()
    }

    killed = _run(folder, list(orders.values()))
    assert killed == -signal.SIGKILL
    first = {name: batches(Path(order.out)) for name, order in orders.items()}
    files = {name: _files(Path(order.checkpoint)) for name, order in orders.items()}
    copies = {name: folder / f"{name}-on-b" for name in [*orders, "ahead"]}
    config = _config_without_source(folder, b)
    told = {"ahead": _translate(config, Path(orders["killed"].checkpoint), copies["ahead"])}
    _produce_with_gaps(a, BEFORE, AFTER)
    _mirror(folder, pair)
    told |= {
        name: _translate(config, Path(order.checkpoint), copies[name])
        for name, order in orders.items()
    }
    ahead = replace(orders["killed"], out=str(folder / "ahead-out"), turn=1)
    shutil.copytree(orders["killed"].out, ahead.out)
    resumed = [
        replace(
            order,
            bootstrap=b.bootstrap,
            topic=f"{SOURCE}.{TOPIC}",
            checkpoint=str(copies[name]),
            hold_batch=None,
        )
        for name, order in [*orders.items(), ("ahead", ahead)]
    ]
    copied = {name: _files(copies[name]) for name in orders}
    ended = _run(folder, resumed)
    assert ended == 0
    return Story(
        config=config,
        orders=orders,
        copies=copies,
        told=told,
        first=first,
        last={name: batches(folder / f"{name}-out") for name in copies},
        files={**files, **{f"{name} copied": found for name, found in copied.items()}},
    )


_ANY: Final = Order(bootstrap="", topic="", checkpoint="", out="", layout=1)
_ORDERS: Final = {
    "stopped": _ANY,
    "killed": replace(_ANY, hold_batch=HELD),
    "killed-at-once": replace(_ANY, hold_batch=0),
    "killed-named": replace(_ANY, layout=2, name="incoming", hold_batch=HELD),
    "counts-named": replace(_ANY, layout=2, name="counted", counts=True),
}


@pytest.mark.parametrize("name", ["stopped", "killed", "killed-at-once", "killed-named", "ahead"])
def test_a_query_reads_every_record_exactly_once_across_both_clusters(
    story: Story, name: str
) -> None:
    read = Counter(value for rows in story.last[name].values() for _, value in rows)

    wanted = Counter(_value(record) for record in numbered(BEFORE + AFTER))
    assert read == wanted


@pytest.mark.parametrize("name", ["killed", "killed-at-once", "killed-named"])
def test_a_batch_that_was_planned_and_not_committed_is_run_again_over_the_same_records(
    story: Story, name: str
) -> None:
    on_source, on_target = story.first[name], story.last[name]

    held = _ORDERS[name].hold_batch
    assert held == max(on_source)
    assert len(on_source[held]) > 0
    assert sorted(on_target[held]) == sorted(on_source[held])
    assert len(on_target) > len(on_source)


def test_a_planned_batch_that_is_not_all_mirrored_gets_smaller_and_nothing_is_missed(
    story: Story,
) -> None:
    told, on_source, on_target = story.told["ahead"], story.first["killed"], story.last["ahead"]

    assert not told["is_exact"]
    assert [one["clamped"] for one in told["partitions"]] == [None] * PARTITIONS
    assert [one["planned_clamped"] for one in told["partitions"]] == ["after"] * PARTITIONS
    assert all("beyond what is mirrored" in one["notes"][0] for one in told["partitions"])
    again, planned = ({value for _, value in read[HELD]} for read in (on_target, on_source))
    assert len(again) > 0
    assert again < planned


def test_the_state_of_a_query_goes_along(story: Story) -> None:
    counted: dict[str, int] = {}
    for _, rows in sorted(story.last["counts-named"].items()):
        counted |= {key: int(count) for key, count in rows}

    wanted = Counter(_key(record) for record in _records(0, BEFORE + AFTER))
    assert counted == wanted


@pytest.mark.parametrize("name", list(_ORDERS))
def test_every_position_is_said_to_be_exact_and_is_another_number(story: Story, name: str) -> None:
    told = story.told[name]

    assert told["is_exact"]
    assert told["is_committed"] is (_ORDERS[name].hold_batch is None)
    assert told["layout"] == _ORDERS[name].layout
    assert {one["partition"] for one in told["partitions"]} == set(range(PARTITIONS))
    assert all(one["source_offset"] != one["target_offset"] for one in told["partitions"])


@pytest.mark.parametrize("name", list(_ORDERS))
def test_the_checkpoint_itself_is_left_as_it_was(story: Story, name: str) -> None:
    assert _files(Path(story.orders[name].checkpoint)) == story.files[name]


@pytest.mark.parametrize("name", list(_ORDERS))
def test_only_files_with_offsets_differ_from_the_real_ones(story: Story, name: str) -> None:
    before, after = story.files[name], story.files[f"{name} copied"]

    source = _ORDERS[name].name or "0"
    kept = [path for path in after if path.startswith("offsets/")]
    offsets = {*kept, f"sources/{source}/0"}
    assert {path for path in after if before[path] != after[path]} == offsets
    assert len(kept) == min(2, len(story.first[name]))
    assert {path for path in before if path.startswith("state/")} <= after.keys()
    for path in offsets:
        assert after[path] == _with_offsets_of(after[path], before[path])


def test_a_query_that_reads_nothing_mirrored_is_refused_and_nothing_is_written(
    story: Story, tmp_path: Path
) -> None:
    (tmp_path / "query" / "offsets").mkdir(parents=True)
    (tmp_path / "query" / "metadata").write_text("{}")
    (tmp_path / "query" / "offsets" / "0").write_text('v1\n{}\n{"clicks":{"0":1}}')

    with pytest.raises(CheckpointError, match="no source of the query reads a topic"):
        _translate(story.config, tmp_path / "query", tmp_path / "copy")

    assert not (tmp_path / "copy").exists()


def _with_offsets_of(after: bytes, before: bytes) -> bytes:
    """The real file, with nothing but the last line's JSON taken from the copy."""
    head, brace, _ = before.rpartition(b'{"' + TOPIC.encode())
    _, same_brace, tail = after.rpartition(b'{"' + f"{SOURCE}.{TOPIC}".encode())
    assert brace
    return head + same_brace + tail


def _records(start: int, count: int) -> list[NewRec]:
    return numbered(count, partitions=PARTITIONS, start=start, keys=KEYS)


def _produce_with_gaps(cluster: LocalCluster, start: int, count: int) -> None:
    """In transactions, some of them aborted: control records and aborted ones are not mirrored."""
    third = count // 3
    parts = [
        Transaction(records=_records(start, third)),
        Transaction(records=_records(90_000, 11), commit=False),
        Transaction(records=_records(start + third, third)),
        Transaction(records=_records(91_000, 5), commit=False),
        Transaction(records=_records(start + 2 * third, count - 2 * third)),
    ]
    produce_transactions(cluster, TOPIC, parts, transactional_id=f"queries-{start}")


def _run(folder: Path, orders: list[Order]) -> int:
    """The exit code; the process and its JVM are a group of their own."""
    path = write_orders(folder / "orders.json", orders)
    log_path = folder / "query.log"
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.kafka_query", str(path)],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        code = child.wait(QUERY_S_MAX)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    assert code in (0, -signal.SIGKILL), log_path.read_text(errors="replace")[-6_000:]
    return code


def _mirror(folder: Path, pair: dict[str, LocalCluster]) -> None:
    config = write_config(
        folder / "mirror.properties",
        {SOURCE: pair["A"], TARGET: pair["B"]},
        {f"{SOURCE}->{TARGET}": {"topics": TOPIC}},
    )
    carry(config, lanes=PARTITIONS)


def _config_without_source(folder: Path, target: LocalCluster) -> Path:
    """The same mirror, with a source that does not answer."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    return write_config(
        folder / "source-down.properties",
        {SOURCE: address, TARGET: target},
        {f"{SOURCE}->{TARGET}": {"topics": TOPIC}},
    )


def _translate(config: Path, checkpoint: Path, copy: Path) -> dict[str, Any]:
    options = ["--spark-checkpoint", str(checkpoint), "--out", str(copy), "--json"]
    answer = CliRunner().invoke(app(), ["offsets", str(config), *options], catch_exceptions=False)
    assert answer.exit_code == 0, answer.output
    told: dict[str, Any] = json.loads(answer.stdout)
    return told


def _files(folder: Path) -> dict[str, bytes]:
    """All but the checksums that Hadoop keeps beside each file."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".")
    }


def _value(record: NewRec) -> str:
    return (record.value or b"").decode()


def _key(record: NewRec) -> str:
    return (record.key or b"").decode()
