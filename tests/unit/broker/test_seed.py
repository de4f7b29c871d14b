"""A partition is seeded once, whoever dies or joins in between, and never over a record."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.broker import seed as seed_module
from heliograph.broker.cluster import EARLIEST, LATEST
from heliograph.broker.seed import filler_left, is_filler, seed
from heliograph.errors import BrokerUnreachable, LeaderMoved
from heliograph.model import OffsetRange, TopicName, TopicPartition
from heliograph.wire.batch import SEQUENCES, Stamp
from tests.kit.fake_cluster import Asked, FakeCluster
from tests.kit.fake_log import FakeLog
from tests.kit.fake_records import append_foreign, append_own

ORDERS = TopicPartition(topic=TopicName("orders"), partition=0)
STAMP = Stamp(4_711, 0)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_module, "FILLER_RECORDS", 10)


def seeded(cluster: FakeCluster, wanted: int) -> int:
    """As a slot does it: by what the log shows at that moment."""

    async def run() -> int:
        await cluster.refresh([ORDERS.topic])
        start = (await cluster.list_offsets([ORDERS], EARLIEST))[ORDERS]
        end = (await cluster.list_offsets([ORDERS], LATEST))[ORDERS]
        last = (await cluster.last_sequences([ORDERS], STAMP.producer_id))[ORDERS]
        assert isinstance(start, int)
        assert isinstance(end, int)
        assert isinstance(last, int)
        return await seed(
            cluster,
            ORDERS,
            STAMP,
            log=OffsetRange(start=start, end=end),
            last_sequence=last,
            wanted=wanted,
        )

    return asyncio.run(run())


def empty() -> tuple[FakeCluster, FakeLog]:
    cluster = FakeCluster()
    return cluster, cluster.create(ORDERS.topic)


def last_sequence(log: FakeLog) -> int:
    return log.last_sequences()[STAMP.producer_id][1]


def test_the_log_begins_where_it_should_and_the_first_record_follows_the_filler() -> None:
    cluster, log = empty()

    end = seeded(cluster, 57)

    assert (end, log.start, log.end) == (57, 57, 57)
    assert is_filler(last_sequence(log))
    append_own(log, STAMP.producer_id, 0, 3)
    assert (log.end, last_sequence(log)) == (60, 2)


@pytest.mark.parametrize("appends", range(1, 7))
def test_a_seeding_broken_off_after_any_append_is_finished_by_the_next(appends: int) -> None:
    cluster, log = empty()
    done = 0

    def broken(asked: Asked) -> None:
        nonlocal done
        done += asked.name == "produce"
        if done > appends or (done == appends and asked.name == "delete_records"):
            raise BrokerUnreachable("cluster B: gone")

    cluster.before = broken
    with pytest.raises(BrokerUnreachable):
        seeded(cluster, 57)
    cluster.before = lambda _: None

    end = seeded(cluster, 57)

    assert (end, log.start, log.end, last_sequence(log)) == (57, 57, 57, SEQUENCES - 1)


def test_what_was_begun_for_another_start_is_finished_for_that_one() -> None:
    assert filler_left(end=20, last_sequence=SEQUENCES - 38, wanted=57) == 37
    assert filler_left(end=20, last_sequence=SEQUENCES - 38, wanted=90) == 37
    assert filler_left(end=20, last_sequence=-1, wanted=57) == 37
    assert filler_left(end=57, last_sequence=-1, wanted=20) == 0


def test_a_second_seeder_that_comes_late_is_refused() -> None:
    cluster, log = empty()

    def race(asked: Asked) -> None:
        if asked.name == "produce":
            cluster.before = lambda _: None
            seeded_by_other(log)

    cluster.before = race

    with pytest.raises(LeaderMoved, match="another mirror has written there as this producer"):
        seeded(cluster, 57)

    assert log.end == 60


def seeded_by_other(log: FakeLog) -> None:
    """All of the filler, removed, and the lane's first records."""
    for left in (57, 47, 37, 27, 17, 7):
        append_own(log, STAMP.producer_id, SEQUENCES - left, min(10, left))
    log.delete_before(57)
    append_own(log, STAMP.producer_id, 0, 3)


def test_records_of_others_are_not_deleted_with_the_filler() -> None:
    cluster, log = empty()
    append_foreign(log, 5)

    end = seeded(cluster, 57)

    assert (end, log.start, log.end) == (57, 0, 57)


def test_a_log_that_is_cleared_while_it_is_checked_belongs_to_another_mirror() -> None:
    cluster, log = empty()

    def clear(asked: Asked) -> None:
        if asked.name == "fetch":
            log.delete_before(log.end)
            append_own(log, STAMP.producer_id, 0, 3)

    cluster.before = clear

    with pytest.raises(LeaderMoved, match="another mirror has cleared it"):
        seeded(cluster, 57)


def test_a_topic_that_is_only_compacted_is_left_as_it_is() -> None:
    cluster, log = empty()
    log.is_compacted = True

    assert seeded(cluster, 57) == 0
    assert log.end == 0


def test_a_partition_without_a_leader_is_not_seeded() -> None:
    cluster, _ = empty()

    def moved(asked: Asked) -> None:
        if asked.name == "describe_producers":
            cluster._topics.clear()

    cluster.before = moved

    with pytest.raises(LeaderMoved, match="no leader now"):
        seeded(cluster, 57)
