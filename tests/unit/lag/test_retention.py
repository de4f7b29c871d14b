from __future__ import annotations

from typing import Any

import pytest

from heliograph.lag.figures import NEVER
from heliograph.lag.history import Rates
from heliograph.lag.retention import Retention, overrun, retention_of

NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000
STANDING = Rates(acknowledged=0.0, written=10.0, oldest=0.0)


def overrun_of(retention: Retention | None, **more: Any) -> tuple[float | None, str]:
    known: dict[str, Any] = {
        "lag_records": 1_000,
        "lag_bytes": 100_000,
        "record_bytes": 100.0,
        "margin_records": 500,
        "oldest_ms": NOW_MS - HOUR_MS // 2,
        "rates": STANDING,
        "now_ms": NOW_MS,
    }
    return overrun(retention, **{**known, **more})


@pytest.mark.parametrize("policy", ["", "compact", " compact "])
def test_a_topic_that_does_not_delete_is_never_overrun(policy: str) -> None:
    settings = {"cleanup.policy": policy, "retention.ms": "1", "retention.bytes": "1"}

    assert retention_of(settings) == Retention()
    assert overrun_of(retention_of(settings)) == (NEVER, "")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {"cleanup.policy": "delete", "retention.ms": "5", "retention.bytes": "-1"},
            Retention(ms=5),
        ),
        (
            {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "7"},
            Retention(bytes=7),
        ),
        ({"cleanup.policy": "delete", "retention.ms": "5"}, None),
        ({"cleanup.policy": "delete", "retention.ms": "x", "retention.bytes": "-1"}, None),
        ({}, None),
    ],
)
def test_retention_is_what_the_settings_say_or_unknown(
    settings: dict[str, str], expected: Retention | None
) -> None:
    assert retention_of(settings) == expected


def test_a_lane_that_stands_is_overrun_when_its_oldest_record_is_too_old() -> None:
    found = overrun_of(Retention(ms=HOUR_MS))

    assert found == (1_800.0, "retention.ms")


def test_a_lane_that_moves_at_half_the_pace_of_time_has_twice_as_long() -> None:
    rates = Rates(acknowledged=5.0, written=10.0, oldest=0.5)

    assert overrun_of(Retention(ms=HOUR_MS), rates=rates) == (3_600.0, "retention.ms")


def test_a_lane_that_keeps_pace_is_never_overrun() -> None:
    rates = Rates(acknowledged=20.0, written=10.0, oldest=1.0)

    assert overrun_of(Retention(ms=HOUR_MS, bytes=10**9), rates=rates) == (NEVER, "")


def test_bytes_are_overrun_at_the_rate_the_lag_grows() -> None:
    found = overrun_of(Retention(bytes=200_000))

    assert found == (100.0, "retention.bytes")


def test_of_two_limits_the_first_counts() -> None:
    assert overrun_of(Retention(ms=HOUR_MS, bytes=200_000)) == (100.0, "retention.bytes")
    assert overrun_of(Retention(ms=HOUR_MS, bytes=10**12)) == (1_800.0, "retention.ms")


def test_what_is_older_than_retention_may_go_at_any_moment() -> None:
    assert overrun_of(Retention(ms=1)) == (0.0, "retention.ms")


def test_what_is_gone_already_is_overrun_whatever_the_settings_say() -> None:
    assert overrun_of(None, margin_records=-1) == (0.0, "log start")


def test_a_lane_without_lag_is_never_overrun() -> None:
    assert overrun_of(None, lag_records=0) == (NEVER, "")


@pytest.mark.parametrize(
    ("retention", "more"),
    [
        (None, {}),
        (Retention(ms=HOUR_MS), {"oldest_ms": None}),
        (Retention(ms=HOUR_MS), {"rates": Rates()}),
        (Retention(bytes=10), {"lag_bytes": None}),
        (Retention(bytes=10**9), {"rates": Rates(acknowledged=1.0)}),
    ],
)
def test_what_cannot_be_told_is_unknown_and_never_never(
    retention: Retention | None, more: dict[str, Any]
) -> None:
    assert overrun_of(retention, **more) == (None, "")


def test_a_limit_that_is_known_is_told_though_the_other_is_not() -> None:
    found = overrun_of(Retention(ms=HOUR_MS, bytes=10), lag_bytes=None)

    assert found == (1_800.0, "retention.ms")


def test_a_limit_that_is_unknown_is_not_hidden_by_one_that_is_never() -> None:
    away = Rates(acknowledged=20.0, written=10.0, oldest=0.0)

    assert overrun_of(Retention(ms=HOUR_MS, bytes=10**9), oldest_ms=None, rates=away) == (None, "")
