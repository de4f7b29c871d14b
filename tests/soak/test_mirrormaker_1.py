"""A real MirrorMaker 1, of Kafka 3.9, is stopped, taken over from, and goes on afterwards."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from heliograph_tools.localkafka.cluster import LocalCluster
from heliograph_tools.localkafka.java import java_executable
from heliograph_tools.localkafka.kafka import kafka_classpath
from tests.cluster.test_mirrormaker_1 import file_of
from tests.kit.clusters import TopicNames
from tests.kit.groups import committed
from tests.kit.records import end_offsets, numbered, produce, read_all
from tests.kit.runs import WITHOUT_SPARK, running_mirror
from tests.kit.topics import create_topic, wait_until

LAST_WITH_IT = "3.9.1"
RECORDS = 3_000


@contextlib.contextmanager
def mirror_maker_1(tmp_path: Path, alias: str, topics: str) -> Iterator[None]:
    """With the very files that Heliograph is given; stopped as an operator stops it."""
    jars = os.pathsep.join(str(jar) for jar in kafka_classpath(LAST_WITH_IT))
    words = ["-Xmx256M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", jars]
    words += ["kafka.tools.MirrorMaker", "--consumer.config", f"{tmp_path}/{alias}.properties"]
    words += ["--producer.config", f"{tmp_path}/producer.properties", "--include", topics]
    words += ["--offset.commit.interval.ms", "500", "--num.streams", "2"]
    with (
        (tmp_path / "mirror-maker-1.log").open("ab") as said,
        subprocess.Popen([str(java_executable()), *words], stdout=said, stderr=said) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def test_mirrormaker_1_and_heliograph_relieve_each_other_without_a_loss_or_a_repetition(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    source, target = pair["A"], pair["B"]
    name = create_topic(source, topic("orders"), partitions=3)
    create_topic(target, name, partitions=3)
    group, alias = topic("mirror-group"), topic("src")
    file = file_of(tmp_path, [(alias, source, group)], target, name)
    written = 0

    def write_more() -> int:
        nonlocal written
        produce(source, name, numbered(RECORDS, partitions=3, start=written))
        written += RECORDS
        return written

    def has_arrived() -> bool:
        return sum(end_offsets(target, name).values()) >= written

    for turn in range(2):
        write_more()
        with mirror_maker_1(tmp_path, alias, name):
            wait_until(has_arrived, f"MirrorMaker 1, turn {turn}", timeout_s=120)
        write_more()
        with running_mirror(file, program=WITHOUT_SPARK) as run:
            wait_until(has_arrived, f"Heliograph, turn {turn}", timeout_s=120)
            assert run.stop() == 0
    write_more()
    with mirror_maker_1(tmp_path, alias, name):
        wait_until(has_arrived, "MirrorMaker 1 in the end", timeout_s=120)

    arrived = Counter(rec.content for some in read_all(target, name).values() for rec in some)
    assert arrived == Counter(
        rec.content for some in read_all(source, name).values() for rec in some
    )
    assert committed(source, group, name) == end_offsets(source, name)
