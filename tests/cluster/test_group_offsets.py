"""Checkpoints and group offsets over real clusters; only what was mirrored is stood in for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from heliograph.broker.groups import GroupAdmin
from heliograph.broker.records import Record, read_records
from heliograph.compat.checkpoints import CheckpointsJob
from heliograph.driver.periodic import PeriodicJob
from heliograph.errors import BrokerError
from heliograph.groups.sync import GroupOffsetsJob
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.wire.mirror_records import Checkpoint, decode_checkpoint
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.following import SHIFT, Scene, scene_of, with_groups
from tests.kit.groups import (
    PROTOCOLS,
    Protocol,
    commit,
    commit_as_member,
    commit_raw,
    committed,
    member,
)
from tests.kit.inside import InsideMirror
from tests.kit.mirror import write_config
from tests.kit.records import numbered, produce
from tests.kit.topics import admin_of, create_topic, wait_until

Pair = dict[str, LocalCluster]


@pytest.fixture
def scene(pair: Pair, topic: TopicNames) -> Iterator[Scene]:
    """`orders` has two partitions; 100 records fit into each partition of its copy."""
    source, target = ClusterAlias(topic("s")), ClusterAlias(topic("t"))
    orders = create_topic(pair["A"], topic("orders"), partitions=2)
    copy = create_topic(pair["B"], f"{source}.{orders}", partitions=2)
    produce(pair["B"], copy, numbered(2 * (100 + SHIFT), partitions=2))
    made = scene_of(
        FlowId(source=source, target=target),
        pair["A"],
        pair["B"],
        group=topic("billing"),
        orders=orders,
    )
    yield made
    made.clients.close()


# Checkpoints.


def test_a_checkpoint_says_where_the_group_stands_on_both_sides(scene: Scene) -> None:
    scene.mirror(100)
    follower = scene.follower()
    with member(scene.source, scene.group, scene.orders) as consumer:
        commit_as_member(consumer, scene.orders, 40, metadata="by a member")

        CheckpointsJob(follower).step()

    (record,) = read_records(scene.target_config, follower.checkpoints_topic)
    assert follower.checkpoints_topic == f"{scene.flow.id.source}.checkpoints.internal"
    assert decode_checkpoint(record.key, record.value) == Checkpoint(
        group=scene.group,
        topic=TopicName(scene.mirrored_orders),
        partition=0,
        upstream_offset=40,
        downstream_offset=45,
        metadata="by a member",
    )
    settings = scene.clients.admin(scene.target_config).topic_configs([follower.checkpoints_topic])
    found = settings[follower.checkpoints_topic]
    assert not isinstance(found, BrokerError)
    assert found["cleanup.policy"].value == "compact"


def test_there_is_no_checkpoint_before_the_first_record_of_a_partition_was_mirrored(
    scene: Scene,
) -> None:
    """`testNoCheckpointsIfNoRecordsAreMirrored`, and an empty partition beside a full one."""
    scene.at_source(0, partition=0)
    scene.at_source(0, partition=1)
    scene.mirror(0, partition=0)
    scene.mirror(3, partition=1)
    follower = scene.follower()
    loop = CheckpointsJob(follower)
    loop.step()
    before = scene.told(follower)

    scene.mirror(1, partition=0)
    loop.step()

    empty, full = ((scene.group, scene.mirrored_orders, number, 0, SHIFT) for number in (0, 1))
    assert before == [full]
    assert scene.told(follower) == [full, empty]


def test_checkpoints_follow_a_group_that_lags_and_one_that_rewinds(scene: Scene) -> None:
    """`testOffsetTranslationBehindReplicationFlow`."""
    follower = scene.follower()
    loop = CheckpointsJob(follower)
    scene.mirror(100)

    for offset in (10, 10, 20, 2, 100):
        scene.at_source(offset)
        loop.step()

    assert [(up, down) for *_, up, down in scene.told(follower)] == [
        (10, 15),
        (20, 25),
        (2, 7),
        (100, 105),
    ]


def test_a_group_ahead_of_the_mirror_is_told_as_far_as_is_mirrored(scene: Scene) -> None:
    follower = scene.follower()
    loop = CheckpointsJob(follower)
    scene.at_source(90)

    for records in (50, 60, 95):
        scene.mirror(records)
        loop.step()

    assert [(up, down) for *_, up, down in scene.told(follower)] == [(90, 55), (90, 65), (90, 95)]


def test_a_restart_repeats_and_unsays_nothing(scene: Scene) -> None:
    """`testRestartReplication`, with garbage in the topic and a mirror that knows less at first."""
    scene.mirror(80)
    scene.at_source(80)
    first = scene.follower()
    CheckpointsJob(first).step()
    garbage = [Record(key=b"\x00\x03abc", value=b"?"), Record(key=b"", value=b"?")]
    scene.clients.writer(scene.target_config).write(first.checkpoints_topic, garbage)

    second = scene.follower()
    loop = CheckpointsJob(second)
    scene.mirror(70)
    loop.step()
    scene.mirror(100)
    scene.at_source(100)
    loop.step()

    told = [
        decode_checkpoint(record.key, record.value).downstream_offset
        for record in read_records(scene.target_config, second.checkpoints_topic)
        if record.value != b"?"
    ]
    assert told == [85, 105]
    assert second.garbage_records == 2


def test_a_checkpoint_past_the_log_that_somebody_wrote_does_not_silence_the_group(
    scene: Scene,
) -> None:
    scene.mirror(80)
    scene.at_source(80)
    first = scene.follower()
    CheckpointsJob(first).step()
    (record,) = read_records(scene.target_config, first.checkpoints_topic)
    assert record.value is not None
    far = record.value[:10] + (2**62).to_bytes(8, "big") + record.value[18:]
    scene.clients.writer(scene.target_config).write(
        first.checkpoints_topic, [Record(key=record.key, value=far)]
    )

    second = scene.follower()
    CheckpointsJob(second).step()

    assert [down for *_, down in scene.told(second)] == [85, 2**62, 85]


def test_only_groups_and_topics_that_pass_the_filters_are_followed(
    scene: Scene, topic: TopicNames
) -> None:
    """`CheckpointConnector`'s scenarios: no group, other groups, other topics, some of each."""
    follower = scene.follower()
    loop = CheckpointsJob(follower)
    loop.step()
    assert follower.followed == frozenset()
    other = create_topic(scene.source, topic("other"))
    scene.mirror(10)
    commit(scene.source, topic("stranger"), scene.orders, {0: 1})
    commit(scene.source, f"{scene.group}-elsewhere", other, {0: 1})
    commit(scene.source, f"{scene.group}-both", other, {0: 1})
    commit(scene.source, f"{scene.group}-both", scene.orders, {0: 1})

    follower = scene.follower()
    CheckpointsJob(follower).step()

    assert follower.followed == {f"{scene.group}-both"}
    assert [(group, name) for group, name, *_ in scene.told(follower)] == [
        (f"{scene.group}-both", scene.mirrored_orders)
    ]


def test_new_groups_are_found_at_the_next_refresh_and_not_before(scene: Scene) -> None:
    scene.mirror(10)
    scene.at_source(1)
    scene.flow = with_groups(scene, refresh_interval_s=3_600)
    seldom = scene.follower()
    scene.flow = with_groups(scene, refresh_interval_s=1)
    often = scene.follower()
    loops = [CheckpointsJob(seldom), CheckpointsJob(often)]
    for loop in loops:
        loop.step()
    commit(scene.source, f"{scene.group}-new", scene.orders, {0: 1})

    def found() -> bool:
        for loop in loops:
            loop.step()
        return f"{scene.group}-new" in often.followed

    wait_until(found, "the new group")
    assert seldom.followed == {scene.group}


def test_every_partition_of_a_group_is_put_exactly_where_it_stands_on_the_source(
    scene: Scene, topic: TopicNames
) -> None:
    """`testOneWayReplicationWithAutoOffsetSync`: exact, and a topic made later joins in."""
    follower = scene.follower()
    loop = GroupOffsetsJob(follower)
    scene.mirror(100, partition=0)
    scene.mirror(30, partition=1)
    scene.at_source(100, partition=0)
    scene.at_source(17, partition=1)
    loop.step()
    first = scene.at_target()
    late = create_topic(scene.source, f"{scene.orders}-late")
    copy = create_topic(scene.target, f"{scene.flow.id.source}.{late}")
    produce(scene.target, copy, numbered(10 + SHIFT))
    commit(scene.source, scene.group, late, {0: 4})
    scene.map.mirrored[TopicPartition(topic=TopicName(late), partition=0)] = 10

    loop.step()

    assert first == {0: 105, 1: 22}
    assert scene.at_target() == {0: 105, 1: 22}
    assert committed(scene.target, scene.group, copy) == {0: 9}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_active_on_the_target_is_left_alone_and_written_when_it_left(
    scene: Scene, protocol: Protocol
) -> None:
    scene.mirror(100)
    scene.at_source(50)
    follower = scene.follower()
    loop = GroupOffsetsJob(follower)
    with member(scene.target, scene.group, scene.mirrored_orders, protocol) as consumer:
        commit_as_member(consumer, scene.mirrored_orders, 20)
        loop.step()
        meanwhile, active = scene.at_target(), follower.active

    scene.leave(scene.clients.groups(scene.target_config))
    loop.step()

    assert (meanwhile, set(active)) == ({0: 20}, {scene.group})
    assert (scene.at_target(), follower.active) == ({0: 55}, frozenset())


def test_a_group_that_went_further_on_the_target_is_never_moved_back(scene: Scene) -> None:
    scene.mirror(100)
    scene.at_source(50)
    follower = scene.follower()
    loop = GroupOffsetsJob(follower)
    loop.step()
    commit(scene.target, scene.group, scene.mirrored_orders, {0: 80})

    for offset in (60, 10):
        scene.at_source(offset)
        loop.step()

    assert scene.at_target() == {0: 80}


def test_a_rewind_is_followed_while_the_target_stands_where_it_was_put(scene: Scene) -> None:
    scene.mirror(100)
    scene.at_source(50)
    follower = scene.follower()
    loops: list[PeriodicJob] = [CheckpointsJob(follower), GroupOffsetsJob(follower)]
    for loop in loops:
        loop.step()
    first = scene.at_target()

    scene.at_source(10)
    for loop in loops:
        loop.step()

    assert (first, scene.at_target()) == ({0: 55}, {0: 15})


def test_a_rewind_while_no_mirror_ran_is_followed_too(scene: Scene) -> None:
    scene.mirror(100)
    scene.at_source(50)
    first = scene.follower()
    CheckpointsJob(first).step()
    GroupOffsetsJob(first).step()
    scene.at_source(10)

    second = scene.follower()
    CheckpointsJob(second).step()
    GroupOffsetsJob(second).step()

    assert scene.at_target() == {0: 15}


def test_a_rewind_is_kept_from_the_target_where_the_choice_is_to_keep(scene: Scene) -> None:
    scene.flow = with_groups(scene, on_rewind="keep")
    scene.mirror(100)
    scene.at_source(50)
    loop = GroupOffsetsJob(scene.follower())
    loop.step()

    scene.at_source(10)
    loop.step()

    assert scene.at_target() == {0: 55}


def test_minus_one_on_the_target_is_written_over(scene: Scene) -> None:
    scene.mirror(100)
    scene.at_source(50)
    commit_raw(scene.target, scene.group, scene.mirrored_orders, -1)

    GroupOffsetsJob(scene.follower()).step()

    assert scene.at_target() == {0: 55}


def test_nothing_is_written_past_the_end_of_the_targets_log(scene: Scene) -> None:
    scene.mirror(5_000)
    scene.at_source(5_000)

    GroupOffsetsJob(scene.follower()).step()

    assert scene.at_target() == {}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_joins_between_the_comparison_and_the_write_wins(
    scene: Scene, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.mirror(100)
    scene.at_source(50)
    commit(scene.target, scene.group, scene.mirrored_orders, {0: 20})
    follower = scene.follower()
    joined: list[Any] = []
    commit_each = GroupAdmin.commit_each

    def join_first(self: GroupAdmin, wanted: Any) -> Any:
        if wanted and not joined:
            joining = member(scene.target, scene.group, scene.mirrored_orders, protocol)
            joined.append((joining, joining.__enter__()))
        return commit_each(self, wanted)

    monkeypatch.setattr(GroupAdmin, "commit_each", join_first)
    try:
        GroupOffsetsJob(follower).step()
        meanwhile, active = scene.at_target(), follower.active
    finally:
        for joining, _ in joined:
            joining.__exit__(None, None, None)

    assert len(joined) == 1
    assert (meanwhile, set(active)) == ({0: 20}, {scene.group})


def test_group_offsets_need_no_checkpoints(pair: Pair, topic: TopicNames, tmp_path: Path) -> None:
    """MirrorMaker 2 syncs no group without checkpoints; here the offsets come from the ledger."""
    orders, group = create_topic(pair["A"], topic("quiet-orders")), topic("quiet")
    file = write_config(
        tmp_path / "mm2.properties",
        {"quiet": pair["A"], "to": pair["B"]},
        {"quiet->to": {"topics": orders, "groups": group, "sync.group.offsets.enabled": "true"}},
    )
    produce(pair["A"], orders, numbered(100))
    commit(pair["A"], group, orders, {0: 42})

    with closing(InsideMirror(file)) as inside:
        inside.catch_up()
        inside.step("group offsets")

    assert committed(pair["B"], group, f"quiet.{orders}") == {0: 42}
    assert "quiet.checkpoints.internal" not in admin_of(pair["B"]).list_topics(timeout=30).topics
