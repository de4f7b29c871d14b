"""The source of pipelines against Spark's own Kafka source: the same rows of the same topics."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.mirror import write_config
from tests.kit.records import CODECS, NewRec, Transaction, produce, produce_transactions
from tests.kit.topics import create_topic, delete_records_before, set_topic_config
from tests.spark.compared_sources import OURS, SPARKS, CompareOrder
from tests.spark.kit import REPOSITORY

# An empty cache is filled first with the connector.
pytestmark = pytest.mark.timeout(900)

BEGAN_MS = 1_700_000_000_000
DELETED = 40


def drawn_records(drawn: random.Random, count: int, partitions: int) -> list[NewRec]:
    def some(size: int) -> bytes | None:
        return None if drawn.random() < 0.1 else drawn.randbytes(drawn.randrange(size))

    return [
        NewRec(
            key=some(20),
            value=some(300),
            headers=tuple((f"h{n % 2}", some(8)) for n in range(drawn.randrange(3))),
            timestamp_ms=BEGAN_MS + drawn.randrange(10_000),
            partition=drawn.randrange(partitions),
        )
        for _ in range(count)
    ]


def test_both_sources_make_the_same_rows(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Any
) -> None:
    """Of every codec, transactions with aborts, deleted records, and times of the broker."""
    a, drawn = pair["A"], random.Random(16)
    mixed, stamped = topic("mixed"), topic("stamped")
    create_topic(a, mixed, partitions=3)
    create_topic(a, stamped)
    set_topic_config(a, stamped, {"message.timestamp.type": "LogAppendTime"})
    for codec in CODECS:
        produce(a, mixed, drawn_records(drawn, 300, 3), codec=codec)
        transactions = [
            Transaction(records=drawn_records(drawn, 20, 3), commit=number % 2 == 0)
            for number in range(4)
        ]
        produce_transactions(a, mixed, transactions, transactional_id=mixed, codec=codec)
    produce(a, stamped, drawn_records(drawn, 100, 1))
    delete_records_before(a, mixed, {0: DELETED})
    exact = {mixed: {"0": 100, "1": -2, "2": 77}, stamped: {"0": 20}}
    order = CompareOrder(
        config=str(write_config(tmp_path / "mm2.properties", pair, {"A->B": {}})),
        bootstrap=a.bootstrap,
        topics=f"{mixed},{stamped}",
        folder=str(tmp_path),
        reads=[
            {},
            {"startingOffsets": json.dumps(exact)},
            {"startingTimestamp": str(BEGAN_MS + 5_000)},
            {"endingOffsets": json.dumps(exact | {mixed: {"0": 300, "1": 200, "2": -1}})},
            {"endingTimestamp": str(BEGAN_MS + 9_000)},
        ],
    )

    found = compared(order, tmp_path)

    ours, sparks = found[OURS], found[SPARKS]
    assert [len(batch) for batch in ours["batches"]] == [len(one) for one in sparks["batches"]]
    assert ours["batches"] == sparks["batches"]
    assert ours["stream"] == sparks["stream"]
    assert len(ours["batches"][0]) == len(CODECS) * (300 + 2 * 20) + 100 - DELETED


def compared(order: CompareOrder, folder: Path) -> dict[str, Any]:
    file = folder / "order.json"
    file.write_text(json.dumps(asdict(order)), encoding="utf-8")
    # Whichever PySpark comes first on the path, and data sources that it looks for in folders.
    paths = [os.environ["PYTHONPATH"], str(REPOSITORY / "src"), str(REPOSITORY)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.spark.compared_sources", str(file)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found
