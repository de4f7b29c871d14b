"""Listeners that are not reached, and what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from heliograph.doctor.finding import Severity
from heliograph.doctor.listeners import listener_findings
from heliograph.doctor.place import Listener, ListenerSeen, PlaceSeen
from heliograph.model import ClusterAlias

A, B = ClusterAlias("A"), ClusterAlias("B")


def seen(broker: int, cluster: ClusterAlias = A, **fields: Any) -> ListenerSeen:
    at = Listener(cluster=cluster, broker=broker, host=f"b{broker}", port=9092)
    return ListenerSeen(listener=at, **fields)


def place(*listeners: ListenerSeen) -> PlaceSeen:
    return PlaceSeen(host="here", at_ms=0, listeners=listeners, clocks=(), kernel={})


@pytest.mark.parametrize(
    ("error", "is_resolved", "fix"),
    [
        ("its host is not known here", False, "make b1 resolvable there"),
        ("credentials refused", True, "check user and mechanism"),
        ("certificate verify failed", True, "check ssl.truststore"),
        ("Connect call failed", True, "open b1:9092 from there"),
    ],
)
def test_a_listener_that_is_not_reached_says_what_to_do(
    error: str, is_resolved: bool, fix: str
) -> None:
    here = place(seen(0, round_trip_s=0.001), seen(1, error=error, is_resolved=is_resolved))

    problem, fine = listener_findings("executor e1", here, A)

    assert problem.severity is Severity.PROBLEM
    assert problem.what == f"broker 1 at b1:9092 is not reached from executor e1: {error}"
    assert problem.fix.startswith(fix)
    assert fine.what == "1 of 2 listeners reached from executor e1, round trip 1.0 ms"


def test_clusters_are_told_apart() -> None:
    here = place(seen(0, round_trip_s=0.001), seen(0, B, error="refused"))

    (found,) = listener_findings("the driver", here, A)

    assert found.severity is Severity.OK


def test_the_round_trip_is_that_to_the_nearest_broker() -> None:
    here = place(seen(0, round_trip_s=0.2), seen(1, round_trip_s=0.1), seen(2, error="refused"))

    assert here.round_trip_s(A) == 0.1
    assert here.round_trip_s(B) is None
