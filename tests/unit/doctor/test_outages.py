"""Outages that could not be made up for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from heliograph.doctor.facts import TopicFacts
from heliograph.doctor.finding import Severity
from heliograph.doctor.outages import longest_outage_s, outage_findings
from heliograph.inspect.flow_status import FlowStatus
from heliograph.ledger.entries import LeaseEntry
from heliograph.ledger.outage_note import OutageNote
from tests.unit.cli.canned import STATUS
from tests.unit.doctor.clusters import broker, by_severity, cluster, topic

DAY_S = 86_400.0
NOW_MS = 10_000_000_000
HOLDER = LeaseEntry(author="a", host="h", pid=1, at_ms=NOW_MS, lease_ms=1, slot_count=1)
LANE = STATUS.flows[0].lanes[0]
NAME = LANE.lane.source.topic


def status(
    lag_s: float | None = 0.0, *, noted_ms: int | None = NOW_MS, driver: bool = True
) -> FlowStatus:
    lane = replace(LANE, lag_s=lag_s, noted_ms=noted_ms)
    return replace(STATUS.flows[0], lanes=(lane,), holder=HOLDER if driver else None, is_known=True)


def found(seen: FlowStatus, settings: dict[str, Any], expiry: str | None = "86400000") -> Any:
    source_topic: TopicFacts = topic(NAME, (0,), **settings)
    own = {} if expiry is None else {"producer.id.expiration.ms": expiry}
    target = cluster(broker(0, settings=own), alias="B")
    source = cluster(broker(0), source_topic)
    return by_severity(outage_findings(source, target, [NAME], seen, NOW_MS))


@pytest.mark.parametrize(
    ("seen", "seconds"),
    [
        (status(30.0), 30.0),
        (status(None), 0.0),
        (status(0.0, noted_ms=NOW_MS - 60_000, driver=False), 60.0),
        (status(90.0, noted_ms=NOW_MS - 60_000, driver=False), 90.0),
        (replace(status(30.0), outage=OutageNote(going_ms=NOW_MS, longest_ms=90_000)), 90.0),
        (replace(status(99.0), outage=OutageNote(going_ms=NOW_MS, longest_ms=90_000)), 99.0),
        (replace(status(), lanes=()), None),
        (replace(status(), is_known=False), None),
    ],
)
def test_the_longest_outage_is_what_waits_or_how_long_no_driver_was_heard(
    seen: FlowStatus, seconds: float | None
) -> None:
    assert longest_outage_s(seen, NOW_MS) == seconds


@pytest.mark.parametrize(
    ("lag_s", "kept", "severity"),
    [
        (2 * DAY_S, "86400000", Severity.PROBLEM),
        (60.0, "3600000", Severity.WARN),
        (60.0, "86400000", None),
    ],
)
def test_tombstones_must_outlast_an_outage(
    lag_s: float, kept: str, severity: Severity | None
) -> None:
    seen = found(status(lag_s), {"cleanup_policy": "compact", "delete_retention_ms": kept})

    assert severity in seen if severity else not seen.keys() & {Severity.PROBLEM, Severity.WARN}


def test_an_outage_of_long_ago_counts_for_tombstones_and_producers() -> None:
    long_ago = OutageNote(going_ms=NOW_MS, longest_ms=int(2 * DAY_S * 1000), longest_until_ms=1)
    kept = {"cleanup_policy": "compact", "delete_retention_ms": "86400000"}

    seen = found(replace(status(), outage=long_ago), kept)

    assert {Severity.PROBLEM, Severity.NOTE} <= seen.keys()
    assert not found(status(), kept).keys() & {Severity.PROBLEM, Severity.NOTE}


@pytest.mark.parametrize(
    ("lag_s", "severity"),
    [(4 * DAY_S, Severity.WARN), (8 * DAY_S, Severity.PROBLEM), (DAY_S / 24, None)],
)
def test_retention_that_overtakes_a_lane_is_told(lag_s: float, severity: Severity | None) -> None:
    seen = found(status(lag_s), {"cleanup_policy": "delete", "retention_ms": "604800000"})

    assert severity in seen if severity else not seen.keys() & {Severity.PROBLEM, Severity.WARN}


@pytest.mark.parametrize(
    ("expiry", "lag_s", "severity"),
    [
        ("60000", 0.0, Severity.WARN),
        ("86400000", 2 * DAY_S, Severity.NOTE),
        ("86400000", 0.0, None),
        (None, 0.0, Severity.UNKNOWN),
    ],
)
def test_how_long_the_target_knows_a_producer_is_told(
    expiry: str | None, lag_s: float, severity: Severity | None
) -> None:
    seen = found(status(lag_s), {"cleanup_policy": "delete", "retention_ms": "-1"}, expiry)

    assert set(seen) == ({severity} if severity else set())
