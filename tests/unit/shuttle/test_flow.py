"""What the lanes of one flow share."""

from __future__ import annotations

import pytest

from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias
from heliograph.shuttle.flow import FetchLimits

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
