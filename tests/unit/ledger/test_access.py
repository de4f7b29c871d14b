"""A request that has no end is an error that says which cluster or ledger it waited for."""

from __future__ import annotations

import asyncio

import pytest

from heliograph.errors import BrokerUnreachable
from heliograph.ledger.access import within


def test_an_answer_in_time_is_given() -> None:
    assert asyncio.run(within(asyncio.sleep(0, "answer"), 10.0, "cluster A")) == "answer"


def test_no_answer_in_time_is_a_cluster_that_cannot_be_reached() -> None:
    with pytest.raises(BrokerUnreachable) as refused:
        asyncio.run(within(asyncio.sleep(60), 0.05, "cluster A"))

    assert str(refused.value) == "cluster A: no answer in 0.05 s"
