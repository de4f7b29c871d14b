"""Functions that take their time, or never come back: their lane waits, and nobody else."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from heliograph.config.transforms import TransformConfig
from heliograph.errors import NotYetKnown
from heliograph.transform import at_work
from heliograph.transform.at_work import AtWork, Hands
from heliograph.transform.lane import LaneTransform, Transformed
from heliograph.transform.record import Where
from heliograph.wire.opened import Content
from tests.unit.transform import functions

WHERE = Where("orders", "A.orders", 3)


def content(value: bytes) -> Content:
    return 1_000, b"k", value, ()


GIVEN = [content(b"one"), content(b"two"), content(b"bad"), content(b"three")]


@pytest.fixture(autouse=True)
def hands(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hands]:
    made = Hands()
    monkeypatch.setattr(at_work.Beside.__init__, "__defaults__", (made,))
    monkeypatch.setattr(at_work, "GRACE_S", 0.02)
    monkeypatch.setattr(functions, "asked", [])
    functions.never.clear()
    yield made
    functions.never.set()


def lane(name: str, timeout_ms: int = 60_000, kind: str = "columns") -> LaneTransform:
    config = TransformConfig.model_validate(
        {
            "name": "t",
            "kind": kind,
            "function": f"tests.unit.transform.functions:{name}",
            "timeout_ms": timeout_ms,
        }
    )
    transform = LaneTransform.of([config], WHERE)
    assert transform is not None
    return transform


def settled(transform: LaneTransform, given: list[Content], first: int = 10) -> Transformed:
    due_s = time.monotonic() + 20
    while True:
        began_s = time.monotonic()
        try:
            return transform.apply(range(first, first + len(given)), given)
        except NotYetKnown:
            assert time.monotonic() < due_s
            # Nobody else is held up meanwhile.
            assert time.monotonic() - began_s < 1
            time.sleep(0.005)


def test_a_slow_function_is_called_once_and_its_answer_found_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "sleeps_s", 0.3)
    transform = lane("slow")

    with pytest.raises(AtWork, match="transform t has been at work for 0 s"):
        transform.apply(range(10, 14), GIVEN)

    assert settled(transform, GIVEN) == Transformed([*GIVEN])
    assert functions.asked == [[10, 11, 12, 13]]
    assert settled(transform, GIVEN, 14) == Transformed([*GIVEN])


def test_what_was_fetched_behind_it_meanwhile_is_asked_for_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(functions, "sleeps_s", 0.1)
    transform = lane("slow")
    with pytest.raises(AtWork):
        transform.apply(range(10, 12), GIVEN[:2])

    assert settled(transform, GIVEN) == Transformed([*GIVEN])
    assert functions.asked == [[10, 11], [12, 13]]


def test_a_record_that_never_comes_back_fails_and_no_other(hands: Hands) -> None:
    transform = lane("hangs_on_bad", timeout_ms=100)

    done = settled(transform, GIVEN)

    assert done.contents == [GIVEN[0], GIVEN[1], None, GIVEN[3]]
    assert {row: str(each) for row, each in done.failed.items()} == {
        2: "transform t: TransformTimedOut: no answer for record in 0.1 s"
    }
    assert hands.busy == 3


def test_a_lane_that_tries_again_leaves_no_more_behind(hands: Hands) -> None:
    transform = lane("hangs_on_bad", timeout_ms=100)
    settled(transform, GIVEN)
    busy = hands.busy

    for _ in range(3):
        assert list(settled(transform, GIVEN[2:], 12).failed) == [0]

    assert hands.busy <= busy + 1
    functions.never.set()
    due_s = time.monotonic() + 10
    while hands.busy and time.monotonic() < due_s:
        time.sleep(0.005)
    assert settled(transform, GIVEN[2:], 12).failed == {}


def test_the_number_of_calls_that_never_came_back_is_bounded_and_told(
    monkeypatch: pytest.MonkeyPatch, hands: Hands
) -> None:
    monkeypatch.setattr(at_work, "AT_ONCE_MAX", 2)
    bad = [content(b"bad")]
    for first in (10, 20):
        settled(lane("hangs_on_bad", timeout_ms=100), bad, first)

    with pytest.raises(NotYetKnown, match="2 calls of functions have not come back"):
        lane("hangs_on_bad").apply([30], bad)

    functions.never.set()
    assert settled(lane("hangs_on_bad"), bad, 30).failed == {}


def test_a_function_that_ends_its_thread_fails_its_record() -> None:
    done = settled(lane("leaves", kind="record"), GIVEN[:1])

    assert str(done.failed[0]) == "transform t: BadResult: raised SystemExit"
