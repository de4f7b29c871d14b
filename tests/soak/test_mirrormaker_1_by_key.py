"""The recipe of the guide: go on by the hash of the key, as MirrorMaker 1 did, on Spark."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest
from confluent_kafka import Producer

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_mirrormaker_1 import file_of
from tests.kit.clusters import TopicNames
from tests.kit.groups import commit
from tests.kit.records import NewRec, end_offsets, produce, read_all
from tests.kit.runs import running_mirror
from tests.kit.topics import create_topic, wait_until

GUIDE = Path(__file__).parents[2] / "docs/guides/from-mirrormaker-1.md"
RECORDS, KEYS = 900, 40


def java_partitions(cluster: LocalCluster, topic: str) -> dict[bytes, int]:
    """Where a producer with Java's default partitioner puts each key."""
    producer = Producer({**cluster.librdkafka_config, "partitioner": "murmur2_random"})
    found: dict[bytes, int] = {}
    for number in range(KEYS):
        producer.produce(
            topic,
            key=b"k%d" % number,
            on_delivery=lambda _, message: found.update({message.key(): message.partition()}),
        )
    producer.flush(30)
    return found


@pytest.mark.timeout(400)
def test_a_pipeline_goes_on_where_the_group_committed_and_puts_records_where_their_key_says(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    source, target = pair["A"], pair["B"]
    name = create_topic(source, topic("orders"), partitions=3)
    create_topic(target, name, partitions=4)
    by_java = java_partitions(target, create_topic(target, topic("by-java"), partitions=4))
    group = topic("mirror-group")
    given = [
        NewRec(key=b"k%d" % (n % KEYS), value=b"v%d" % n, partition=n % 3) for n in range(RECORDS)
    ]
    produce(source, name, given)
    commit(source, group, name, {0: 10, 1: 30})
    alias = topic("src")
    file = file_of(tmp_path, [(alias, source, group)], target, name)
    (recipe,) = re.findall(
        r"```properties\n(source->target\.topics =.*?)```", GUIDE.read_text(), re.DOTALL
    )
    for theirs, ours in (
        ("source->", f"{alias}->"),
        ("orders.*", name),
        ("mirror-group", group),
        ("/shared/by-key", str(tmp_path / "by-key")),
    ):
        recipe = recipe.replace(theirs, ours)
    kept = [
        line for line in file.read_text().splitlines() if f"{alias}->target.topics =" not in line
    ]
    file.write_text("\n".join([*kept, recipe]) + "\n")
    written = read_all(source, name)
    wanted = [rec for n, some in written.items() for rec in some[{0: 10, 1: 30}.get(n, 0) :]]

    with running_mirror(file) as run:
        wait_until(
            lambda: sum(end_offsets(target, name).values()) >= len(wanted),
            "all rows",
            timeout_s=240,
        )
        assert run.stop() == 0

    there = read_all(target, name)
    assert sorted(rec.value or b"" for some in there.values() for rec in some) == sorted(
        rec.value or b"" for rec in wanted
    )
    placed: defaultdict[bytes, set[int]] = defaultdict(set)
    for number, some in there.items():
        for rec in some:
            placed[rec.key or b""].add(number)
    assert placed == {key: {number} for key, number in by_java.items()}
    by_value = {rec.value: rec for some in written.values() for rec in some}
    assert all(
        (rec.key, rec.timestamp_ms) == (by_value[rec.value].key, by_value[rec.value].timestamp_ms)
        for some in there.values()
        for rec in some
    )
