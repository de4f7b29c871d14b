"""What is proposed, in words, as properties and as a picture."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from heliograph.config.schema import ClusterConfig, EngineConfig, FlowConfig, MirrorConfig
from heliograph.model import ClusterAlias, TopicName
from heliograph.topics.filters import topic_filter
from heliograph.topics.naming import naming_policy
from heliograph.tune.advice import bars, picture, proposal, sentences
from heliograph.tune.command import TuneReport, default_slots
from heliograph.tune.scratch import Scratch, scratch_config
from tests.unit.cli.canned import AB, TUNED


def config(**engine: Any) -> MirrorConfig:
    return MirrorConfig(
        clusters={
            name: ClusterConfig(alias=name, bootstrap_servers=("127.0.0.1:1",))
            for name in (ClusterAlias("A"), ClusterAlias("B"))
        },
        pairs=(FlowConfig(id=AB, enabled=True, tasks_max=1),),
        engine=EngineConfig(**engine),
    )


def settings(report: TuneReport, made: MirrorConfig) -> list[str]:
    return [line for line in proposal(report, made).splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ({}, ["slots.max = 2", "A->B.tasks.max = 2"]),
        ({"slots": 8}, ["slots = 2", "A->B.tasks.max = 2"]),
        ({"slots_max": 2}, ["A->B.tasks.max = 2"]),
    ],
)
def test_only_what_should_be_otherwise_is_proposed(
    engine: dict[str, Any], expected: list[str]
) -> None:
    assert settings(TUNED, config(**engine)) == expected


def test_what_was_measured_stands_above_the_proposal() -> None:
    text = proposal(TUNED, config())

    assert text.startswith("# heliograph tune, ")
    assert "#      2     180.0" in text
    assert "# more than 2 slots do not help" in text
    assert "# head-room at the peak: 10.0 times as much could be copied" in text
    assert "# an hour without a mirror at the peak is made up for in 7 min" in text


def test_one_slot_one_hour_and_some_seconds_are_told_as_people_say_them() -> None:
    assert TUNED.peak is not None
    small = replace(TUNED.peak, bytes_per_s=1e6, hours=1)
    slower = replace(TUNED.steps[0], slots=2)

    told = list(sentences(replace(TUNED, steps=(TUNED.steps[0], slower), peak=small)))

    assert told[0] == "more than 1 slot does not help"
    assert told[1].startswith("the busiest of the last hour began at ")
    assert told[-1] == "an hour without a mirror at the peak is made up for in 37 s"


def test_one_step_says_nothing_about_more_slots_and_proposes_nothing() -> None:
    alone = replace(TUNED, steps=TUNED.steps[:1])

    assert next(sentences(alone)) == "tried with 1 slot only: whether more help is not known"
    assert settings(alone, config(slots=8)) == []


def test_a_flow_that_cannot_keep_up_with_its_peak_is_told_so() -> None:
    assert TUNED.peak is not None
    beyond = replace(TUNED, peak=replace(TUNED.peak, bytes_per_s=200e6))

    assert list(sentences(beyond))[-1] == "at the peak the flow would fall behind for good"
    assert (beyond.headroom, beyond.catch_up_s) == (0.9, None)


def test_without_a_load_test_nothing_is_proposed_and_the_peak_is_told() -> None:
    bare = replace(TUNED, steps=(), load="")

    (told,) = sentences(bare)

    assert settings(bare, config()) == []
    assert told.startswith("the busiest of the last 72 hours began at 2027-01-03T")
    assert bare.headroom is None


def test_the_charts_have_every_step() -> None:
    shown = "".join(ElementTree.fromstring(picture(TUNED)).itertext())

    assert all(f"{n} slot" in shown for n in (1, 2, 4))
    assert "peak 18 MB/s" in shown
    assert [line.count("█") for line in bars(TUNED.steps)] == [20, 36, 40]


@pytest.mark.parametrize(
    ("master", "expected"), [("local[4]", (1, 2, 4)), ("local", (1,)), ("local[2,3]", (1, 2))]
)
def test_slots_to_try_follow_the_cores_of_the_master(
    master: str, expected: tuple[int, ...]
) -> None:
    assert default_slots(config(master=master)) == expected
    assert default_slots(config(master="spark://there:7077"))[-1] == 32


def test_the_flow_of_a_test_is_another_than_the_users_and_copies_the_scratch_topic_alone() -> None:
    scratch = Scratch(flow=AB, id="ab")

    made = scratch_config(config(slots=9), scratch, [scratch.topic], 2)

    (flow,) = made.flows
    assert (str(flow.id), made.engine.slots) == ("heliograph-tune-ab-2->B", 2)
    mirrors = topic_filter(flow).should_mirror
    assert [mirrors(name) for name in (scratch.topic, TopicName("orders"))] == [True, False]
    copy = naming_policy(flow).target_topic(scratch.topic)
    assert copy in scratch.on_target([2], [scratch.topic])
    everything = topic_filter(FlowConfig(id=AB, enabled=True)).should_mirror
    assert not everything(scratch.topic), "the user's own flow leaves it out"
