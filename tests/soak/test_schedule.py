"""`run --once --every`: one run after another by the clock, each going on where the last ended."""

from __future__ import annotations

from pathlib import Path

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import RECORDS_ONLY, lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, mirror_runs


def test_scheduled_runs_copy_what_came_since_the_one_before(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("scheduled"), partitions=2)
    number = name.rpartition("-")[2]
    source, target = f"evA{number}", f"evB{number}"
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {f"{source}->{target}": {"topics": name}},
        top=RECORDS_ONLY,
    )
    way = route(file, (source, pair["A"]), (target, pair["B"]))
    produce(pair["A"], name, numbered(300))

    with mirror_runs() as runs:
        run = MirrorRun(
            file, tmp_path / "run.log", "--once", "--every", "15s", program=WITHOUT_SPARK
        )
        runs.append(run)
        way.await_records(name, 300, timeout_s=60)
        run.wait_for_words("exit code of the last run: 0", timeout_s=60)
        produce(pair["A"], name, numbered(200, start=300))
        way.await_records(name, 500, timeout_s=60)
        code = run.stop()

    assert way.assert_arrives(name) == 500
    assert code == 0
