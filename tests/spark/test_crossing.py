"""Everything that crosses to Spark pickles, and keeps its secrets to itself on the way."""

from __future__ import annotations

import pickle
from functools import partial

import pytest
from pyspark import cloudpickle

from heliograph.engine.probe import REQUIRED, missing_imports
from heliograph.engine.session import _with_retries
from heliograph.engine.task import Outcome, SlotOrder, SlotResult, carry_slot, make_shuttle
from heliograph.errors import EngineError, LinkError
from heliograph.model import SlotId
from tests.unit.engine.lanes import progress

ORDER = SlotOrder(
    slot=SlotId(1),
    generation=2,
    host="127.0.0.1",
    port=1,
    token=b"not to be seen",
    lease_s=30.0,
    bytes_max=1,
    clusters={},
    carrier=make_shuttle,
)


@pytest.mark.parametrize(
    "value",
    [
        ORDER,
        SlotResult(
            slot=SlotId(0), generation=1, outcome=Outcome.FAILED, detail="x", lanes=(progress(1),)
        ),
        EngineError("x").args,
        LinkError("x").args,
    ],
)
def test_values_that_cross_pickle(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value


@pytest.mark.parametrize(
    "function", [partial(carry_slot, ORDER), partial(missing_imports, REQUIRED)]
)
def test_functions_that_cross_go_by_name_and_stay_small(function: partial[object]) -> None:
    pickled = cloudpickle.dumps(function)

    assert len(pickled) < 1_000
    assert cloudpickle.loads(pickled).func is function.func


def test_an_order_does_not_show_its_token() -> None:
    assert "not to be seen" not in repr(ORDER)


@pytest.mark.parametrize(
    ("asked", "used"),
    [
        ("local", "local[1,1000000]"),
        ("local[*]", "local[*,1000000]"),
        ("local[3]", "local[3,1000000]"),
        ("local[3,2]", "local[3,2]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://host:7077", "spark://host:7077"),
    ],
)
def test_local_masters_retry_tasks_for_ever(asked: str, used: str) -> None:
    assert _with_retries(asked, 1_000_000) == used
