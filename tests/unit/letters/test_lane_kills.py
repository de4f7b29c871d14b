"""A lane whose bad records become dead letters, killed at every step of writing one: each record is
mirrored or is a letter, once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from heliograph import probe
from heliograph.config.transforms import TransformConfig
from heliograph.copy.flow import FetchLimits
from heliograph.letters.letter import ReadLetter, read_letter
from heliograph.model import TopicName, TopicPartition
from heliograph.transform.record import Record
from heliograph.wire.batch import parse_header
from heliograph.wire.opened import open_records
from tests.kit.fake_cluster import Asked
from tests.unit.copy.replayed_lane import Killed, ReplayedLane

RECORDS = 120
SEEDS = 8
LIVES_MAX = 400
LETTERS = TopicPartition(topic=TopicName("heliograph-letters.A.internal"), partition=0)
STEPS = (probe.LETTERS_TO_NOTE, probe.LETTERS_NOTED, probe.LETTERS_APPENDED)
_MOOD = random.Random(815)


def strict(record: Record) -> Record | None:
    """One of five is bad whenever it is asked for, one is dropped."""
    kind = record.offset % 5
    if kind == 1:
        raise ValueError(f"bad {record.offset}")
    return None if kind == 2 else record


def moody(record: Record) -> Record | None:
    """As `strict`, and of one of five nobody knows what it is this time."""
    if record.offset % 5 == 3 and _MOOD.random() < 0.5:
        raise ValueError("not today")
    return strict(record)


@pytest.fixture(autouse=True)
def no_probe() -> Iterator[None]:
    yield
    probe.install(lambda step, subject: None)


class LetteredLane(ReplayedLane):
    """Is killed at the steps of writing letters too."""

    chance = 0.0

    def begin(self) -> None:
        self.stage.target.create(LETTERS.topic)

        def strike(step: str, _: object) -> None:
            if step in STEPS and self.random.random() < self.chance:
                raise Killed

        def strike_at(asked: Asked) -> None:
            if LETTERS.topic in asked.topics and self.random.random() < self.chance / 2:
                raise Killed

        probe.install(strike)
        self.stage.target.before = strike_at

    async def live(self, *, kill_chance: float, delivers_late: bool = False) -> bool:
        self.chance = kill_chance / 2
        return await super().live(kill_chance=kill_chance, delivers_late=delivers_late)

    def letters(self) -> list[ReadLetter]:
        found: list[ReadLetter] = []
        for each in self.stage.target.log(LETTERS)._batches:
            header = parse_header(memoryview(each.content))
            assert header is not None
            for first, contents in open_records(memoryview(each.content), header):
                for offset, content in enumerate(contents, first):
                    letter = read_letter(LETTERS, offset, content)
                    assert letter is not None
                    found.append(letter)
        return found


def lane_of(function: str, seed: int) -> LetteredLane:
    config = TransformConfig.model_validate(
        {"name": "t", "kind": "record", "function": f"{__name__}:{function}"}
    )
    limits = FetchLimits(on_transform_error="dead-letter", letters_topic=LETTERS.topic)
    lane = LetteredLane((config,), seed, limits=limits)
    lane.fill(RECORDS)
    lane.begin()
    return lane


def carry(lane: LetteredLane) -> int:
    async def carry_on() -> int:
        for life in range(1, LIVES_MAX):
            chance = 0.2 if life < LIVES_MAX // 2 else 0.0
            if await lane.live(kill_chance=chance):
                return life
        raise AssertionError("never caught up")

    return asyncio.run(carry_on())


@pytest.mark.parametrize("folded_at", [40, 2], ids=["notes apart", "notes together"])
@pytest.mark.parametrize("function", ["strict", "moody"])
def test_a_record_is_mirrored_or_a_letter_and_once_whatever_is_killed(
    function: str, folded_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = 0
    monkeypatch.setattr("heliograph.letters.lane.FOLDED_AT", folded_at)
    monkeypatch.setattr("heliograph.letters.notes.NOTES_APART", min(8, folded_at - 1))
    for seed in range(SEEDS):
        lane = lane_of(function, seed)

        kills += carry(lane) - 1

        copied, letters = lane.copied(), lane.letters()
        lettered = [each.offset for each in letters]
        assert copied == sorted(set(copied)), f"seed {seed}: repeated or out of order"
        assert len(lettered) == len(set(lettered)), f"seed {seed}: a letter twice"
        assert not set(copied) & set(lettered), f"seed {seed}: mirrored, and a letter"
        assert set(copied) | set(lettered) == {at for at in range(RECORDS) if at % 5 != 2}
        assert {at for at in range(RECORDS) if at % 5 == 1} <= set(lettered)
        assert all(each.content[2] == b"%d" % each.offset for each in letters)
        assert {each.failure.error for each in letters} == {"ValueError"}
        runs = asyncio.run(lane.map())
        assert [runs.source_offset_at(position) for position in range(len(copied))] == copied
    assert kills > 2 * SEEDS
