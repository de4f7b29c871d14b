"""Clocks that differ by more than the answer took."""

from __future__ import annotations

import pytest

from heliograph.doctor.clocks import (
    broker_clock_findings,
    clock_findings,
    executor_clock_findings,
)
from heliograph.doctor.finding import Severity
from heliograph.doctor.place import ClockSeen
from heliograph.model import ClusterAlias

A, B = ClusterAlias("A"), ClusterAlias("B")


def clock(ahead_ms: float | None, error_ms: float = 1, cluster: ClusterAlias = A) -> ClockSeen:
    return ClockSeen(
        cluster=cluster, controller=0, ahead_ms=ahead_ms, error_ms=error_ms, why_not="refused"
    )


@pytest.mark.parametrize(
    ("ahead_ms", "error_ms", "severity", "said"),
    [
        (0.4, 1, Severity.OK, "within 1 ms of the driver"),
        (120, 2, Severity.OK, "120 ms (± 2) ahead of the driver"),
        (-800, 2, Severity.WARN, "800 ms (± 2) behind the driver"),
        # Wide answers prove nothing.
        (800, 700, Severity.OK, "800 ms (± 700) ahead of the driver"),
        (3_600_000, 5, Severity.PROBLEM, "3,600,000 ms (± 5) ahead of the driver"),
    ],
)
def test_only_a_difference_that_is_certain_counts(
    ahead_ms: float, error_ms: float, severity: Severity, said: str
) -> None:
    (found,) = clock_findings("the driver", (clock(ahead_ms, error_ms),))

    assert found.severity is severity
    assert found.what == f"node 0, the active controller, is {said}"


def test_a_clock_that_is_not_told_is_unknown() -> None:
    (found,) = clock_findings("the driver", (clock(None),))

    assert (found.severity, found.what) == (
        Severity.UNKNOWN,
        "its clock is not told to the driver: refused",
    )


def test_an_executor_is_compared_by_the_clock_that_both_have_read() -> None:
    driver = (clock(100, 1), clock(0, 50, B))
    executor = (clock(-2_900, 2), clock(None, 0, B))

    (found,) = executor_clock_findings("e1", driver, executor)

    assert (found.about, found.severity) == ("executor e1", Severity.WARN)
    assert found.what == "is 3,000 ms (± 3) ahead of the driver"


def test_an_executor_without_a_common_clock_is_unknown() -> None:
    (found,) = executor_clock_findings("e1", (clock(None),), (clock(3),))

    assert found.severity is Severity.UNKNOWN


def test_each_broker_of_a_trial_is_judged() -> None:
    found = broker_clock_findings("cluster A", {1: (1.0, 2.0), 0: (90_000.0, 2.0)}, "the driver")

    assert [(each.severity, each.what.split(" is ")[0]) for each in found] == [
        (Severity.PROBLEM, "broker 0"),
        (Severity.OK, "broker 1"),
    ]
