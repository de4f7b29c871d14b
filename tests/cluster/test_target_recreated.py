"""A target topic that was deleted and created again is never continued as if nothing was missing.

A broker takes any sequence as the first of a producer it does not know. So a lane that went on
under the same name would leave a copy that begins in the middle, with nothing to show for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from heliograph.model import StallReason
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.inside import running_inside
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import NewRec, end_offsets, numbered, produce, read_all
from tests.kit.runs import WITHOUT_SPARK, mirror_once
from tests.kit.topics import admin_of, delete_topic

_STALLED_CODE: Final = 3
_FIXED: Final = "fixed-topics"
_MIRRORED: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Flows:
    run: ExitStack
    """Ends the mirror that carries both when it is closed."""
    seen: Route
    """The driver looks at its topics every second, and creates what is missing."""
    fixed: Route
    """The driver looks once, so only the broker can tell the slot."""


@pytest.fixture(scope="module")
def flows(
    pair: dict[str, LocalCluster], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flows]:
    a, b = pair["A"], pair["B"]
    lasting_topic(a, _FIXED)
    produce(a, _FIXED, numbered(_MIRRORED))
    config = write_config(
        tmp_path_factory.mktemp("recreated") / "mm2.properties",
        {"seen": a, "fixed": a, "to": b},
        {
            "seen->to": {"topics": "seen-.*"},
            "fixed->to": {"topics": _FIXED, "refresh.topics.enabled": "false"},
        },
    )
    with ExitStack() as run:
        run.enter_context(running_inside(config))
        yield Flows(
            run=run,
            seen=route(config, ("seen", a), ("to", b)),
            fixed=route(config, ("fixed", a), ("to", b)),
        )


def _mirrored(one: Route, name: str) -> str:
    lasting_topic(one.source, name)
    produce(one.source, name, numbered(_MIRRORED))
    assert one.assert_arrives(name) == _MIRRORED
    return name


def test_a_target_deleted_under_an_idle_lane_is_created_and_the_lane_says_what_is_missing(
    flows: Flows, topic: TopicNames
) -> None:
    seen = flows.seen
    name = _mirrored(seen, topic("seen-idle"))

    # Not `delete_topic`, which waits until it is gone: the mirror creates it again before that.
    admin = admin_of(seen.target)
    admin.delete_topics([seen.renamed(name)])[seen.renamed(name)].result(30)

    seen.await_stall(name, StallReason.TARGET_RECREATED)
    produce(seen.source, name, numbered(50, start=1_000))
    others = _mirrored(seen, topic("seen-others"))
    produce(seen.source, others, numbered(50, start=1_000))
    assert seen.assert_arrives(others) == _MIRRORED + 50
    assert end_offsets(seen.target, seen.renamed(name)) == {0: 0}


def test_a_target_recreated_and_filled_by_others_takes_nothing_of_the_lane(flows: Flows) -> None:
    """As long as what was mirrored: by its offsets alone the lane could not tell the two apart."""
    fixed = flows.fixed
    renamed = fixed.renamed(_FIXED)
    fixed.assert_arrives(_FIXED)
    delete_topic(fixed.target, renamed)
    lasting_topic(fixed.target, renamed)
    produce(fixed.target, renamed, [NewRec(key=b"other", value=b"")] * (_MIRRORED + 50))

    produce(fixed.source, _FIXED, numbered(50, start=1_000))

    said = fixed.await_stall(_FIXED, StallReason.TARGET_RECREATED)
    (found,) = read_all(fixed.target, renamed).values()
    assert "is not the topic this lane began to write" in said
    assert [rec.key for rec in found] == [b"other"] * (_MIRRORED + 50)


def test_a_target_recreated_while_no_mirror_ran_is_found_at_the_next_start(
    flows: Flows, topic: TopicNames
) -> None:
    seen = flows.seen
    counts = {_mirrored(seen, topic("seen-stopped")): count for count in (0, _MIRRORED + 50)}
    flows.run.close()
    for name, count in counts.items():
        delete_topic(seen.target, seen.renamed(name))
        lasting_topic(seen.target, seen.renamed(name))
        produce(seen.target, seen.renamed(name), [NewRec(key=b"other", value=b"")] * count)
        produce(seen.source, name, numbered(50, start=1_000))

    again = mirror_once(seen.config, program=WITHOUT_SPARK)

    assert again.exit_code == _STALLED_CODE
    for name, count in counts.items():
        seen.await_stall(name, StallReason.TARGET_RECREATED)
        assert end_offsets(seen.target, seen.renamed(name)) == {0: count}
