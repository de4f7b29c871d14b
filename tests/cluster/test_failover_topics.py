"""Some topics of a flow are failed over, while the driver goes on with the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from heliograph.broker.group_view import GroupOffset
from heliograph.broker.groups import CommitOutcome, GroupAdmin
from heliograph.errors import RecoveryRefused
from heliograph.failback.command import fail_back
from heliograph.failback.context import FailbackOrder
from heliograph.model import TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import heliograph
from tests.cluster.test_failover_live import PARTITIONS, Load, load_on, read_and_commit
from tests.crash.failing_over import Point, fail_over_until
from tests.kit.clusters import TopicNames
from tests.kit.failing_over import Stage, read_on
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.records import NewRec, end_offsets, numbered, produce, read_all
from tests.kit.topics import create_topic, set_topic_config, wait_until

RECORDS_PER_S = 400
READ_BEFORE = 100
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@contextmanager
def two_topics_under_load(stage: Stage, other: str) -> Iterator[tuple[Load, Load]]:
    with ExitStack() as stack:
        left = stack.enter_context(load_on(stage.source, stage.topic, RECORDS_PER_S))
        yield left, stack.enter_context(load_on(stage.source, other, RECORDS_PER_S))


def values(cluster: LocalCluster, topic: str) -> dict[int, list[bytes]]:
    return {n: [rec.value or b"" for rec in found] for n, found in read_all(cluster, topic).items()}


def test_a_topic_is_failed_over_under_load_while_another_goes_on_and_comes_back_exactly(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, other = topic("alone"), topic("other")
    stage = Stage(
        folder=tmp_path,
        source=pair["A"],
        target=pair["B"],
        topic=name,
        settings={"topics": f"{name},{other}", "refresh.topics.interval.seconds": "1"},
    )
    beside = f"{stage.flow.source}.{other}"
    for each in (name, other):
        create_topic(stage.source, each, partitions=PARTITIONS)
    group = f"{name}-billing"
    with ExitStack() as stack:
        loads = stack.enter_context(two_topics_under_load(stage, other))
        with running_inside(stage.file(), periodic=True, leased=True) as mirror:
            await_moving(stage, stage.mirrored, beside)
            read = read_and_commit(stage.source, group, name, READ_BEFORE)
            committed_too(stage, group, other)

            # Killed when the fence is up and no group was moved yet.
            killed = fail_over_until(
                stage.file(), stage.flow, "unplanned", Point(memo="groups/begun"), [name]
            )
            stands = end_offsets(stage.target, stage.mirrored)
            unmoved = placed(stage, group)
            await_moving(stage, beside)
            done = heliograph("failover", stage.file(), "--topics", name, "--yes", "--json")
            again = heliograph("failover", stage.file(), "--topics", name, "--yes", "--json")
            moved = placed(stage, group)
            await_moving(stage, beside)
            carried = {lane.source.topic for lane in mirror.slots.current()}
            (shown,) = heliograph("status", stage.file(), "--json").document["flows"]
            plan = heliograph("plan", stage.file())
            refused = refusals(stage, name, other)

        assert killed == -SIGKILL
        assert unmoved == {}
        assert done.code == 0, done.err
        assert done.document["state"] == "done"
        assert [each["topic"] for each in done.document["topics"]] == [name]
        assert again.document["state"] == "done before"
        assert carried == {other}
        assert end_offsets(stage.target, stage.mirrored) == stands
        assert {at.topic for at in moved} == {stage.mirrored}, "groups stay on other topics"
        assert [each["topic"] for each in shown["failed_over"]] == [name]
        states = {lane["topic"]: lane["state"] for lane in shown["lanes"]}
        assert states[name] == "fenced"
        assert states[other] in ("copying", "idle")
        assert "failed over to" in plan.out
        assert all("failed over" in text or "mirrors no topic" in text for text in refused), refused
        there = values(stage.target, stage.mirrored)
        went_on = read_on(stage.target, group, stage.mirrored, stands)
        assert {n: read[n] + went_on[n] for n in there} == there

        # A driver that starts later keeps to the fence, and goes on with the other topic.
        with running_inside(stage.file(), periodic=True, leased=True) as mirror:
            await_moving(stage, beside)
            assert {lane.source.topic for lane in mirror.slots.current()} == {other}
            assert end_offsets(stage.target, stage.mirrored) == stands

            back = heliograph("failback", stage.file(), "--topics", name, "--json")

            assert back.code == 0, back.err
            await_moving(stage, stage.mirrored, beside)
            for load in loads:
                load.stop(drain=True)
            await_arrived(stage, mirror, name, other)
    assert values(stage.target, stage.mirrored) == values(stage.source, name)
    assert values(stage.target, beside) == values(stage.source, other)


def await_moving(stage: Stage, *mirrored: str) -> None:
    """Until records were appended to each of these topics of the target since this was called."""
    ends: dict[str, int] = {}

    def is_moving() -> bool:
        for name in mirrored:
            found = sum(end_offsets(stage.target, name).values()) if exists(stage, name) else 0
            ends.setdefault(name, found)
            if found <= ends[name]:
                return False
        return True

    wait_until(is_moving, f"records in {mirrored}", timeout_s=60, poll_s=0.1)


def exists(stage: Stage, name: str) -> bool:
    return name in AdminClient(stage.target.librdkafka_config).list_topics(timeout=10).topics


def await_arrived(stage: Stage, mirror: InsideMirror, *names: str) -> None:
    def has_arrived() -> bool:
        return all(
            end_offsets(stage.source, name)
            == end_offsets(stage.target, f"{stage.flow.source}.{name}")
            for name in names
        )

    wait_until(has_arrived, f"all records, {mirror.stalls}", timeout_s=60, poll_s=0.2)


def test_at_a_cut_related_topics_stand_at_one_moment_and_what_is_later_stays(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    """The group has read all of one topic, little of the other, and nothing is left out."""
    name, other = topic("orders"), topic("payments")
    stage = Stage(
        folder=tmp_path,
        source=pair["A"],
        target=pair["B"],
        topic=name,
        settings={"topics": f"{name},{other}"},
    )
    beside, group = f"{stage.flow.source}.{other}", f"{name}-billing"
    began_ms = int(time.time() * 1000) - 60_000
    for each in (name, other):
        create_topic(stage.source, each)
        records = [NewRec(value=b"%d" % n, timestamp_ms=began_ms + 1_000 * n) for n in range(20)]
        produce(stage.source, each, records)
    at = {each: TopicPartition(topic=TopicName(each), partition=0) for each in (name, other)}
    wanted = {at[name]: GroupOffset(offset=20), at[other]: GroupOffset(offset=4)}
    admin = GroupAdmin(stage.config.source_of(stage.flow))

    def is_committed() -> bool:
        # A coordinator that is just being made refuses partition by partition.
        (outcome,) = admin.commit_each({group: wanted}).values()
        return isinstance(outcome, CommitOutcome) and not outcome.problems

    wait_until(is_committed, f"offsets of {group}")
    stage.mirror()
    cut = datetime.fromtimestamp(began_ms / 1000 + 12, UTC).isoformat()
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()

    dry = heliograph("failover", stage.file(), "--cut", cut, "--dry-run", "--json")
    future = heliograph("failover", stage.file(), "--cut", later, "--yes")
    set_topic_config(stage.target, beside, {"message.timestamp.type": "LogAppendTime"})
    stamped = heliograph("failover", stage.file(), "--cut", cut, "--yes")
    set_topic_config(stage.target, beside, {"message.timestamp.type": None})
    done = heliograph("failover", stage.file(), "--cut", cut, "--yes", "--json")

    points = {each["topic"]: each for each in dry.document["cut"]["partitions"]}
    assert {each: found["target_offset"] for each, found in points.items()} == {name: 12, other: 12}
    assert dry.document["cut"]["later_records"] == 16
    assert (future.code, stamped.code) == (3, 3)
    assert "the cut is in the future" in future.err
    assert f"puts its own times on {beside}" in stamped.err
    assert done.code == 0, done.err
    assert {each.topic: to for each, to in placed(stage, group).items()} == {
        stage.mirrored: 12,
        beside: 4,
    }
    assert done.document["cut"]["at_ms"] == began_ms + 12_000
    assert values(stage.target, stage.mirrored) == values(stage.source, name)


def committed_too(stage: Stage, group: str, other: str) -> None:
    """The group stands somewhere on the other topic as well."""
    admin = GroupAdmin(stage.config.source_of(stage.flow))
    at = TopicPartition(topic=TopicName(other), partition=0)
    admin.commit_each({group: {at: GroupOffset(offset=7)}})


def placed(stage: Stage, group: str) -> dict[TopicPartition, int]:
    admin = GroupAdmin(stage.config.target_of(stage.flow))
    return {at: to.offset for at, to in admin.offsets([group]).get(group, {}).items()}


def refusals(stage: Stage, name: str, other: str) -> list[str]:
    """What is asked for wrongly, each time while the topic is failed over."""
    asked = (["--topics", f"{name},{other}"], ["--topics", "nonsense"])
    found = [heliograph("failover", stage.file(), *each, "--yes") for each in asked]
    found.append(heliograph("failback", stage.file(), "--topics", other))
    found.append(heliograph("failback", stage.file()))
    assert [each.code for each in found] == [3] * len(found), [each.err for each in found]
    return [each.err for each in found]


def test_a_promoted_topic_is_its_clients_own_and_comes_back_only_with_its_flow_under_equal_names(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name, other = topic("own"), topic("rest")
    stage = Stage(
        folder=tmp_path,
        source=pair["A"],
        target=pair["B"],
        topic=name,
        settings={
            "topics": f"{name},{other}",
            "replication.policy.class": IDENTITY,
            "on.topic.deleted": "delete",
        },
    )
    for each in (name, other):
        create_topic(stage.source, each, partitions=2)
        produce(stage.source, each, numbered(40, partitions=2))
    stage.mirror()
    promoted = stage.fail_over("planned", topics=[name])
    produce(stage.target, name, numbered(10, partitions=2))
    admin = AdminClient(stage.source.librdkafka_config)
    admin.delete_topics([name])[name].result(30)

    with running_inside(stage.file()) as mirror:
        produce(stage.source, other, numbered(20, partitions=2))
        # Longer than two refreshes, after which a topic that is gone would be deleted.
        time.sleep(4)
        carried = {lane.source.topic for lane in mirror.slots.current()}
    there = {topic: sum(map(len, values(stage.target, topic).values())) for topic in (name, other)}
    order: Any = FailbackOrder(flow=stage.flow, topics=(TopicName(name),))
    with pytest.raises(RecoveryRefused, match="come back only with their whole flow"):
        asyncio.run(fail_back(stage.config, order, lambda _: None))
    whole = stage.fail_over()

    assert promoted.lost_records_min == 0
    assert carried == {other}
    assert there == {name: 50, other: 60}
    assert {loss.source.topic for loss in whole.losses} == {other}, "moved what had moved before"
