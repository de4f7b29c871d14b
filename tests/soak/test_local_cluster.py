"""Slots on `local-cluster`: executors are processes of their own, and one is killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark import SparkContext

from heliograph.config.schema import EngineConfig
from heliograph.engine.probe import missing_imports
from heliograph.engine.session import verify_executors
from heliograph.errors import EngineError
from heliograph.model import SlotId
from tests.spark.kit import (
    engine,
    executor_of,
    kill,
    running_session,
    running_slots,
    wait_moving,
    wait_replaced,
    wait_running,
)
from tests.unit.engine.lanes import lane

S0, S1 = SlotId(0), SlotId(1)


@pytest.fixture(scope="module")
def config() -> EngineConfig:
    # One slot per executor, so that killing one executor must leave the other slot alone.
    return engine("local-cluster[2,1,1024]").model_copy(update={"slot_cpus": 1.0})


@pytest.fixture(scope="module")
def session(config: EngineConfig) -> Iterator[SparkContext]:
    with running_session(config) as session:
        yield session


def test_a_killed_executor_costs_only_its_own_slot(
    session: SparkContext, config: EngineConfig
) -> None:
    with running_slots(session, config) as slots:
        slots.apply({S0: (lane(0),), S1: (lane(1),)})
        before = wait_running(slots)
        wait_moving(slots, lane(0).id, lane(1).id)

        kill(executor_of(before[1].pid).pid)

        after = wait_replaced(slots, 1)
        wait_moving(slots, lane(0).id, lane(1).id)
        assert (after[0].attempt, after[0].pid) == (before[0].attempt, before[0].pid)
        assert after[1].generation > before[1].generation


def test_the_package_reaches_executors_by_itself(session: SparkContext) -> None:

    answers = (
        session.parallelize([0], 1)
        .mapPartitions(lambda rows: missing_imports(("heliograph",), rows))
        .collect()
    )

    assert "heliograph.zip" in answers[0][2]


def test_what_executors_lack_is_named_in_one_sentence(session: SparkContext) -> None:
    with pytest.raises(
        EngineError, match="lacks no_such_module, no_other: install what is"
    ) as told:
        verify_executors(session, ("pydantic", "no_such_module", "no_other"))

    assert "\n" not in str(told.value)
