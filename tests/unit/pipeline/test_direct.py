"""Rows appended as they are computed, against a cluster in memory that obeys a broker's rules."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from heliograph.errors import BrokerUnreachable, LeaderMoved, NotAuthorised, PipelineRefused
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline import append as appending
from heliograph.pipeline import direct
from heliograph.pipeline.direct import DirectAppender, DirectPacker
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.packing import Columns, TargetTopics
from heliograph.wire.batch import Stamp
from tests.kit.fake_cluster import Asked, FakeCluster
from tests.kit.fake_log import FakeLog
from tests.kit.fake_records import append_foreign

AT = TopicPartition(topic=TopicName("out"), partition=0)
STAMP = Stamp(1_000, 0)
TOPICS = TargetTopics(partition_counts={"out": 1}, default_topic="out")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "_RETRY_S", 0.001)
    monkeypatch.setattr(appending, "_RETRY_S_MAX", 0.002)
    monkeypatch.setattr(appending, "_AHEAD_S_MAX", 0.02)
    monkeypatch.setattr(direct, "_GIVE_UP_S", 0.3)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    monkeypatch.setattr(direct, "open_cluster", lambda _config, _role: made)
    return made


@contextmanager
def appender(position: int = 0) -> Iterator[DirectAppender]:
    start = PartEnd(topic="out", partition=0, position=position, offset=0, producer=1_000)
    made = DirectAppender(None, STAMP, {AT: start})  # type: ignore[arg-type]
    try:
        yield made
    finally:
        made.close()


def write(count: int, mark: bytes = b"") -> list[PartEnd]:
    """So many rows of 200 kB, two of which make a batch."""
    with appender() as to:
        packer = DirectPacker(TOPICS, 0, to, at_ms=5)
        for number in range(count):
            packer.add(
                Columns(
                    topics=None,
                    partitions=None,
                    timestamps_ms=None,
                    keys=None,
                    values=[b"%d" % number + mark + b"x" * 200_000],
                    headers=None,
                )
            )
        packer.seal_all()
        return to.finish()


def own(log: FakeLog) -> list[tuple[int, int]]:
    return [
        (header.base_sequence, header.record_count)
        for header in log.headers()
        if header.producer_id == STAMP.producer_id
    ]


def test_rows_are_appended_in_order(cluster: FakeCluster) -> None:
    log = cluster.create("out")

    (end,) = write(7)

    assert own(log) == [(0, 2), (2, 2), (4, 2), (6, 1)]
    assert (end.position, end.offset, end.producer) == (7, 7, 1_000)


def test_another_try_appends_what_is_missing(cluster: FakeCluster) -> None:
    log = cluster.create("out")
    write(4)
    append_foreign(log, 1)

    (end,) = write(7)
    (again,) = write(7)

    assert own(log) == [(0, 2), (2, 2), (4, 2), (6, 1)]
    assert (end.position, end.offset) == (again.position, again.offset) == (7, 8)


@pytest.mark.parametrize("count", [3, 7])
def test_another_try_with_other_rows_is_refused(cluster: FakeCluster, count: int) -> None:
    log = cluster.create("out")
    write(4)

    with pytest.raises(PipelineRefused, match="declared deterministic"):
        write(count, mark=b"!" if count == 7 else b"")

    assert own(log) == [(0, 2), (2, 2)]


@pytest.mark.parametrize("seed", range(5))
def test_failing_anywhere_and_tried_again_every_row_is_there_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each request may fail for good, or once; others write; the broker forgets."""
    log, drawn = cluster.create("out"), random.Random(seed)

    def trouble(asked: Asked) -> None:
        match drawn.randrange(8):
            case 0:
                raise BrokerUnreachable("cut")
            case 1:
                raise NotAuthorised("no more")
            case 2:
                append_foreign(log, 1)
            case 3 if asked.name != "produce":
                log.expire_producers()

    cluster.before = trouble
    monkeypatch.setattr(direct, "_GIVE_UP_S", 20.0)
    for _ in range(400):
        try:
            write(21)
        except (NotAuthorised, BrokerUnreachable):
            continue
        break
    cluster.before = lambda _: None
    (end,) = write(21)

    assert own(log) == [(2 * index, 2) for index in range(10)] + [(20, 1)]
    assert end.position == 21


@pytest.mark.parametrize("asked_for", ["metadata", "describe_producers"])
def test_a_leader_that_moves_as_a_task_begins_or_finishes_costs_nothing(
    cluster: FakeCluster, asked_for: str
) -> None:
    """There the partitions are asked about that the task has no rows for."""
    cluster.create("out")
    moves = [LeaderMoved("elsewhere"), BrokerUnreachable("cut")]

    def trouble(asked: Asked) -> None:
        if asked.name == asked_for and moves:
            raise moves.pop()

    cluster.before = trouble

    assert write(0) == []
    assert moves == []


def test_a_target_that_does_not_answer_ends_the_task(cluster: FakeCluster) -> None:
    cluster.create("out")

    def trouble(asked: Asked) -> None:
        if asked.name == "produce":
            raise BrokerUnreachable("no answer")

    cluster.before = trouble

    with pytest.raises(BrokerUnreachable):
        write(60)
