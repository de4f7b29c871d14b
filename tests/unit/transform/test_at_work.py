"""Functions that take their time, or never come back: their lane waits, and nobody else."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator

import pytest

from heliograph.config.transforms import TransformConfig
from heliograph.errors import NotYetKnown
from heliograph.transform import at_work
from heliograph.transform import hands as hands_module
from heliograph.transform.at_work import AtWork
from heliograph.transform.hands import Hands
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
    monkeypatch.setattr(hands_module, "IMPATIENT_S", 1.0)
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


def settled(
    transform: LaneTransform,
    given: list[Content],
    first: int = 10,
    offsets: list[int] | None = None,
) -> Transformed:
    due_s = time.monotonic() + 20
    while True:
        began_s = time.monotonic()
        try:
            return transform.apply(offsets or range(first, first + len(given)), given)
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
    monkeypatch.setattr(hands_module, "AT_ONCE_MAX", 2)
    bad = [content(b"bad")]
    for first in (10, 20):
        settled(lane("hangs_on_bad", timeout_ms=100), bad, first)

    with pytest.raises(NotYetKnown, match=r"2 calls of functions have not come back.*anew"):
        lane("hangs_on_bad").apply([30], bad)

    functions.never.set()
    assert settled(lane("hangs_on_bad"), bad, 30).failed == {}


def test_calls_that_have_time_left_are_said_to_be_at_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hands_module, "AT_ONCE_MAX", 1)
    bad = [content(b"bad")]
    with pytest.raises(AtWork):
        lane("hangs_on_bad").apply([10], bad)

    with pytest.raises(NotYetKnown, match="1 calls of functions are at work") as caught:
        lane("hangs_on_bad").apply([20], bad)

    assert "anew" not in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "then", "made_for"),
    [
        pytest.param([10, 11, 12], [10, 12, 14], [[10, 11, 12], [10, 12, 14]], id="compacted"),
        pytest.param([10, 12], [10, 11, 12], [[10, 12], [10, 11, 12]], id="fewer before"),
        pytest.param([10, 11], [10, 12, 13], [[10, 11], [10, 12, 13]], id="another prefix"),
    ],
)
def test_an_answer_is_given_to_the_records_it_was_made_for_and_to_no_others(
    asked: list[int], then: list[int], made_for: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functions, "sleeps_s", 0.1)
    transform = lane("slow_numbered")
    with pytest.raises(AtWork):
        transform.apply(asked, [content(b"") for _ in asked])

    done = settled(transform, [content(b"") for _ in then], offsets=then)

    assert done.contents == [content(b"%d" % offset) for offset in then]
    assert functions.asked == made_for


@pytest.mark.parametrize("more", [0, 1], ids=["the same number", "more behind"])
def test_other_records_at_the_same_offsets_get_no_answer_of_the_earlier_ones(
    more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader that was elected uncleanly has its own."""
    monkeypatch.setattr(functions, "sleeps_s", 0.1)
    transform = lane("slow_upper")
    with pytest.raises(AtWork):
        transform.apply([10, 11], [content(b"a"), content(b"b")])

    done = settled(transform, [content(b"a"), content(b"c"), content(b"d")][: 2 + more])

    assert done.contents == [content(b"A"), content(b"C"), content(b"D")][: 2 + more]


def test_a_thread_that_cannot_be_started_fails_no_record_and_takes_no_place(
    monkeypatch: pytest.MonkeyPatch, hands: Hands
) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    transform = lane("same")
    with monkeypatch.context() as without:
        without.setattr(threading.Thread, "start", refuse)
        for _ in range(hands_module.AT_ONCE_MAX + 1):
            with pytest.raises(NotYetKnown, match="transform t: no thread can be started"):
                transform.apply(range(10, 14), GIVEN)

    assert hands.busy == 0
    assert settled(transform, GIVEN) == Transformed([*GIVEN])


def test_many_lanes_with_slow_functions_hold_their_slot_up_as_long_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(at_work, "GRACE_S", 0.1)
    monkeypatch.setattr(functions, "sleeps_s", 0.8)
    lanes = [lane("slow") for _ in range(50)]

    began_s = time.monotonic()
    for each in lanes:
        with pytest.raises(AtWork):
            each.apply(range(10, 14), GIVEN)
    took_s = time.monotonic() - began_s

    assert took_s < 0.7
    for each in lanes:
        assert settled(each, GIVEN) == Transformed([*GIVEN])


def test_a_loop_is_patient_again_a_while_after_it_waited_in_vain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(at_work, "GRACE_S", 0.05)
    monkeypatch.setattr(hands_module, "IMPATIENT_S", 0.2)
    with pytest.raises(AtWork):
        lane("hangs_on_bad").apply([10], [content(b"bad")])
    monkeypatch.setattr(functions, "sleeps_s", 0.01)
    time.sleep(0.25)
    monkeypatch.setattr(at_work, "GRACE_S", 10)

    assert lane("slow").apply(range(10, 14), GIVEN) == Transformed([*GIVEN])


def test_an_error_that_is_asked_for_again_keeps_no_frames_of_who_asked() -> None:
    def fail() -> None:
        raise ValueError("a bad value")

    call = hands_module.Call(fail, 1 << 30, is_alone=False)
    call.run()
    depths = []
    for _ in range(3):
        with pytest.raises(ValueError, match="a bad value") as caught:
            call.answer()
        depths.append(len(list(traceback.walk_tb(caught.value.__traceback__))))

    assert depths == [depths[0]] * 3


def test_a_function_that_ends_its_thread_fails_its_record() -> None:
    done = settled(lane("leaves", kind="record"), GIVEN[:1])

    assert str(done.failed[0]) == "transform t: BadResult: raised SystemExit"
