"""Functions that take all memory, in Spark's own Python workers, by two bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from heliograph.cli.app import app
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import RECORDS_ONLY, write_config
from tests.kit.records import NewRec, end_offsets, produce, read_all
from tests.kit.runs import running_mirror
from tests.kit.topics import create_topic, wait_until

RECORDS = 200
BAD = 50


@pytest.mark.parametrize("name", ["eats_in_python", "eats_in_one_go"])
@pytest.mark.parametrize(
    "bound",
    [{"transform.memory.max.bytes": str(64 << 20)}, {"spark.executor.pyspark.memory": "2500m"}],
    ids=["watched", "by Spark"],
)
def test_a_record_that_takes_all_memory_is_a_letter_and_its_worker_lives(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    name: str,
    bound: dict[str, str],
) -> None:
    hungry, fine = (create_topic(pair["A"], topic(each)) for each in ("hungry", "fine"))
    alias = f"A-{hungry}"
    keys = {
        "topics": f"{hungry},{fine}",
        "transforms": "eat",
        "transforms.eat.type": f"tests.unit.transform.hungry:{name}",
        "transforms.eat.on": "record",
        "transforms.eat.topics": hungry,
        "on.transform.error": "dead-letter",
        "dead.letter.topic.replication.factor": "1",
    }
    of_flow = {key: value for key, value in bound.items() if key.startswith("transform.")}
    of_run = {key: value for key, value in bound.items() if key.startswith("spark.")}
    file = write_config(
        tmp_path / "mm2.properties",
        {alias: pair["A"], "B": pair["B"]},
        {f"{alias}->B": {**keys, **of_flow}},
        top={**RECORDS_ONLY, **of_run},
    )
    values = [b"bad" if n == BAD else b"v%d" % n for n in range(RECORDS)]

    def has(name: str, count: int) -> bool:
        return sum(end_offsets(pair["B"], f"{alias}.{name}").values()) >= count

    with running_mirror(file) as run:
        produce(pair["A"], fine, [NewRec(value=b"first", partition=0)])
        wait_until(lambda: has(fine, 1), "the first record", timeout_s=60)
        worker = run.await_worker()
        produce(pair["A"], hungry, [NewRec(value=each, partition=0) for each in values])
        produce(pair["A"], fine, [NewRec(value=b"f", partition=0) for _ in range(RECORDS)])
        wait_until(lambda: has(hungry, RECORDS - 1), "what can be mirrored", timeout_s=120)
        wait_until(lambda: has(fine, RECORDS + 1), "the other lane", timeout_s=60)
        listed = CliRunner().invoke(app("letters"), ["letters", str(file), "list", "--json"])
        alive = [each.pid for each in run.workers()]
        assert run.stop() == 0

    letters = json.loads(listed.stdout)["letters"]
    assert [(each["offset"], each["error"]) for each in letters] == [(BAD, "TransformTookMemory")]
    there = read_all(pair["B"], f"{alias}.{hungry}")[0]
    assert [rec.value for rec in there] == [each for each in values if each != b"bad"]
    assert worker.pid in alive
