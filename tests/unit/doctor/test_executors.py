"""Looks of many tasks, by machine."""

from __future__ import annotations

from heliograph.doctor.executors import by_machine
from heliograph.doctor.place import Listener, ListenerSeen, PlaceSeen
from heliograph.model import ClusterAlias


def look(host: str, error: str = "") -> PlaceSeen:
    at = Listener(cluster=ClusterAlias("A"), broker=0, host="b0", port=1)
    return PlaceSeen(
        host=host,
        at_ms=0,
        listeners=(ListenerSeen(listener=at, error=error),),
        clocks=(),
        kernel={},
    )


def test_of_each_machine_the_look_that_failed_most_counts() -> None:
    found = by_machine([look("b"), look("a"), look("b", "refused"), look("b")])

    assert [(each.host, each.listeners[0].error) for each in found] == [("a", ""), ("b", "refused")]
