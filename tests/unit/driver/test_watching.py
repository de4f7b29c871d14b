"""The file of a mirror that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from heliograph.config.difference import difference
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.driver import changes as changes_module
from heliograph.driver import watching
from heliograph.driver.watching import WatchedFile
from tests.unit.config.texts import TWO_CLUSTERS

Scene = Callable[[WatchedFile, list[MirrorConfig]], Awaitable[None]]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(watching, "_LOOK_S", 0.02)
    monkeypatch.setattr(watching, "_STILL_S", 0.05)
    monkeypatch.setattr(changes_module, "TOGETHER_S", 0.0)
    found = tmp_path / "mm2.properties"
    found.write_text(TWO_CLUSTERS)
    return found


def play(file: Path, scene: Scene) -> list[MirrorConfig]:
    watched = WatchedFile(lambda around: load_config(file, around))
    told = [watched.load()]

    async def apply(config: MirrorConfig) -> object:
        told.append(config)
        return difference(told[-2], config)

    async def played() -> None:
        async with watched.followed(None), asyncio.timeout(20):
            following = asyncio.create_task(watched.changes.follow(apply))  # type: ignore[arg-type]
            await scene(watched, told)
            following.cancel()

    asyncio.run(played())
    return told[1:]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_a_change_is_offered_once_and_a_bad_file_is_a_problem_until_it_is_mended(
    file: Path,
) -> None:
    async def scene(watched: WatchedFile, told: list[MirrorConfig]) -> None:
        file.write_text(TWO_CLUSTERS + "A->B.topics = x\n")
        await until(lambda: len(told) == 2)
        file.write_text(TWO_CLUSTERS + "A->B.topcs = x\n")
        await until(lambda: "line 5" in watched.changes.status.problem)
        file.write_text(TWO_CLUSTERS + "A->B.topics = y\n")
        await until(lambda: not watched.changes.status.problem and len(told) == 3)
        await asyncio.sleep(0.2)

    told = play(file, scene)

    assert [config.flows[0].topics for config in told] == [("x",), ("y",)]


def test_a_file_that_is_still_being_written_is_not_read(file: Path) -> None:
    """Half of it would parse, and end the second flow."""
    rest = "B->A.enabled = true\n"

    async def scene(watched: WatchedFile, told: list[MirrorConfig]) -> None:
        for text in (TWO_CLUSTERS + "\n" * count for count in range(1, 8)):
            file.write_text(text)
            await asyncio.sleep(0.03)
        file.write_text(TWO_CLUSTERS + rest)
        await until(lambda: len(told) == 2)

    (told,) = play(file, scene)

    assert len(told.flows) == 2


def test_a_file_that_is_not_to_be_watched_is_read_when_asked(file: Path) -> None:
    file.write_text(TWO_CLUSTERS + "reload.enabled = false\n")

    async def scene(watched: WatchedFile, told: list[MirrorConfig]) -> None:
        file.write_text(TWO_CLUSTERS + "reload.enabled = false\ntopics = x\n")
        await asyncio.sleep(0.2)
        assert len(told) == 1
        watched.look_now()
        await until(lambda: len(told) == 2)

    (told,) = play(file, scene)

    assert told.flows[0].topics == ("x",)


def test_a_bug_in_reading_shows_and_the_next_change_is_followed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(watched: WatchedFile, told: list[MirrorConfig]) -> None:
        def broken(_: object) -> MirrorConfig:
            raise LookupError("what nobody foresaw")

        load = watched._watch._load
        watched._watch._load = broken
        watched.look_now()
        await until(lambda: "a bug: LookupError" in watched.changes.status.problem)
        watched._watch._load = load
        watched.look_now()
        await until(lambda: len(told) == 2)

    play(file, scene)
