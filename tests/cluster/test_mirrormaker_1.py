"""A group that MirrorMaker 1 left is taken over at its very offsets, and given back at others."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from typer.testing import CliRunner

from heliograph.cli.app import app
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.groups import commit, committed, member
from tests.kit.inside import carry, running_inside
from tests.kit.records import NewRec, Rec, end_offsets, numbered, produce, read_all
from tests.kit.runs import WITHOUT_SPARK, running_mirror
from tests.kit.topics import create_topic, wait_until

Pair = dict[str, LocalCluster]
HANDLER = "tests.unit.transform.functions:Handler"


def file_of(
    tmp_path: Path,
    sources: list[tuple[str, LocalCluster, str]],
    target: LocalCluster,
    topics: str,
    *words: str,
) -> Path:
    """What `mirror-maker` writes for consumers of these aliases, clusters and groups."""
    given: list[str] = []
    for alias, cluster, group in sources:
        path = tmp_path / f"{alias}.properties"
        path.write_text(
            f"bootstrap.servers={cluster.bootstrap}\ngroup.id={group}\nauto.offset.reset=earliest\n"
        )
        given += ["--consumer.config", str(path), "--source.alias", alias]
    producer = tmp_path / "producer.properties"
    producer.write_text(f"bootstrap.servers={target.bootstrap}\n")
    file = tmp_path / "mirror.properties"
    given += ["--producer.config", str(producer), "--include", topics, "--to-file", str(file)]
    done = CliRunner().invoke(app("mirror-maker", "run"), ["mirror-maker", *given, *words])
    assert done.exit_code == 0, done.output
    return file


def read_on(cluster: LocalCluster, group: str, topic: str, partitions: int) -> dict[int, bytes]:
    """The next record of each partition for whoever reads as the group."""
    consumer = Consumer(
        {**cluster.librdkafka_config, "group.id": group, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    found: dict[int, bytes] = {}

    def has_all() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.setdefault(message.partition(), message.value())
        return len(found) == partitions

    try:
        wait_until(has_all, f"{group} reads on")
    finally:
        consumer.close()
    return found


def test_its_place_is_taken_over_and_given_back_and_what_it_copied_since_is_passed(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    source, target = pair["A"], pair["B"]
    name = create_topic(source, topic("orders"), partitions=3)
    create_topic(target, name, partitions=3)
    group, alias = topic("mirror-group"), topic("src")
    produce(source, name, numbered(90, partitions=3))
    produce(target, name, [NewRec(value=b"by MirrorMaker 1", partition=0)] * 10)
    commit(source, group, name, {0: 10, 1: 30})
    file = file_of(
        tmp_path,
        [(alias, source, group)],
        target,
        name,
        "--offset.commit.interval.ms",
        "200",
    )

    # While somebody reads as the group, nothing is begun; afterwards it is taken over.
    with member(source, group, name), running_inside(file, periodic=True) as mirror:
        wait_until(
            lambda: any("has members" in text for text in mirror.reconciler.problems.values()),
            "the refusal",
        )
        assert end_offsets(target, name) == {0: 10, 1: 0, 2: 0}
    with running_inside(file, periodic=True):
        wait_until(lambda: end_offsets(target, name) == {0: 30, 1: 0, 2: 30}, "the rest")
        produce(source, name, numbered(9, partitions=3, start=90))
        wait_until(lambda: end_offsets(target, name) == {0: 33, 1: 3, 2: 33}, "new records")
        wait_until(lambda: committed(source, group, name) == {0: 33, 1: 33, 2: 33}, "commits")

    copied, written = read_all(target, name), read_all(source, name)
    assert [rec.content for rec in copied[0][10:]] == [rec.content for rec in written[0][10:]]
    assert [rec.content for rec in copied[1]] == [rec.content for rec in written[1][30:]]
    assert [rec.content for rec in copied[2]] == [rec.content for rec in written[2]]

    # Going back: as the group, the next record is the first that was not mirrored.
    produce(source, name, numbered(9, partitions=3, start=99))
    assert read_on(source, group, name, 3) == {
        number: written_value(read_all(source, name), number, 33) for number in range(3)
    }
    # MirrorMaker 1 goes on: two records of partition 0, by its own partitioner. The one behind
    # ours makes the mirror read the log, to know which of that are its own.
    for number in (0, 2):
        produce(target, name, [NewRec(value=b"by MirrorMaker 1", partition=number)])
    commit(source, group, name, {0: 35})

    rarely = file_of(
        tmp_path, [(alias, source, group)], target, name, "--offset.commit.interval.ms", "3600000"
    )
    with running_mirror(rarely, program=WITHOUT_SPARK) as run:
        wait_until(lambda: end_offsets(target, name) == {0: 35, 1: 6, 2: 37}, "the rest")
        assert run.stop() == 0

    assert committed(source, group, name) == {0: 36, 1: 36, 2: 36}
    copied, written = read_all(target, name), read_all(source, name)
    assert [rec.content for rec in copied[0][34:]] == [rec.content for rec in written[0][35:]]
    assert [rec.content for rec in copied[2][34:]] == [rec.content for rec in written[2][33:]]


def written_value(records: dict[int, list[Rec]], partition: int, offset: int) -> bytes | None:
    return records[partition][offset].value


def test_several_sources_go_into_one_topic_through_a_handler(
    pair: Pair, topic: TopicNames, tmp_path: Path
) -> None:
    name = create_topic(pair["A"], topic("metrics"))
    first, second = topic("one"), topic("two")
    produce(pair["A"], name, numbered(20))
    commit(pair["A"], first, name, {0: 4})
    file = file_of(
        tmp_path,
        [(first, pair["A"], first), (second, pair["A"], second)],
        pair["B"],
        name,
        "--message.handler",
        HANDLER,
        "--message.handler.args",
        "7",
    )

    carry(file, lanes=2)

    values = sorted(rec.value or b"" for rec in read_all(pair["B"], name)[0])
    kept = [number for number in range(20) if number % 7]
    expected = [b"handled v%d" % number for number in kept]
    expected += [b"handled v%d" % number for number in kept if number >= 4]
    assert [value.rstrip(b".") for value in values] == sorted(expected)
