"""Lanes whose bad records become dead letters, killed -9 at the steps of writing one.

`tests/unit/letters/test_lane_kills.py` has every order of events; here are real brokers, and
records that the target itself refuses.
"""

from __future__ import annotations

import re
from pathlib import Path

from heliograph import probe
from heliograph.transform.record import Record
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.scene import PARTITIONS, Scene, open_scene
from tests.kit.clusters import TopicNames
from tests.kit.records import Rec, read_all
from tests.kit.topics import create_topic, set_topic_config

_NUMBER = re.compile(rb"v(\d+)")
_OURS = 9
"""Headers that a letter has beside the record's own."""


def strict(record: Record) -> Record:
    if number_of(record.value) % 5 == 1:
        raise ValueError(f"bad {number_of(record.value)}")
    return record


def number_of(value: bytes | None) -> int:
    found = _NUMBER.match(value or b"")
    assert found is not None
    return int(found[1])


def test_records_that_fail_or_are_too_large_are_letters_once_whatever_is_killed(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    with open_scene(pair, topic("letters"), tmp_path) as scene:
        letters_topic = f"heliograph-letters.{scene.flow.source}.internal"
        create_topic(scene.target, letters_topic)
        set_topic_config(scene.target, scene.target_topic, {"max.message.bytes": "4000"})
        scene.transforms = [{"name": "m", "kind": "record", "function": f"{__name__}:strict"}]
        scene.fates = {
            "on_transform_error": "dead-letter",
            "on_unwritable": "dead-letter",
            "letters_topic": letters_topic,
        }
        scene.write()

        for step, after in (
            (probe.LETTERS_TO_NOTE, 1),
            (probe.LETTERS_NOTED, 2),
            (probe.LETTERS_APPENDED, 1),
            (probe.BATCHES_SENT, 2),
        ):
            scene.carry_until_killed(step, after=after)
            scene.write(4)
            scene.write_plain(2, value_bytes=6_000)
        scene.carry()

        assert_each_once(scene, letters_topic)


def assert_each_once(scene: Scene, letters_topic: str) -> None:
    wanted = read_all(scene.source, scene.topic)
    mirrored = read_all(scene.target, scene.target_topic)
    letters = read_all(scene.target, letters_topic)[0]
    for number in range(PARTITIONS):
        given = {number_of(rec.value): rec for rec in wanted[number]}
        copied = [number_of(rec.value) for rec in mirrored[number]]
        own = {
            number_of(rec.value): rec for rec in letters if said(rec, "partition") == str(number)
        }
        assert copied == sorted(set(copied)), "repeated or out of order"
        assert set(copied) | set(own) == set(given), "lost"
        bad = {n for n, rec in given.items() if n % 5 == 1 or len(rec.value or b"") > 4_000}
        assert set(own) == bad
        for n, letter in own.items():
            assert (letter.key, letter.value) == (given[n].key, given[n].value)
            assert letter.headers[:-_OURS] == given[n].headers
            assert said(letter, "offset") == str(given[n].offset)
            stage = "TRANSFORMATION" if n % 5 == 1 else "KAFKA_PRODUCE"
            assert said(letter, "stage") == stage
    numbers = [number_of(rec.value) for rec in letters]
    assert len(numbers) == len(set(numbers)), "a letter twice"


def said(letter: Rec, name: str) -> str:
    return (dict(letter.headers)[f"__connect.errors.{name}"] or b"").decode()
