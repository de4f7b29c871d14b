"""What the lanes of one flow share."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace
from functools import partial

import pytest

from heliograph.config.transforms import TransformConfig
from heliograph.copy.flow import FetchLimits, Flow, fetch_limits
from heliograph.copy.shuttle import Shuttle
from heliograph.engine.task import make_shuttle
from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias, TopicId, TopicPartition
from tests.kit.fake_cluster import FakeCluster
from tests.unit.config.texts import with_lines
from tests.unit.copy.kit import FakeLedger
from tests.unit.copy.resume_kit import FLOW, SPEC

A = ClusterAlias("A")


def test_fetch_sizes_are_those_the_consumer_was_told() -> None:
    limits = FetchLimits.of(A, {"fetch.max.bytes": "1000", "client.id": "x"})

    assert limits == FetchLimits(bytes_max=1000)


def test_every_fetch_size_that_is_no_number_is_named() -> None:
    consumer = {"fetch.max.bytes": "50MB", "fetch.max.wait.ms": "0", "client.id": "x"}

    with pytest.raises(ConfigError) as caught:
        FetchLimits.of(A, consumer)

    assert caught.value.problems == (
        "A.consumer.fetch.max.bytes: is '50MB', not a whole number above 0",
        "A.consumer.fetch.max.wait.ms: is '0', not a whole number above 0",
    )


def test_every_flow_has_the_fetch_sizes_of_its_own_consumer() -> None:
    config = with_lines(
        "B->A.enabled = true\nA.consumer.fetch.max.bytes = 1000\n"
        "A->B.source.consumer.fetch.max.bytes = 2000\nA->B.consumer.fetch.max.wait.ms = 7\n"
    )

    limits = fetch_limits(config)

    assert {str(flow): found for flow, found in limits.items()} == {
        "A->B": FetchLimits(bytes_max=2000, wait_ms_max=7),
        "B->A": FetchLimits(),
    }


def test_fetch_sizes_travel_to_a_slot_small_and_without_secrets() -> None:
    config = with_lines(
        "A.consumer.fetch.max.bytes = 1000\nA.consumer.interceptor.password = hunter2\n"
    )

    carrier = pickle.dumps(partial(make_shuttle, limits=fetch_limits(config)))

    assert len(carrier) < 1_000
    assert b"hunter2" not in carrier
    assert pickle.loads(carrier).keywords == {"limits": fetch_limits(config)}


def test_a_shuttle_goes_by_what_the_flow_was_told_before_what_its_source_was() -> None:
    config = with_lines(
        "B->A.enabled = true\nA.consumer.fetch.max.bytes = 1000\n"
        "A->B.source.consumer.fetch.max.bytes = 2000\nB.consumer.fetch.max.bytes = 3000\n"
    )
    forth, back = (flow.id for flow in config.flows)

    async def told() -> tuple[FetchLimits, FetchLimits]:
        limits = {forth: fetch_limits(config)[forth]}
        shuttle = Shuttle(config.clusters, limits=limits)
        return shuttle._flow(forth).limits, shuttle._flow(back).limits

    assert asyncio.run(told()) == (FetchLimits(bytes_max=2000), FetchLimits(bytes_max=3000))


def test_a_lane_keeps_what_its_functions_are_at_through_a_pause_and_no_longer_than_it_is_here() -> (
    None
):
    path = "tests.unit.transform.functions:same"
    limits = FetchLimits(transforms=(TransformConfig(name="t", kind="columns", function=path),))
    source, target = FakeCluster("A"), FakeCluster("B")
    flow = Flow(FLOW, source, target, ForgetfulLedger(), limits)  # type: ignore[arg-type]
    made = flow.transform_of(SPEC)

    assert flow.transform_of(replace(SPEC, paused=True, limits=("all",))) is made
    elsewhere = replace(SPEC, target=TopicPartition(topic=SPEC.target.topic, partition=1))
    anew = replace(SPEC, source_topic_id=TopicId("new"))
    others = [flow.transform_of(elsewhere), flow.transform_of(anew)]
    assert made not in others and others[0] is not others[1]
    assert len(flow._transforms) == 1
    flow.drop(SPEC.id)
    assert not flow._transforms
    assert flow.ledger.dropped == [SPEC.id.source]  # type: ignore[attr-defined]


class ForgetfulLedger(FakeLedger):
    def __init__(self) -> None:
        super().__init__()
        self.dropped: list[TopicPartition] = []

    def drop(self, lanes: list[TopicPartition]) -> None:
        self.dropped += lanes
