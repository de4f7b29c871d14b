"""A streaming query between two clusters through the pipeline's source and sink."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from examples.local import prepare

from heliograph import probe
from heliograph.pipeline.source import TRIGGERS_HAVE_LIMITS
from heliograph.pipeline.source_options import COLUMNS
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.mirror import write_config
from tests.kit.records import (
    NewRec,
    Rec,
    Transaction,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.soaking import in_soak
from tests.kit.topics import create_topic
from tests.spark.kit import REPOSITORY
from tests.spark.pipeline_query import Order, examples_of, write_order

pytestmark = pytest.mark.timeout(600)  # about 90 s; a machine that others slowed down took 200

STEPS = (
    probe.PIPELINE_STAGED,
    probe.PIPELINE_CLAIMED,
    probe.PIPELINE_TO_NOTE,
    probe.PIPELINE_NOTED,
)
FORMAT_STEPS: tuple[str, ...] | None = in_soak(
    (probe.PIPELINE_CLAIMED, probe.PIPELINE_TO_NOTE), ci=None
)
"""Each is a query of its own, with six processes that import Heliograph."""
EXAMPLE_COUNT = in_soak(3, ci=1)
ALL_COLUMNS = list(COLUMNS)
NEEDED = {
    "SELECT * FROM records": ALL_COLUMNS,
    "SELECT value, key AS k FROM records AS r WHERE r.offset % 10 = 0": ["key", "value", "offset"],
    "SELECT value FROM records WHERE exists(headers, h -> h.key = 'x')": ["value", "headers"],
    "SELECT v AS value FROM (SELECT upper(string(value)) AS v FROM records)": ["value"],
    "SELECT 'x' AS value FROM records": ["offset"],
    "SELECT count(*) AS value FROM records GROUP BY key": ALL_COLUMNS,
    "SELECT value FROM records WHERE key IN (SELECT topic FROM records)": ALL_COLUMNS,
    "WITH records AS (SELECT * FROM records) SELECT value FROM records": ALL_COLUMNS,
    "SELECT value FROM records UNION ALL SELECT key FROM records": ALL_COLUMNS,
}
"""What SQL over `records` reads of them."""


def run_query(order: Order, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.spark.pipeline_query",
            str(write_order(folder / "order", order)),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={
            **os.environ,
            # Spark looks for data sources in folders; those of all tests come first.
            "PYTHONPATH": os.pathsep.join(
                [os.environ["PYTHONPATH"], str(REPOSITORY / "src"), str(REPOSITORY)]
            ),
        },
    )


def order_of(
    pair: dict[str, LocalCluster], folder: Path, name: str, topics: tuple[str, str], **more: Any
) -> Order:
    config = write_config(folder / "mm2.properties", pair, {"A->B": {}})
    return Order(
        config=str(config),
        source_topic=topics[0],
        target_topic=topics[1],
        name=name,
        folder=str(folder),
        **more,
    )


def values(records: dict[int, list[Rec]]) -> list[bytes]:
    """Of the source, without what the transform has drawn."""
    return [(rec.value or b"").partition(b"#")[0] for part in records.values() for rec in part]


def test_a_random_query_that_fails_at_every_step_and_the_examples_write_each_row_once(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    """One Spark for all that needs one."""
    names = ("in", "out", "format", "direct", "format-direct")
    source, target, by_format, direct, format_direct = (topic(each) for each in names)
    create_topic(pair["A"], source, partitions=2)
    for each in (target, by_format, direct, format_direct):
        create_topic(pair["B"], each, partitions=3)
    committed = numbered(900, partitions=2)
    produce(pair["A"], source, committed)
    aborted = [NewRec(key=b"no", value=b"aborted", partition=0)]
    produce_transactions(
        pair["A"], source, [Transaction(records=aborted, commit=False)], transactional_id=source
    )
    produce(
        pair["A"], source, [NewRec(key=None, value=b"last", partition=1, headers=((("h"), b"1"),))]
    )
    before, prefix = read_all(pair["A"], source), topic("example-")
    written: dict[str, Callable[[], dict[int, list[Rec]]]] = {}
    for each_prefix, example in examples_of(prefix, EXAMPLE_COUNT):
        prepare(example, pair, each_prefix)
        written |= {
            name: partial(read_all, pair["B"], f"{each_prefix}{name}") for name in example.b
        }

    order = order_of(
        pair,
        tmp_path,
        topic("p"),
        (source, target),
        steps=STEPS,
        format_topic=by_format,
        format_steps=FORMAT_STEPS,
        direct_topic=direct,
        format_direct_topic=format_direct,
        examples=prefix,
        example_count=EXAMPLE_COUNT,
        queries=tuple(NEEDED),
    )
    ended = run_query(order, tmp_path)

    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout.splitlines()[-1])
    assert document["said"] == ["crashed", "ended", *STEPS[1:]]
    assert_same_rows(read_all(pair["B"], target), before)
    *streams, first, again, nowhere, wrong, overwritten = document["format"]
    assert [said == "ended" for said in streams] == (
        [] if FORMAT_STEPS is None else [*(False for _ in FORMAT_STEPS), True]
    )
    assert [first, again] == ["ended"] * 2
    assert "is for partition 7, and it has 3" in nowhere
    assert "column value is int, not binary or string" in wrong
    assert "a topic cannot be overwritten" in overwritten
    formatted = read_all(pair["B"], by_format)
    batch = [
        rec for part in formatted.values() for rec in part if rec.value in (b"batch-0", b"batch-1")
    ]
    assert len(batch) == 2
    if streams:
        rest = {n: [r for r in part if r not in batch] for n, part in formatted.items()}
        assert_same_rows(rest, before)
    staged = {path.name for path in (tmp_path / "format" / "staged").glob("*/*")}
    assert not [name for name in staged if name.startswith(("incoming", "unnumbered"))]
    assert document["format_direct"] == ["ended"] * 2
    assert_same_rows(read_all(pair["B"], format_direct), before)
    assert_read(document["read"], source, before)
    missing, partition, nowhere, old = document["refused"]
    assert "column value is missing" in missing
    assert "is for partition 7, and it has 3" in partition
    assert "has no topic nowhere" in nowhere
    # Where a trigger has no limit there was one batch, and what is there is not written again.
    assert "checkpoint that is too old" in old if TRIGGERS_HAVE_LIMITS else old == "written"
    kept = {n: [rec for rec in part if rec.offset % 7] for n, part in before.items()}
    assert document["direct"] == f"ended, {len(values(before)) - len(values(kept))} left out"
    directly = read_all(pair["B"], direct)
    assert [values({0: directly[n]}) for n in kept] == [values({0: kept[n]}) for n in kept]
    assert dict(zip(NEEDED, document["needed"], strict=True)) == NEEDED
    assert_examples({name: read() for name, read in written.items()})


def assert_examples(written: dict[str, dict[int, list[Rec]]]) -> None:
    """What the first of them wrote, and in a soak the others."""

    def of(name: str) -> list[Rec]:
        return [rec for part in written[name].values() for rec in part]

    german = {rec.key: json.loads(rec.value or b"") for rec in of("orders.de")}
    assert german == {
        b"k0": {"id": 0, "country": "DE", "card": "************0000"},
        b"k2": {"id": 2, "country": "DE", "card": "************0002"},
    }
    assert sorted(rec.key or b"" for rec in of("orders.fr")) == [b"k1", b"k4"]
    (rejected,) = of("orders.rejected")
    assert rejected.key == b"k3" and b"************0003" in (rejected.value or b"")
    assert b"orders.it" in (dict(rejected.headers)["__connect.errors.exception.message"] or b"")
    if "orders.named" not in written:
        return
    named = [(rec.key, json.loads(rec.value or b"").get("name")) for rec in of("orders.named")]
    ada, grace = (b"c1", "Ada Lovelace"), (b"c2", "Grace")
    assert sorted(named, key=str) == sorted([ada, ada, grace, (b"c3", None)], key=str)
    totals = {(rec.key or b"").partition(b"|")[2]: rec for rec in of("sales.hourly")}
    assert sum(json.loads(rec.value or b"")["amount"] for rec in of("sales.hourly")) == 18.5
    assert totals.keys() == {b"lamp", b"lens"}


def assert_same_rows(after: dict[int, list[Rec]], before: dict[int, list[Rec]]) -> None:
    assert sorted(values(after)) == sorted(values(before))
    assert all(len(part) > 100 for part in after.values())
    by_value = {rec.value: rec for part in before.values() for rec in part}
    for part in after.values():
        for rec in part:
            whence = by_value[(rec.value or b"").partition(b"#")[0]]
            assert (rec.key, rec.headers, rec.timestamp_ms) == (
                whence.key,
                whence.headers,
                whence.timestamp_ms,
            )


def assert_read(rows: list[list[Any]], topic: str, expected: dict[int, list[Rec]]) -> None:
    """All columns of the batch source, against what an ordinary consumer gets."""
    wanted = [
        [
            topic,
            partition,
            rec.offset,
            rec.timestamp_ms,
            0,
            None if rec.key is None else rec.key.decode(),
            (rec.value or b"").decode(),
            [f"{name}={(value or b'').decode()}" for name, value in rec.headers],
            0,
        ]
        for partition, records in expected.items()
        for rec in records
    ]
    assert rows == wanted
