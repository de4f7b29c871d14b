"""A slot's memory: nobody who does not empty his share keeps the others from theirs."""

from __future__ import annotations

from heliograph.copy.room import FETCH_BYTES_MIN, Room, Share
from heliograph.model import ClusterAlias, FlowId

MIB = 1024 * 1024
NEAR = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
HUNG = FlowId(source=ClusterAlias("A"), target=ClusterAlias("C"))


def fill(room: Room, share: Share) -> int:
    """What a share takes that nobody empties."""
    while share.is_open:
        room.kept(share, MIB)
    return share.kept_bytes


def test_a_share_that_nobody_empties_leaves_half_of_the_room() -> None:
    room = Room(256 * MIB)

    assert fill(room, room.share(HUNG, 1)) == 128 * MIB
    assert room.share(NEAR, 1).is_open


def test_two_that_nobody_empties_leave_a_fourth_and_others_go_on() -> None:
    room = Room(256 * MIB)
    taken = [fill(room, room.share(HUNG, broker)) for broker in (1, 2)]
    near = room.share(NEAR, 1)

    for _ in range(1_000):
        room.kept(near, 16 * MIB)
        room.kept(near, -16 * MIB)

    assert taken == [128 * MIB, 64 * MIB]
    assert near.is_open


def test_a_share_opens_again_once_half_of_what_is_free_would_hold_it() -> None:
    room, changed = Room(100), list[tuple[int, bool]]()
    room.on_change = lambda share: changed.append((share.kept_bytes, share.is_open))
    share = room.share(NEAR, 1)

    room.kept(share, 60)
    room.kept(share, -20)
    room.kept(share, -20)

    assert changed == [(60, False), (20, True)]


def test_a_share_opens_when_others_give_back() -> None:
    room = Room(100)
    small, large = room.share(NEAR, 1), room.share(HUNG, 1)
    room.kept(large, 90)
    room.kept(small, 10)
    was_open = small.is_open

    room.kept(large, -80)

    assert (was_open, small.is_open) == (False, True)


def test_fetches_under_way_together_ask_for_no_more_than_is_free() -> None:
    room = Room(256 * MIB)
    room.streams = 300
    room.kept(room.share(HUNG, 1), 56 * MIB)

    asked = room.fetch_bytes(16 * MIB)

    assert asked * room.streams <= 200 * MIB
    assert Room(256 * MIB).fetch_bytes(16 * MIB) == 16 * MIB


def test_a_fetch_asks_for_something_however_full_the_slot_is() -> None:
    room = Room(MIB)
    room.kept(room.share(HUNG, 1), 2 * MIB)

    assert room.fetch_bytes(16 * MIB) == FETCH_BYTES_MIN
