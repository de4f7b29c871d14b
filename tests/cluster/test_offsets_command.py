"""`heliograph offsets` against real clusters: transactions, compaction and foreign writes."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from typer.testing import CliRunner, Result

from heliograph.broker.cluster import Cluster
from heliograph.broker.groups import GroupAdmin
from heliograph.cli.app import app
from heliograph.config.load import load_config
from heliograph.errors import MirrorError
from heliograph.groups.checkpoints_topic import (
    WrittenCheckpoints,
    fetch_checkpoints,
    read_checkpoints,
)
from heliograph.groups.commit import commit_moves
from heliograph.groups.placement import GroupMove, Strategy, plan_group_offsets
from heliograph.groups.snapshot import read_snapshot
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.wire.mirror_records import Checkpoint, encode_checkpoint
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from tests.kit.clusters import ClusterFactory
from tests.kit.groups import commit, committed, member
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.offsets_scene import (
    BASE_MS,
    FOREIGN,
    GROUPS,
    ORDERS,
    STATE,
    TIMES,
    TIMESTAMPS,
    Scene,
    built,
    committed_everywhere,
    config_file,
)
from tests.kit.records import (
    NewRec,
    end_offsets,
    produce,
)
from tests.kit.topics import wait_until


@pytest.fixture(scope="module")
def scene(pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return built(pair["A"], pair["B"], "offsA", tmp_path_factory.mktemp("offsets"))


def asked(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app(), ["offsets", str(file), *arguments])


def document(file: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    result = asked(file, *arguments, "--json")
    assert result.exit_code == code, result.output or repr(result.exception)
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def assert_exact(scene: Scene) -> None:
    """After what is committed come exactly the records after each group's place at the source."""
    found = committed_everywhere(scene)
    for number in range(GROUPS):
        for topic, locations in scene.place(number).items():
            for partition, place in locations.items():
                at = found[scene.group(number), topic, partition]
                originals = scene.originals[topic, partition]
                copies = scene.copies[topic, partition]
                wanted = [rec.content for rec in originals if rec.offset >= place]
                read = [rec.content for rec in copies if rec.offset >= at and rec.value != FOREIGN]
                assert read == wanted, (number, topic, partition)


@pytest.mark.parametrize("away", ["", "--without-source"])
@pytest.mark.parametrize("to", ["map", "checkpoint"])
def test_groups_go_on_exactly_where_they_stood(scene: Scene, to: str, away: str) -> None:
    document(scene.file, "--group", scene.all_groups, "--to", "earliest", "--commit")

    arguments = ("--group", scene.all_groups, "--to", to, "--commit", *filter(None, [away]))
    found = document(scene.file, *arguments)

    assert_exact(scene)
    rows = found["moves"]
    assert {(row["repeated_records"], row["skipped_records"]) for row in rows} == {(0, 0)}
    assert {row["origin"] for row in rows} == {"checkpoint" if away else "source"}
    # Compaction took the first records of a topic before they could be mirrored.
    for row in rows:
        first = scene.originals[row["topic"], row["partition"]][0].offset
        assert row["clamped"] == ("before" if row["source_offset"] < first else None)
    assert (found["unplaced"], found["commit"]["problems"]) == ([], {})
    # The groups at the very start were there already.
    assert found["commit"]["committed"] == [scene.group(n) for n in range(1, GROUPS)]


def consumed(cluster: LocalCluster, group: str, topic: str) -> dict[int, list[bytes | None]]:
    """What a consumer of the group is given from where it stands to the end."""
    settings = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({**cluster.librdkafka_config, **settings})
    ends = end_offsets(cluster, topic)
    read: dict[int, list[bytes | None]] = {number: [] for number in ends}

    def is_at_end() -> bool:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            read[message.partition()].append(message.value())
        locations = consumer.position(consumer.assignment())
        return bool(locations) and all(at.offset >= ends[at.partition] for at in locations)

    try:
        consumer.subscribe([topic])
        wait_until(is_at_end, f"{group} at the end of {topic}", poll_s=0)
    finally:
        consumer.close()
    return read


def test_an_ordinary_consumer_reads_on_where_it_stopped(scene: Scene) -> None:
    group, place = scene.group(2), scene.place(2)[ORDERS]
    wanted = {
        partition: [rec.value for rec in scene.originals[ORDERS, partition] if rec.offset >= at]
        for partition, at in place.items()
    }
    document(scene.file, "--group", group, "--to", "map", "--commit")

    read = consumed(scene.target, group, scene.copy_of(ORDERS))

    assert {n: [v for v in values if v != FOREIGN] for n, values in read.items()} == wanted


@pytest.mark.parametrize("to", ["earliest", "latest", "copy", "time"])
def test_what_is_read_again_or_never_is_counted_in_mirrored_records(scene: Scene, to: str) -> None:
    when = ["2023-11-14T22:13:20.505Z"] if to == "time" else []

    found = document(scene.file, *when, "--group", scene.all_groups, "--to", to)

    assert len(found["moves"]) == 3 * GROUPS
    for row in found["moves"]:
        copies = scene.copies[row["topic"], row["partition"]]
        at, exact = row["target_offset"], row["exact_offset"]
        again = [rec for rec in copies if at <= rec.offset < exact]
        never = [rec for rec in copies if exact <= rec.offset < at]
        assert row["repeated_records"] == sum(rec.value != FOREIGN for rec in again)
        assert row["skipped_records"] == sum(rec.value != FOREIGN for rec in never)
        assert row["foreign_offsets"] == sum(rec.value == FOREIGN for rec in again + never)


@pytest.mark.parametrize("after_ms", [-1_000, 0, 10, 15, 30, 31, 90, 91, 130, 131])
def test_no_record_of_the_time_or_later_is_left_out(scene: Scene, after_ms: int) -> None:
    at_ms = BASE_MS + after_ms
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000))

    found = document(
        scene.file,
        f"{when}.{at_ms % 1000:03}Z",
        "--group",
        f"{scene.flow.source}-timed",
        "--to",
        "time",
    )

    (row,) = found["moves"]
    copies = scene.copies[TIMES, 0]
    assert [rec.timestamp_ms for rec in copies] == TIMESTAMPS
    left_out = [rec for rec in copies if rec.offset < row["target_offset"]]
    read = [rec for rec in copies if rec.offset >= row["target_offset"]]
    assert all(rec.timestamp_ms < at_ms for rec in left_out)
    assert not read or read[0].timestamp_ms >= at_ms
    assert ("the start" in row["note"]) == (not left_out)
    assert ("the end" in row["note"]) == (not read)
    assert found["time_ms"] == at_ms


def test_without_commit_nothing_is_written_and_the_table_says_so(scene: Scene) -> None:
    document(scene.file, "--group", scene.all_groups, "--to", "latest", "--commit")
    before = committed_everywhere(scene)

    result = asked(scene.file, "--group", scene.group(1))

    assert result.exit_code == 0
    assert "nothing was written; add --commit" in result.stderr
    assert f"{scene.copy_of(ORDERS)}-0" in result.stdout
    assert committed_everywhere(scene) == before


def test_one_active_group_keeps_all_from_being_written(scene: Scene) -> None:
    document(scene.file, "--group", scene.all_groups, "--to", "latest", "--commit")
    before = committed_everywhere(scene)

    with member(scene.target, scene.group(3), scene.copy_of(STATE)):
        refused = asked(scene.file, "--group", scene.all_groups, "--to", "map", "--commit")
        unmoved = committed_everywhere(scene)
        skipped = document(
            scene.file, "--group", scene.all_groups, "--to", "map", "--commit", "--skip-active"
        )

    assert refused.exit_code == 3
    assert "nothing was written" in refused.stderr
    assert f"refused, active on the target: {scene.group(3)}" in refused.stderr
    assert unmoved == before
    assert skipped["commit"]["active"] == [scene.group(3)]
    # The last group stands at the end by the map as well.
    assert skipped["commit"]["committed"] == [scene.group(n) for n in (0, 1, 2, 4)]
    found = committed_everywhere(scene)
    assert {key for key in before if before[key] == found[key]} >= {
        key for key in before if key[0] == scene.group(3)
    }


def test_a_group_that_a_broker_takes_in_part_is_put_back(scene: Scene) -> None:
    group = f"{scene.flow.source}-part"
    name = TopicName(scene.copy_of(ORDERS))
    commit(scene.target, group, name, {0: 3, 1: 4})

    def move(partition: int, before: int, metadata: str) -> GroupMove:
        return GroupMove(
            group=group,
            source=TopicPartition(topic=TopicName(ORDERS), partition=partition),
            target=TopicPartition(topic=name, partition=partition),
            source_offset=None,
            target_offset=9,
            exact_offset=None,
            clamped=None,
            lag_records=0,
            repeated_records=None,
            skipped_records=None,
            committed_offset=before,
            metadata=metadata,
        )

    groups = GroupAdmin(load_config(scene.file).target_of(scene.flow))
    too_long = "x" * 5_000  # A broker takes 4,096 bytes.
    report = asyncio.run(commit_moves(groups, [move(0, 3, ""), move(1, 4, too_long)]))

    assert list(report.problems) == [group]
    assert report.problems[group].endswith("put back")
    assert report.committed == ()
    assert committed(scene.target, group, name) == {0: 3, 1: 4}


def test_groups_done_before_are_left_out_and_each_is_told_when_done(scene: Scene) -> None:
    document(scene.file, "--group", scene.all_groups, "--to", "latest", "--commit")
    before = committed_everywhere(scene)
    config = load_config(scene.file)
    told: list[str] = []

    async def note(groups: Any) -> None:
        told.extend(groups)

    async def work() -> None:
        known = await read_snapshot(config, scene.flow, lambda group: group.startswith("offsA-g"))
        await commit_moves(
            GroupAdmin(config.target_of(scene.flow)),
            plan_group_offsets(known, Strategy.EARLIEST).moves,
            already=[scene.group(0), scene.group(1)],
            on_done=note,
        )

    asyncio.run(work())

    assert told == [scene.group(n) for n in range(2, GROUPS)]
    found = committed_everywhere(scene)
    unmoved = {key[0] for key in before if before[key] == found[key]}
    assert unmoved == {scene.group(0), scene.group(1)}


def test_checkpoints_are_read_alike_by_both_readers(scene: Scene) -> None:
    topic = lasting_topic(scene.target, "offs-told")
    told = [
        encode_checkpoint(
            Checkpoint(
                group=f"g{n % 4}",
                topic=TopicName("A.orders"),
                partition=n % 3,
                upstream_offset=n,
                downstream_offset=n + 1,
                metadata="" if n % 5 else "\u00e9",
            )
        )
        for n in range(60)
    ]
    last = [
        NewRec(key=key, value=value, timestamp_ms=BASE_MS + n)
        for n, (key, value) in enumerate(told)
    ]
    garbage = [NewRec(key=told[-1][0], value=b"?"), NewRec(key=b"?", value=told[0][1]), NewRec()]
    produce(scene.target, topic, [*last, *garbage, NewRec(key=told[-2][0], value=None)])
    settings = load_config(scene.file).target_of(scene.flow)

    async def fetched() -> WrittenCheckpoints:
        cluster = Cluster(settings.alias, settings.bootstrap_servers, {})
        try:
            return await fetch_checkpoints(cluster, TopicName(topic))
        finally:
            cluster.close()

    found = asyncio.run(fetched())

    assert found == read_checkpoints(settings, TopicName(topic))
    assert (len(found.checkpoints), found.garbage_records) == (11, 3)
    newest = ("g3", TopicPartition(topic=TopicName("A.orders"), partition=2))
    assert found.checkpoints[newest].upstream_offset == 59
    assert found.times_ms[newest] == BASE_MS + 59


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--group", "x", "--flow", "X->Y"], "is not an enabled flow"),
        ([], "--group is needed"),
        (["--group", "("], "is not a regex"),
        (["--group", "x", "2026-01-31T04:03:00Z"], "needs `--to time`"),
        (["--group", "x", "--to", "time"], "needs a time"),
        (["--group", "x", "--to", "time", "yesterday"], "is not a time such as"),
        (["--group", "x", "--to", "time", "2026-01-31T04:03:00"], "has no time zone"),
        (["--group", "x", "--to", "yesterday"], "'yesterday' is not one of"),
        (["--out", "folder"], "needs --spark-checkpoint"),
        (["--spark-checkpoint", "folder"], "needs --out"),
    ],
)
def test_what_makes_no_sense_is_a_sentence_before_any_cluster_is_asked(
    tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    nowhere: dict[str, LocalCluster | str] = {"A": "127.0.0.1:1", "B": "127.0.0.1:1"}
    file = write_config(tmp_path / "mm2.properties", nowhere, {"A->B": {}})

    result = asked(file, *arguments)

    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.replace("│", " ").split())


def failure(file: Path, *arguments: str) -> str:
    """What `main` prints before it ends with 1."""
    result = asked(file, *arguments)
    assert isinstance(result.exception, MirrorError), result.output
    return str(result.exception)


def test_groups_that_are_nowhere_are_named_and_the_others_stay_where_they_are(
    scene: Scene,
) -> None:
    before = committed_everywhere(scene)

    mistyped = failure(scene.file, "--group", scene.group(0), "--group", "offsA-timd", "--commit")
    unfollowed = failure(scene.file, "--group", "stranger")

    assert mistyped == "offsA->offsA-copy: there is no group offsA-timd; did you mean offsA-timed?"
    assert "group stranger is excluded by `groups`" in unfollowed
    assert committed_everywhere(scene) == before


def test_a_group_without_mirrored_topics_and_a_flow_without_a_ledger_say_so(
    scene: Scene, tmp_path: Path
) -> None:
    elsewhere = lasting_topic(scene.source, "elsewhere-of-offsA")
    commit(scene.source, "offsA-elsewhere", elsewhere, {0: 0})
    other = FlowId(source=ClusterAlias("offsNew"), target=ClusterAlias("offsNew-copy"))
    fresh = config_file(tmp_path / "fresh.properties", other, scene.source, scene.target)

    unread = failure(scene.file, "--group", "offsA-elsewhere")
    unmirrored = failure(fresh, "--group", ".*")

    assert unread.endswith("group offsA-elsewhere has no committed offsets in mirrored topics")
    assert unmirrored.endswith("no ledger of offsNew->offsNew-copy, nothing was mirrored yet")


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_source_that_says_nothing_is_not_waited_for(
    scene: Scene, black_hole: int, tmp_path: Path
) -> None:
    file = config_file(
        tmp_path / "mute.properties", scene.flow, f"127.0.0.1:{black_hole}", scene.target
    )
    began_s = time.monotonic()

    known = asyncio.run(
        read_snapshot(load_config(file), scene.flow, lambda group: "-g" in group, source_wait_s=0.5)
    )
    took_s = time.monotonic() - began_s

    assert known.source_problem == "cluster offsA: no answer in 0.5 s"
    assert len(known.groups) == GROUPS
    assert took_s < 5.0


def test_without_source_and_checkpoints_groups_stay_where_the_target_has_them(
    scene: Scene, tmp_path: Path
) -> None:
    flow = FlowId(source=ClusterAlias("offsQ"), target=ClusterAlias("offsQ-copy"))
    settings = {"topics": TIMES}
    mirrored = config_file(
        tmp_path / "mirrored.properties", flow, scene.source, scene.target, **settings
    )
    carry(mirrored, lanes=1)
    commit(scene.target, "offsQ-g", f"offsQ.{TIMES}", {0: 7})
    dead = config_file(tmp_path / "dead.properties", flow, "127.0.0.1:1", scene.target, **settings)

    with member(scene.target, "offsQ-g", f"offsQ.{TIMES}"):
        shown = asked(dead, "--group", "offsQ-g", "--commit")
        found = document(dead, "--group", "offsQ-g", "--commit")
    copied = document(dead, "--group", "offsQ-g", "--commit", "--to", "copy", code=3)

    assert shown.exit_code == 0, shown.output
    assert "only the committed offsets of the target are known" in shown.stderr
    (row,) = found["moves"]
    assert (row["target_offset"], row["source_offset"], row["origin"]) == (7, None, "target")
    # Nothing is to be written, so that nobody is in the way.
    assert found["commit"]["unchanged"] == ["offsQ-g"]
    (left,) = copied["unplaced"]
    assert left["why"] == "where the group stood on the source is not known"


def test_everything_is_known_after_the_source_was_killed(
    pair: dict[str, LocalCluster], clusters: ClusterFactory, tmp_path: Path
) -> None:
    source = clusters(ClusterSpec(alias="S"))["S"]
    killed = built(source, pair["B"], "offsS", tmp_path)
    source.kill_broker(0)

    result = asked(killed.file, "--group", killed.all_groups, "--commit")

    assert result.exit_code == 0, result.output
    assert "the source did not answer" in result.stderr
    assert "checkpoint" in result.stdout
    assert_exact(killed)
