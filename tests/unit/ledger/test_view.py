"""Entries folded one after the other."""

from __future__ import annotations

import pytest

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.errors import WireError
from heliograph.ledger.entries import (
    AclEntry,
    AclKey,
    FlowEntry,
    FlowKey,
    HeadEntry,
    HeadKey,
    LeaseEntry,
    LeaseKey,
    LossEntry,
    LossKey,
    RunsEntry,
    RunsKey,
    StartEntry,
    StartKey,
)
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.runs import Run
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    ClusterAlias,
    FlowId,
    OffsetRange,
    StallReason,
    TopicName,
    TopicPartition,
)
from tests.kit.entries import head_entry, start_entry

ORDERS = TopicName("orders")
FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


def flow(producer_id: int) -> FlowEntry:
    return FlowEntry(
        flow=FLOW, producer_id=producer_id, producer_epoch=0, source_cluster_id="x", created_ms=1
    )


FIRST, SECOND = "1" * 32, "2" * 32


def start(position: int, author: str, source_offset: int) -> StartEntry:
    return start_entry(
        ORDERS,
        3,
        position=position,
        author=author,
        source_offset=source_offset,
        target_offset=position,
    )


def head(position: int) -> HeadEntry:
    return head_entry(ORDERS, 3, records=position)


def runs(*triples: tuple[int, int, int], end: int | None = None, author: str = FIRST) -> RunsEntry:
    return RunsEntry(
        topic=ORDERS,
        partition=3,
        author=author,
        end_position=end,
        runs=tuple(
            Run(position=position, source_offset=source_offset, target_offset=target_offset)
            for position, source_offset, target_offset in triples
        ),
    )


def runs_key(position: int) -> RunsKey:
    return RunsKey(topic=ORDERS, partition=3, position=position, author=FIRST)


def lease(author: str, at_ms: int, lease_ms: int = 10) -> LeaseEntry:
    return LeaseEntry(author=author, host="h", pid=1, at_ms=at_ms, lease_ms=lease_ms, slot_count=2)


def loss(position: int, start: int, end: int) -> LossEntry:
    return LossEntry(
        topic=ORDERS,
        partition=3,
        position=position,
        lost=OffsetRange(start=start, end=end),
        reason=StallReason.RETENTION_OVERRUN,
        at_ms=1,
    )


def test_a_view_of_nothing_knows_no_flow_and_no_lane() -> None:
    view = LedgerView()

    assert view.flow is None
    assert view.lanes == ()
    assert view.lane(ORDERS, 3) is None
    assert view.lane_keys(ORDERS, 3) == ()


def test_a_lane_has_its_last_head_its_runs_and_its_losses() -> None:
    view = LedgerView()

    for entry in (head(1), runs((0, 0, 0), (5, 9, 5)), loss(5, 5, 9), head(7), runs((7, 20, 7))):
        view.apply(entry)

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert lane.head == head(7)
    assert list(lane.runs) == list(runs((0, 0, 0), (5, 9, 5), (7, 20, 7)).runs)
    assert lane.losses == (loss(5, 5, 9),)
    assert view.lanes == (TopicPartition(topic=ORDERS, partition=3),)


def test_the_first_of_two_drivers_that_start_a_flow_names_its_producer_id() -> None:
    view = LedgerView()

    view.apply(flow(7_000))
    view.apply(flow(7_001))

    assert view.flow == flow(7_000)

    view.remove(FlowKey(producer_id=7_000))

    assert view.flow == flow(7_001)


def test_the_first_of_two_mirrors_that_find_a_new_lane_says_where_it_begins() -> None:
    view = LedgerView()

    for entry in (start(0, FIRST, 100), runs((10, 120, 10)), start(0, SECOND, 105)):
        view.apply(entry)

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert lane.starts == (start(0, FIRST, 100),)
    assert list(lane.runs) == list(runs((0, 100, 0), (10, 120, 10)).runs)


def test_a_lane_that_begins_again_has_both_starts_and_new_source_offsets() -> None:
    view = LedgerView()

    for entry in (start(0, FIRST, 100), runs((10, 120, 10)), start(20, FIRST, 0)):
        view.apply(entry)

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert lane.starts == (start(0, FIRST, 100), start(20, FIRST, 0))
    assert lane.runs.position_of_source(5) == 25


def test_runs_from_the_start_on_replace_its_run_and_leave_the_start() -> None:
    view = LedgerView()
    view.apply(start(0, FIRST, 100))
    view.apply(runs((0, 100, 7)))

    keys = view.lane_keys(ORDERS, 3)

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert lane.starts == (start(0, FIRST, 100),)
    assert list(lane.runs) == list(runs((0, 100, 7)).runs)
    assert keys == (
        StartKey(topic=ORDERS, partition=3, position=0, author=FIRST),
        runs_key(0),
    )


def test_two_losses_at_one_position_are_both_remembered() -> None:
    view = LedgerView()

    view.apply(loss(5, 5, 9))
    view.apply(loss(5, 9, 30))

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert sum(entry.lost.count for entry in lane.losses) == 25


def test_a_lane_whose_keys_are_all_removed_is_forgotten() -> None:
    view = LedgerView()
    for entry in (head(9), runs((0, 0, 0)), runs((8, 9, 8)), runs((4, 6, 4)), loss(4, 4, 6)):
        view.apply(entry)

    keys = view.lane_keys(ORDERS, 3)
    for key in keys:
        view.apply_record(encode_key(key), None)

    # Position 4 holds down 8, so it goes later.
    assert keys == (
        LossKey(topic=ORDERS, partition=3, position=4, lost_start=4),
        runs_key(0),
        runs_key(8),
        runs_key(4),
        HeadKey(topic=ORDERS, partition=3),
    )
    assert view.lane(ORDERS, 3) is None


def test_a_tombstone_removes_the_runs_of_its_own_entry_only() -> None:
    view = LedgerView()
    for entry in (runs((0, 0, 0), (2, 4, 2)), runs((4, 8, 4)), runs((6, 12, 6))):
        view.apply(entry)

    view.remove(runs_key(0))
    view.remove(runs_key(2))

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert list(lane.runs) == list(runs((4, 8, 4), (6, 12, 6)).runs)


def test_a_tombstone_of_something_unknown_changes_nothing() -> None:
    view = LedgerView()
    view.apply(head(1))

    view.remove(HeadKey(topic=TopicName("other"), partition=0))
    view.remove(FlowKey(producer_id=1))
    view.remove(runs_key(0))

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert lane.head == head(1)


def test_acls_are_remembered_until_they_are_removed_and_are_no_lane() -> None:
    view = LedgerView()
    first, second = acl("User:alice"), acl("User:bob")

    for entry in (first, second, first):
        view.apply_record(*encode(entry))
    assert view.acls == {first.binding, second.binding}

    view.apply_record(encode_key(AclKey(binding=first.binding)), None)
    view.remove(AclKey(binding=first.binding))

    assert view.acls == {second.binding}
    assert view.lanes == ()


def acl(principal: str) -> AclEntry:
    binding = AclBinding(
        name="A.orders",
        pattern=AclPattern.LITERAL,
        principal=principal,
        host="*",
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    )
    return AclEntry(binding=binding, at_ms=1)


def test_records_are_folded_from_their_bytes_and_garbage_is_refused() -> None:
    view = LedgerView()
    view.apply_record(*encode(head(4)))

    with pytest.raises(WireError):
        view.apply_record(b"head|orders|3", b"{}")

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert lane.head == head(4)


def test_a_late_entry_of_a_mirror_given_up_for_dead_leaves_its_successors_runs() -> None:
    view = LedgerView()
    for entry in (start(0, FIRST, 0), runs((5, 9, 5), end=10, author=SECOND)):
        view.apply(entry)
    view.apply(runs((12, 20, 12), end=20, author=SECOND))

    view.apply(runs((5, 9, 5), end=8))

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert list(lane.runs) == list(runs((0, 0, 0), (5, 9, 5), (12, 20, 12)).runs)


def test_an_entry_whose_key_is_written_again_never_was() -> None:
    view = LedgerView()
    for entry in (start(0, FIRST, 0), runs((5, 9, 5), (8, 14, 8))):
        view.apply(entry)

    view.apply(runs((5, 9, 5), end=7))

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert list(lane.runs) == list(runs((0, 0, 0), (5, 9, 5)).runs)


def test_two_authors_at_one_position_do_not_take_each_others_key() -> None:
    view = LedgerView()

    view.apply(runs((5, 9, 5), (8, 14, 8), end=10))
    view.apply(runs((5, 9, 5), end=7, author=SECOND))

    lane = view.lane(ORDERS, 3)
    assert lane is not None
    assert list(lane.runs) == list(runs((5, 9, 5), (8, 14, 8)).runs)
    assert len(view.lane_keys(ORDERS, 3)) == 2


def test_the_first_driver_holds_the_lease_while_it_renews_it() -> None:
    view = LedgerView()

    for entry in (lease(FIRST, 100), lease(SECOND, 101), lease(FIRST, 109), lease(SECOND, 112)):
        view.apply(entry)

    assert view.holder == lease(FIRST, 109)


@pytest.mark.parametrize("at_ms", [110, 111])
def test_another_driver_takes_over_only_after_the_lease_is_over(at_ms: int) -> None:
    view = LedgerView()
    view.apply(lease(FIRST, 100))

    view.apply(lease(SECOND, at_ms))

    assert view.holder == (lease(SECOND, 111) if at_ms == 111 else lease(FIRST, 100))


def test_a_holder_that_renews_late_keeps_the_lease_if_nobody_took_it() -> None:
    view = LedgerView()
    view.apply(lease(FIRST, 100))

    view.apply(lease(FIRST, 500))

    assert view.holder == lease(FIRST, 500)


def test_a_lease_that_was_let_go_is_free_at_once() -> None:
    view = LedgerView()
    view.apply(lease(FIRST, 100))

    view.apply(lease(FIRST, 101, lease_ms=0))

    assert view.holder is None
    view.apply(lease(SECOND, 102))
    assert view.holder == lease(SECOND, 102)


def test_who_does_not_hold_the_lease_cannot_let_it_go() -> None:
    view = LedgerView()
    view.apply(lease(FIRST, 100))

    view.apply(lease(SECOND, 101, lease_ms=0))
    view.remove(LeaseKey(author=SECOND))

    assert view.holder == lease(FIRST, 100)
    view.remove(LeaseKey(author=FIRST))
    assert view.holder is None


def test_after_compaction_a_refused_driver_that_died_seems_to_hold_until_its_lease_is_over() -> (
    None
):
    view = LedgerView()

    view.apply(lease(SECOND, 101))
    view.apply(lease(FIRST, 109))

    assert view.holder == lease(SECOND, 101)
    view.apply(lease(FIRST, 112))
    assert view.holder == lease(FIRST, 112)


def test_a_lane_has_begun_once_it_has_a_start() -> None:
    view = LedgerView()
    view.apply(start_entry("payments", 1))
    view.apply(head_entry("payments", 1))
    view.apply(start_entry("orders", 7))
    view.apply(head_entry("orders", 3))

    begun = view.begun()

    assert [(lane.topic, lane.partition) for lane in begun] == [("orders", 7), ("payments", 1)]
    assert view.begun_lane(TopicName("payments"), 1) == begun[view.lanes[-1]]
    assert view.lane(ORDERS, 3) is not None
    assert view.begun_lane(ORDERS, 3) is None
    assert view.begun_lane(ORDERS, 4) is None
