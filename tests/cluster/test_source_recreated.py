"""`on.topic.recreated = restart`: the new topic follows the old one's copy, whenever it was made.

A lane that runs while its topic is recreated knows where its target ends. One that is new to its
slot has to ask, or the map would say that the new topic began at the target's first offset.
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

import pytest

from heliograph.model import LaneId, TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.exact import assert_exact_lane
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import NewRec, numbered, produce, read_all
from tests.kit.topics import delete_records_before, delete_topic, wait_until

_FOREIGN: Final = 7
"""Records that were in the target before the lane, so that its offsets are not its positions."""
_MIRRORED: Final = 100
_ANEW: Final = 30


@pytest.fixture(scope="module")
def renewed(pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Route:
    config = write_config(
        tmp_path_factory.mktemp("renewed") / "mm2.properties",
        {"renewed": pair["A"], "to": pair["B"]},
        {"renewed->to": {"topics": "renewed-.*", "on.topic.recreated": "restart"}},
    )
    return route(config, ("renewed", pair["A"]), ("to", pair["B"]))


def test_a_topic_recreated_while_no_mirror_ran_goes_on_behind_what_was_mirrored(
    renewed: Route, topic: TopicNames
) -> None:
    kept, emptied = (_filled(renewed, topic(f"renewed-{name}")) for name in ("kept", "emptied"))
    with closing(InsideMirror(renewed.config)) as first:
        first.catch_up()

    for name in (kept, emptied):
        _recreate(renewed, name)
    end = _FOREIGN + _MIRRORED
    delete_records_before(renewed.target, renewed.renamed(emptied), {0: end})
    with running_inside(renewed.config):
        renewed.await_records(kept, end + _ANEW)
        renewed.await_records(emptied, _ANEW)

    _assert_goes_on_at(renewed, kept, end)
    _assert_goes_on_at(renewed, emptied, end)


def test_a_topic_recreated_after_its_lanes_were_dropped_goes_on_behind_what_was_mirrored(
    renewed: Route, topic: TopicNames
) -> None:
    name = _filled(renewed, topic("renewed-dropped"))
    lane = LaneId(flow=renewed.flow, source=TopicPartition(topic=TopicName(name), partition=0))
    with running_inside(renewed.config) as inside:
        renewed.await_records(name, _FOREIGN + _MIRRORED)
        delete_topic(renewed.source, name)
        wait_until(lambda: lane not in inside.slots.progress(), "the lane's end", timeout_s=30)

        lasting_topic(renewed.source, name)
        produce(renewed.source, name, numbered(_ANEW, start=5_000))
        renewed.await_records(name, _FOREIGN + _MIRRORED + _ANEW)

    _assert_goes_on_at(renewed, name, _FOREIGN + _MIRRORED)


def _filled(one: Route, name: str) -> str:
    lasting_topic(one.source, name)
    lasting_topic(one.target, one.renamed(name))
    produce(one.target, one.renamed(name), [NewRec(value=b"other")] * _FOREIGN)
    produce(one.source, name, numbered(_MIRRORED))
    return name


def _recreate(one: Route, name: str) -> None:
    delete_topic(one.source, name)
    lasting_topic(one.source, name)
    produce(one.source, name, numbered(_ANEW, start=5_000))


def _assert_goes_on_at(one: Route, name: str, target_offset: int) -> None:
    (record,) = one.lane_records(name).values()
    (mirrored,) = read_all(one.target, one.renamed(name)).values()
    (wanted,) = read_all(one.source, name).values()
    last = record.starts[-1]
    assert (last.position, last.source_offset) == (_MIRRORED, 0)
    assert last.target_offset == target_offset
    assert record.runs.overlap_at is None
    assert [rec.content for rec in mirrored[-_ANEW:]] == [rec.content for rec in wanted]
    assert_exact_lane(record, wanted, mirrored)
