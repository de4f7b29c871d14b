"""Share groups (KIP-932) go on at the target where they stopped, read by Java's share consumer.

The source has markers of transactions between its records, so offsets of both sides differ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from heliograph.broker.group_view import SHARE_METADATA, GroupOffset, GroupState
from heliograph.broker.groups import GroupAdmin
from heliograph.groups.checkpoints_topic import read_checkpoints
from heliograph.model import TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import LogOnce, heliograph
from tests.cluster.test_failback_groups import admin_for, moved_back
from tests.kit.clusters import TopicNames
from tests.kit.failing_over import NOBODY, Stage
from tests.kit.groups import commit
from tests.kit.java import Java
from tests.kit.records import Transaction, numbered, produce_transactions, read_all
from tests.kit.topics import create_topic
from tests.kit.typed_members import place_share, share_member, share_start, streams_member

Pair = dict[str, LocalCluster]
TRANSACTIONS: Final = 5
EACH: Final = 20
RECORDS: Final = TRANSACTIONS * EACH
START: Final = 63
"""Three transactions and their markers are done on the source; on the target that is 60."""
BEYOND: Final = 70
"""Acknowledged out of turn: behind `START`, where records wait that are not."""
NOTE: Final = "share group: its start offset; records acknowledged beyond it are delivered again"


@pytest.fixture
def stage(pair: Pair, topic: TopicNames, tmp_path: Path) -> Stage:
    """100 records in transactions, and a share group that was never read by anybody."""
    made = Stage(
        folder=tmp_path,
        source=pair["A"],
        target=pair["B"],
        topic=topic("shared"),
        settings={"sync.group.offsets.enabled": "true"},
    )
    create_topic(made.source, made.topic, config={"retention.ms": "-1"})
    produce_transactions(
        made.source,
        made.topic,
        [Transaction(records=numbered(EACH, start=n * EACH)) for n in range(TRANSACTIONS)],
        transactional_id=made.topic,
    )
    place(made, at_source=0)
    return made


def group_of(stage: Stage) -> str:
    return f"{stage.topic}-readers"


def admins(stage: Stage) -> tuple[GroupAdmin, GroupAdmin]:
    config = stage.config
    return GroupAdmin(config.source_of(stage.flow)), GroupAdmin(config.target_of(stage.flow))


def place(stage: Stage, *, at_source: int) -> None:
    source, _ = admins(stage)
    place_share(source, group_of(stage), stage.topic, {0: at_source})


def at_target(stage: Stage) -> dict[TopicPartition, GroupOffset]:
    _, target = admins(stage)
    return dict(target.offsets([group_of(stage)])[group_of(stage)])


def copy_of(stage: Stage) -> TopicPartition:
    return TopicPartition(topic=TopicName(stage.mirrored), partition=0)


def groups_row(stage: Stage) -> dict[str, Any]:
    said = heliograph("groups", stage.file(), "--json")
    (flow,) = said.document["flows"]
    assert flow["problems"] == []
    (row,) = flow["groups"]
    found: dict[str, Any] = row
    return found


def offsets(file: Path, to: str, *more: str) -> LogOnce:
    return heliograph("offsets", file, "--group", ".*", "--to", to, *more)


def test_a_share_group_goes_on_after_a_failover_at_the_first_record_that_was_not_done(
    stage: Stage, java: Java
) -> None:
    """The source is down; what is known of the group comes from its checkpoint."""
    group, originals = group_of(stage), read_all(stage.source, stage.topic)[0]

    def is_done(offset: int) -> bool:
        return offset < START or offset == BEYOND

    at = (stage.source.bootstrap, group, stage.topic)
    seen = java.read_shared(*at, RECORDS, accepts=is_done)
    # A broker notes the start offset with the next acknowledgement, not with the one that moved it.
    java.read_shared(*at, 1, accepts=is_done)
    stage.mirror()

    report = stage.fail_over()

    assert list(seen.values()) == [record.value for record in originals]
    assert (report.moved, report.skipped) == ((group,), ())
    assert [move.note for move in report.moves] == [NOTE]
    assert at_target(stage) == {copy_of(stage): share_start(60)}
    read_on = java.read_shared(stage.target.bootstrap, group, stage.mirrored, RECORDS - 60)
    # None is left out, and the one acknowledged out of turn is among them again.
    assert list(read_on.values()) == [record.value for record in originals[60:]]


def test_a_running_mirror_moves_a_share_group_while_it_has_no_members_there(stage: Stage) -> None:
    group = group_of(stage)
    with stage.mirroring() as mirroring:
        place(stage, at_source=START)
        mirroring.step("checkpoints")
        mirroring.step("group offsets")
        first = at_target(stage)
        with share_member(stage.target, group, stage.mirrored):
            place(stage, at_source=START + 21)
            mirroring.step("group offsets")
            kept, in_use = at_target(stage), groups_row(stage)
        mirroring.step("group offsets")
        last = at_target(stage)
        place(stage, at_source=START)
        mirroring.step("group offsets")
        back = at_target(stage)

    copy = copy_of(stage)
    assert (first, kept, last, back) == (
        {copy: share_start(60)},
        {copy: share_start(60)},
        {copy: share_start(80)},
        {copy: share_start(60)},
    )
    assert (in_use["type"], in_use["verdict"]) == ("share", "active on target")
    told = read_checkpoints(stage.config.target_of(stage.flow), stage.checkpoints)
    assert told.checkpoints[group, copy].metadata == SHARE_METADATA


def test_groups_shows_a_share_group_and_offsets_moves_it(stage: Stage) -> None:
    place(stage, at_source=START)
    stage.mirror()

    before = groups_row(stage)
    table = heliograph("groups", stage.file())
    dry = offsets(stage.file(), "map", "--json")
    moved = offsets(stage.file(), "map", "--commit", "--json")
    after = groups_row(stage)
    to_start = offsets(stage.file(source=NOBODY), "earliest", "--commit")

    assert (before["type"], before["verdict"]) == ("share", "behind")
    assert (before["source_offset"], before["target_offset"]) == (START, 60)
    assert f"{group_of(stage)} (share)" in table.out.replace("\n", "")
    (move,) = dry.document["moves"]
    assert (move["target_offset"], move["note"]) == (60, NOTE)
    assert moved.document["commit"]["committed"] == [group_of(stage)]
    assert (after["committed_offset"], after["verdict"]) == (60, "in step")
    assert to_start.code == 0, to_start.err
    assert at_target(stage) == {copy_of(stage): share_start(0)}


def test_a_drill_rehearses_a_share_group_with_an_ordinary_consumer(stage: Stage) -> None:
    place(stage, at_source=START)
    stage.mirror()

    said = heliograph("drill", stage.file(), "--json")

    assert said.code == 0, said.err
    (drilled,) = said.document["groups"]
    assert (drilled["group"], drilled["notes"]) == (group_of(stage), [NOTE])
    assert said.document["verdict"] == "pass"
    assert at_target(stage) == {}


def test_a_failback_moves_share_groups_as_share_groups(pair: Pair, topic: TopicNames) -> None:
    group, orders = topic("readers"), create_topic(pair["A"], topic("orders"), partitions=2)
    create_topic(pair["B"], orders, partitions=2)
    present, old = admin_for(pair["A"]), admin_for(pair["B"])
    at = [TopicPartition(topic=TopicName(orders), partition=n) for n in (0, 1)]
    place_share(present, group, orders, {0: 9, 1: 4})
    place_share(old, group, orders, {0: 3, 1: 7})

    back = moved_back(pair, group)

    assert (back.moved, back.problems) == ((group,), {})
    assert old.offsets([group]) == {group: {at[0]: share_start(9), at[1]: share_start(7)}}


def test_a_streams_group_is_followed_as_a_consumer_group_is(stage: Stage) -> None:
    group = f"{stage.topic}-streams"
    with streams_member(stage.source, group, stage.topic):
        pass
    commit(stage.source, group, stage.topic, {0: START})

    with stage.mirroring() as mirroring:
        mirroring.step("group offsets")
        with streams_member(stage.target, group, stage.mirrored):
            commit(stage.source, group, stage.topic, {0: START + 21})
            mirroring.step("group offsets")
            said = heliograph("groups", stage.file(), "--group", group, "--json")

    (flow,) = said.document["flows"]
    (row,) = flow["groups"]
    assert (row["type"], row["source_state"]) == ("streams", GroupState.EMPTY)
    assert (row["verdict"], row["committed_offset"]) == ("active on target", 60)
    _, target = admins(stage)
    assert target.offsets([group]) == {group: {copy_of(stage): GroupOffset(offset=60)}}
