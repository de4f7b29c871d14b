"""How large a batch a target takes, once it refused one for its size."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.clock import monotonic_s
from heliograph.copy import lane_fields, sizes
from heliograph.copy.chunk import OutgoingBatch
from heliograph.copy.lane_fields import SIZE_S, Learned
from heliograph.errors import BrokerUnreachable, MirrorError, NotAuthorised
from heliograph.model import OffsetRange

LARGE, LATE = "MESSAGE_TOO_LARGE", "INVALID_TIMESTAMP"


def batch(start: int, count: int) -> OutgoingBatch:
    return OutgoingBatch(
        position=start,
        record_count=count,
        view=memoryview(bytearray(100)),
        source_offset=start,
        source_next_offset=start + count,
        max_timestamp_ms=-1,
    )


def refused(code: str = LARGE, *, count: int = 10) -> Learned:
    learned = Learned(fetch_bytes=1)
    learned.blame(batch(5, count), code, "no")
    return learned


def asked(learned: Learned, monkeypatch: pytest.MonkeyPatch, told: str | MirrorError | None) -> int:
    """How often the target was asked."""
    questions: list[Any] = []

    async def answer(*question: Any) -> str | None:
        questions.append(question)
        if isinstance(told, MirrorError):
            raise told
        return told

    monkeypatch.setattr(sizes, "setting_at", answer)
    lane: Any = SimpleNamespace(
        learned=learned, spec=SimpleNamespace(target="orders-0"), flow=SimpleNamespace(target="B")
    )
    asyncio.run(sizes.learn_sizes([lane, lane]))
    return len(questions)


def test_a_target_that_refused_a_batch_for_its_size_is_asked_once_and_believed_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned = refused()

    assert learned.suspects == OffsetRange(start=5, end=15)
    assert asked(learned, monkeypatch, "4000") == 1
    believed = [learned.size_bytes_max, learned.suspects]
    at_s = monotonic_s()
    monkeypatch.setattr(lane_fields, "monotonic_s", lambda: at_s + SIZE_S + 1)
    assert believed == [4_000, None]
    assert learned.size_bytes_max is None


def test_batches_that_were_made_to_fit_and_are_refused_again_are_tried_record_by_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned = refused()
    asked(learned, monkeypatch, "4000")

    learned.blame(batch(5, 3), LARGE, "no")

    assert asked(learned, monkeypatch, "4000") == 1
    assert learned.suspects == OffsetRange(start=5, end=8)


def test_a_limit_that_was_lowered_meanwhile_is_learned_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned = refused()
    asked(learned, monkeypatch, "4000")
    learned.blame(batch(5, 3), LARGE, "no")

    asked(learned, monkeypatch, "2000")

    assert (learned.size_bytes_max, learned.suspects) == (2_000, None)


def test_what_was_refused_for_something_else_too_stays_to_be_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned = refused(LATE)
    learned.blame(batch(15, 10), LARGE, "no")

    asked(learned, monkeypatch, "4000")

    assert learned.suspects == OffsetRange(start=5, end=25)


@pytest.mark.parametrize(
    ("told", "again"),
    [
        (NotAuthorised("B: orders: missing permission DESCRIBE_CONFIGS on topic orders"), 0),
        (BrokerUnreachable("B: gone"), 1),
        (None, 1),
    ],
)
def test_a_target_that_does_not_tell_leaves_each_record_to_be_tried(
    monkeypatch: pytest.MonkeyPatch, told: MirrorError | None, again: int
) -> None:
    """One that may not be asked is asked no more."""
    learned = refused()

    assert asked(learned, monkeypatch, told) == 1
    assert learned.suspects == OffsetRange(start=5, end=15)
    learned.blame(batch(5, 1), LARGE, "no")
    assert asked(learned, monkeypatch, told) == again
    assert list(learned.unwritable) == [5]


def test_a_record_that_was_refused_for_its_time_asks_nobody_for_a_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(refused(LATE), monkeypatch, "4000") == 0
