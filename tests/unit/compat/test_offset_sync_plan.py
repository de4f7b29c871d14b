"""When offset syncs are due, as MirrorMaker 2's own tests have it, and what waits for when."""

from __future__ import annotations

import pytest

from heliograph.compat.offset_sync_plan import SyncedPartition, SyncQueue
from heliograph.model import TopicName, TopicPartition

ORDERS = TopicPartition(topic=TopicName("orders"), partition=0)
PAYMENTS = TopicPartition(topic=TopicName("payments"), partition=3)


def observe(
    queue: SyncQueue, up: int, down: int, position: int, source: TopicPartition = ORDERS
) -> None:
    queue.observe(source, upstream_offset=up, downstream_offset=down, position=position)


def told(queue: SyncQueue) -> list[tuple[int, int]]:
    return [(sync.upstream_offset, sync.downstream_offset) for sync in queue.pending.values()]


def waiting(queue: SyncQueue) -> list[tuple[int, int]]:
    return [(sync.upstream_offset, sync.downstream_offset) for sync in queue.delayed.values()]


def test_a_sync_is_due_for_the_records_mirror_maker_2_would_tell() -> None:
    """Its testOffsetSync, with `offset.lag.max` 50."""
    partition = SyncedPartition(lag_max=50)
    records = [
        (0, 100, True, "the first of this life"),
        (2, 102, True, "one was skipped upstream"),
        (3, 152, False, "49 past what a reader would translate to"),
        (4, 153, True, "50 past it"),
        (5, 154, False, "just told"),
        (6, 203, False, "49 past it again"),
        (7, 204, True, "50 past it again"),
        (2, 206, True, "upstream went back"),
        (3, 207, False, "just told"),
        (4, 3, True, "downstream went back"),
        (5, 4, False, "just told"),
        (7, 6, True, "one was skipped upstream"),
    ]

    decided = [(up, down, partition.is_due(up, down), why) for up, down, _, why in records]

    assert decided == records


def test_without_lag_allowed_every_record_is_told() -> None:
    """Its testZeroOffsetSync."""
    partition = SyncedPartition(lag_max=0)
    records = [(0, 100), (2, 102), (3, 153), (4, 154), (5, 155), (6, 207), (2, 208), (3, 209)]
    records += [(4, 3), (5, 4), (7, 6), (8, 7), (10, 57), (11, 58)]

    assert all(partition.is_due(up, down) for up, down in records)


def test_a_stretch_without_a_gap_waits_until_it_is_long_enough() -> None:
    queue = SyncQueue(lag_max=100)
    observe(queue, 0, 0, position=1)
    queue.written(queue.pending)

    observe(queue, 100, 100, position=101)
    early = told(queue), waiting(queue)
    observe(queue, 101, 101, position=102)

    assert early == ([], [(100, 100)])
    assert (told(queue), waiting(queue)) == ([(101, 101)], [])


def test_a_gap_anywhere_in_a_stretch_is_told_at_once() -> None:
    queue = SyncQueue(lag_max=100)
    observe(queue, 9, 9, position=10)
    queue.written(queue.pending)

    # Nine records took ten offsets upstream: one of them was a marker or compacted away.
    observe(queue, 19, 18, position=19)

    assert told(queue) == [(19, 18)]


def test_offsets_that_went_back_together_are_told_at_once() -> None:
    queue = SyncQueue(lag_max=100)
    observe(queue, 20, 20, position=21)
    queue.written(queue.pending)

    observe(queue, 15, 30, position=16)

    assert told(queue) == [(15, 30)]


def test_what_was_seen_already_is_not_told_again() -> None:
    queue = SyncQueue(lag_max=0)
    observe(queue, 5, 7, position=6)
    queue.written(queue.pending)

    observe(queue, 5, 7, position=6)
    queue.promote_delayed()

    assert told(queue) == []


def test_the_newest_sync_of_a_partition_is_the_one_that_waits() -> None:
    queue = SyncQueue(lag_max=50)
    observe(queue, 0, 100, position=1)
    observe(queue, 1, 101, position=2)
    observe(queue, 2, 102, position=3)

    assert (told(queue), waiting(queue)) == ([(0, 100)], [(2, 102)])


def test_delayed_syncs_are_told_when_they_are_promoted() -> None:
    queue = SyncQueue(lag_max=50)
    observe(queue, 0, 100, position=1)
    observe(queue, 1, 101, position=2)

    queue.promote_delayed()

    assert (told(queue), waiting(queue)) == ([(1, 101)], [])


def test_a_sync_that_is_due_takes_the_place_of_a_delayed_one() -> None:
    queue = SyncQueue(lag_max=2)
    observe(queue, 0, 1, position=1)
    observe(queue, 1, 2, position=2)

    observe(queue, 4, 5, position=3)
    queue.promote_delayed()

    assert (told(queue), waiting(queue)) == ([(4, 5)], [])


def test_what_is_being_written_stays_pending_until_it_is_acknowledged() -> None:
    queue = SyncQueue(lag_max=0)
    observe(queue, 0, 0, position=1)
    observe(queue, 7, 7, position=8, source=PAYMENTS)
    on_their_way = queue.pending

    observe(queue, 1, 1, position=2)
    queue.written(on_their_way)

    assert told(queue) == [(1, 1)]


@pytest.mark.parametrize("lag_max", [0, 100])
def test_a_new_life_tells_the_first_sight_of_every_partition(lag_max: int) -> None:
    before = SyncQueue(lag_max=lag_max)
    observe(before, 41, 41, position=42)

    queue = SyncQueue(lag_max=lag_max)
    observe(queue, 41, 41, position=42)

    assert told(queue) == told(before) == [(41, 41)]
