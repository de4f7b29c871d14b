"""Lanes whose transform drops and changes at random, killed -9 between runs and batches.

`tests/unit/copy/test_transforming_kills.py` has every order of events; here are real brokers.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from heliograph import probe
from heliograph.ledger.service import LedgerService
from heliograph.model import TopicName
from heliograph.transform.record import Record
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.crash.scene import PARTITIONS, Scene, open_scene
from tests.kit.clusters import TopicNames
from tests.kit.records import Rec, read_all

_NUMBER = re.compile(rb"v(\d+)")
KILLS = [
    [(probe.RUNS_DURABLE, 1), (probe.RUNS_DURABLE, 3), (probe.BATCHES_SENT, 2)],
    [(probe.BATCHES_SENT, 1), (probe.RUNS_TO_WRITE, 3), (probe.BATCHES_ANSWERED, 2)],
]


def moody(record: Record) -> Record | None:
    """Every third record stays, every third never does, of the others nobody knows."""
    kind = number_of(record.value) % 3
    if kind == 1 or (kind == 2 and random.random() < 0.5):
        return None
    return record._replace(headers=(("mood", b"%f" % random.random()),))


def number_of(value: bytes | None) -> int:
    found = _NUMBER.match(value or b"")
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("kills", KILLS, ids=["after the runs", "after the batches"])
def test_a_random_transform_killed_again_and_again_loses_and_repeats_nothing(
    kills: list[tuple[str, int]],
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
) -> None:
    with open_scene(pair, topic("moods"), tmp_path) as scene:
        scene.transforms = [{"name": "m", "kind": "record", "function": f"{__name__}:moody"}]
        scene.write()

        for step, after in kills:
            scene.carry_until_killed(step, after=after)
            scene.write(8)
        scene.carry()

        assert_exact(scene)


def assert_exact(scene: Scene) -> None:
    wanted = read_all(scene.source, scene.topic)
    mirrored = read_all(scene.target, scene.target_topic)
    ledgers = LedgerService(scene.configs)
    try:
        for number in range(PARTITIONS):
            lane = ledgers.view(scene.flow).lane(TopicName(scene.topic), number)
            assert lane is not None
            copied = [number_of(rec.value) for rec in mirrored[number]]
            given = {number_of(rec.value): rec for rec in wanted[number]}
            assert copied == sorted(set(copied)), "repeated or out of order"
            assert {n for n in given if n % 3 == 0} <= set(copied), "lost"
            assert not any(n % 3 == 1 for n in copied), "dropped, and there"
            runs = lane.runs
            places = [
                (runs.source_offset_at(position), runs.target_offset_at(position))
                for position in range(len(copied))
            ]
            assert places == [(given[n].offset, at.offset) for n, at in _with(mirrored[number])]
    finally:
        ledgers.close()


def _with(records: list[Rec]) -> list[tuple[int, Rec]]:
    return [(number_of(rec.value), rec) for rec in records]
