"""MirrorMaker 2's store of offset syncs, by the expectations of its own tests."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from heliograph.model import TopicName, TopicPartition
from heliograph.wire.mirror_records import OffsetSync
from tests.kit.sync_store import SLOTS, TOO_OLD, SyncStore

PARTITION = TopicPartition(topic=TopicName("topic1"), partition=2)
OFFSET_MAX = 2**63 - 1


def sync(store: SyncStore, up: int, down: int | None = None) -> None:
    store.add(
        OffsetSync(
            topic=PARTITION.topic,
            partition=PARTITION.partition,
            upstream_offset=up,
            downstream_offset=up if down is None else down,
        )
    )


def started() -> SyncStore:
    store = SyncStore()
    store.read_to_end()
    return store


def kept(store: SyncStore) -> list[int]:
    return [found.upstream_offset for found in store.distinct(PARTITION)]


def test_a_group_past_a_sync_is_translated_to_one_past_it() -> None:
    store = started()

    sync(store, 100, 200)
    past_the_sync = store.translate(PARTITION, 150)
    sync(store, 150, 251)

    assert past_the_sync == 201
    assert store.translate(PARTITION, 150) == 251
    assert store.translate(PARTITION, 5) == TOO_OLD


def test_offsets_that_went_back_are_followed_on_either_side() -> None:
    store = started()
    sync(store, 150, 251)

    sync(store, 200, 10)
    downstream_reset = store.translate(PARTITION, 200)
    sync(store, 20, 20)

    assert downstream_reset == 10
    assert store.translate(PARTITION, 20) == 20


def test_nothing_is_translated_before_the_topic_was_read_to_its_end() -> None:
    store = SyncStore()
    empty = [store.translate(PARTITION, offset) for offset in (0, 100, 200)]
    sync(store, 100, 200)
    reading = [store.translate(PARTITION, offset) for offset in (0, 100, 200)]

    store.read_to_end()

    assert empty == reading == [None, None, None]
    assert [store.translate(PARTITION, offset) for offset in (0, 100, 200)] == [TOO_OLD, 200, 201]


def test_nothing_is_translated_without_a_sync() -> None:
    assert started().translate(PARTITION, 0) is None


def test_the_older_an_offset_the_fewer_syncs_are_kept_around_it() -> None:
    store = SyncStore()
    for offset in range(0, 1_001, 10):
        sync(store, offset)
        assert_invariants(store)
    store.read_to_end()
    at_start = kept(store)
    for offset in range(1_010, 10_001, 10):
        sync(store, offset)
        assert_invariants(store)

    expected = [1000, 4840, 6760, 8680, 9160, 9640, 9880, 9940, 9970, 9990, 10000]
    assert at_start == [1000]
    assert kept(store) == expected
    assert_sparse(store, expected)


def test_with_checkpoints_read_all_syncs_of_the_topic_count() -> None:
    store = SyncStore(must_read_to_end=False)
    for offset in range(0, 1_001, 10):
        sync(store, offset)
        assert_invariants(store)
    store.read_to_end()
    for offset in range(1_010, 10_001, 10):
        sync(store, offset)
        assert_invariants(store)

    expected = [0, 3840, 7680, 8640, 9120, 9600, 9840, 9900, 9960, 9990, 10000]
    assert kept(store) == expected
    assert_sparse(store, expected)


def test_upstream_offsets_that_went_back_clear_the_store() -> None:
    store = started()
    for offset in range(1_000, 10_001, 10):
        sync(store, offset)

    sync(store, 1_500, 11_000)

    assert_invariants(store)
    assert store.translate(PARTITION, 1_499) == TOO_OLD
    assert store.translate(PARTITION, 1_500) == 11_000
    assert store.translate(PARTITION, 2_000) == 11_001


@pytest.mark.parametrize("first", [0, 1, 7, 29])
def test_evenly_spaced_syncs_cost_one_older_sync_each(first: int) -> None:
    steps, step = [], 1
    while step < OFFSET_MAX // 100:
        steps.append(step)
        step = 2 * step + 1

    for step in steps:
        assert_bounded_expirations(first, [step] * 100, expired_max=1)


def test_randomly_spaced_syncs_cost_as_many_as_their_spread_has_bits() -> None:
    randomness = random.Random(0)

    for bits in range(1, 54, 4):
        for least in (0, 2**16):
            steps = [least + randomness.randrange(2**bits) for _ in range(300)]
            assert_bounded_expirations(0, steps, expired_max=bits + 2)


def test_syncs_that_were_dropped_now_and_then_cost_two_at_most() -> None:
    randomness = random.Random(0)
    steps = [100 * randomness.choice((1, 2)) for _ in range(3_000)]

    assert_bounded_expirations(0, steps, expired_max=2)


def test_offsets_near_the_largest_are_kept_apart_like_any_other() -> None:
    store = started()

    for offset in (0, OFFSET_MAX - 3, OFFSET_MAX - 1, OFFSET_MAX):
        sync(store, offset, 1)
        assert_invariants(store)

    assert store.slots(PARTITION)[0].upstream_offset == OFFSET_MAX
    assert store.translate(PARTITION, OFFSET_MAX) == 1


def test_a_group_far_behind_reads_about_as_much_again() -> None:
    """The reference's table: one million records one to one, `offset.lag.max` 100."""
    store = started()
    end = 1_000_000
    for offset in range(0, end, 101):
        sync(store, offset)

    again = {lag: lag_again(store, end - lag) for lag in (1_000, 10_000, 100_000)}

    assert 0 < again[1_000] < 2 * 1_000
    assert 0 < again[10_000] < 2 * 10_000
    assert 0 < again[100_000] < 2 * 100_000


def lag_again(store: SyncStore, offset: int) -> int:
    translated = store.translate(PARTITION, offset)
    assert translated is not None
    return offset - translated


def assert_sparse(store: SyncStore, offsets: list[int]) -> None:
    """Between two syncs everything is translated relative to the earlier one."""
    for before, at in zip([None, *offsets], offsets, strict=False):
        earlier = TOO_OLD if before is None else before + 1
        assert store.translate(PARTITION, at - 1) == earlier
        assert store.translate(PARTITION, at) == at
        assert store.translate(PARTITION, at + 1) == at + 1
        assert store.translate(PARTITION, at + 2) == at + 1


def assert_invariants(store: SyncStore) -> None:
    slots = [found.upstream_offset for found in store.slots(PARTITION)]
    for j in range(SLOTS):
        for i in range(j):
            if slots[i] == slots[j]:
                continue
            assert slots[i] >= slots[j] + 2 ** max(i - 2, 0), f"C of {i} and {j}"
            assert slots[i] <= slots[j] + 2**j - 2**i, f"B of {i} and {j}"


def assert_bounded_expirations(first: int, steps: Iterable[int], *, expired_max: int) -> None:
    """The first and the last sync are always there; a new one pushes out a few at most."""
    store = started()
    sync(store, first)
    offset, count = first, 1
    for step in steps:
        offset += step
        sync(store, offset)
        left = store.distinct(PARTITION)
        assert left[-1].upstream_offset == offset
        assert left[0].upstream_offset == first
        assert count - len(left) + 1 <= expired_max, f"after {offset}"
        count = len(left)
