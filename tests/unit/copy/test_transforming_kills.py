"""A transform that answers otherwise each time it is asked, in a lane that is killed again and
again: none is repeated, none is lost, and the map says where each is."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from heliograph.config.transforms import TransformConfig
from heliograph.transform.record import Record
from tests.unit.copy.replayed_lane import ReplayedLane

RECORDS = 160
SEEDS = 25
LIVES_MAX = 400
_MOOD = random.Random(4711)
_SALT = [0]


def moody(record: Record) -> Record | None:
    """Every third record stays, every third never does, of the others nobody knows; and what a
    record becomes is another each time."""
    kind = record.offset % 3
    if kind == 1 or (kind == 2 and _MOOD.random() < 0.5):
        return None
    return record._replace(value=(record.value or b"") + b"/%d" % _MOOD.getrandbits(30))


def moody_mask(batch: Any) -> list[bool]:
    offsets = batch.column("offset").to_pylist()
    return [at % 3 == 0 or (at % 3 == 2 and _MOOD.random() < 0.5) for at in offsets]


def other_each_life(record: Record) -> Record | None:
    """As if an operator had put another function in place after each kill."""
    kind = record.offset % 3
    if kind == 1 or (kind == 2 and hash((record.offset, _SALT[0])) % 2):
        return None
    return record


def lane_of(function: Any, seed: int, kind: str) -> ReplayedLane:
    path = f"{__name__}:{function.__name__}"
    config = TransformConfig.model_validate({"name": "t", "kind": kind, "function": path})
    lane = ReplayedLane((config,), seed)
    lane.fill(RECORDS)
    return lane


def carry(lane: ReplayedLane, *, delivers_late: bool) -> int:
    """How many slots it took; the last one is not killed."""

    async def carry_on() -> int:
        for life in range(1, LIVES_MAX):
            _SALT[0] = life
            chance = 0.25 if life < LIVES_MAX // 2 else 0.0
            if await lane.live(kill_chance=chance, delivers_late=delivers_late):
                return life
        raise AssertionError("never caught up")

    return asyncio.run(carry_on())


def assert_exact(lane: ReplayedLane, seed: int) -> None:
    copied = lane.copied()
    runs = asyncio.run(lane.map())
    assert copied == sorted(set(copied)), f"seed {seed}: repeated or out of order"
    assert {at for at in range(RECORDS) if at % 3 == 0} <= set(copied), f"seed {seed}: lost"
    assert not {at for at in range(RECORDS) if at % 3 == 1} & set(copied), (
        f"seed {seed}: dropped, and there"
    )
    mapped = [runs.source_offset_at(position) for position in range(len(copied))]
    assert mapped == copied, f"seed {seed}: the map says otherwise"
    assert [runs.target_offset_at(position) for position in range(len(copied))] == list(
        range(len(copied))
    )


@pytest.mark.parametrize(
    ("function", "kind", "delivers_late"),
    [
        (moody, "record", False),
        (moody, "record", True),
        (moody_mask, "columns", True),
        (other_each_life, "record", False),
    ],
    ids=["another answer", "with late batches", "a mask, with late batches", "another function"],
)
def test_whatever_a_transform_answers_after_a_kill_each_record_is_copied_once(
    function: Any, kind: str, delivers_late: bool
) -> None:
    kills = 0
    for seed in range(SEEDS):
        lane = lane_of(function, seed, kind)

        kills += carry(lane, delivers_late=delivers_late) - 1

        assert_exact(lane, seed)
    assert kills > 2 * SEEDS
