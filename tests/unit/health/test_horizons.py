"""How long the source keeps what waits, by the settings of its topics."""

from __future__ import annotations

import pytest

from heliograph.broker.view import TopicSetting
from heliograph.health.horizons import Horizon, horizon_of, with_horizon
from heliograph.lag.figures import NEVER
from tests.unit.health.sights import lane


def settings(**values: str) -> dict[str, TopicSetting]:
    return {
        name: TopicSetting(name=name, value=value)
        for name, value in ((key.replace("_", "."), value) for key, value in values.items())
    }


@pytest.mark.parametrize(
    ("policy", "tombstones", "expected"),
    [
        ("delete", "86400000", Horizon()),
        ("compact", "86400000", Horizon(delete_retention_s=86_400)),
        ("compact,delete", "1000", Horizon(delete_retention_s=1)),
        ("", "1000", Horizon()),
        ("compact", "", Horizon()),
    ],
)
def test_what_is_deleted_follows_from_the_policy(
    policy: str, tombstones: str, expected: Horizon
) -> None:
    made = settings(cleanup_policy=policy, delete_retention_ms=tombstones)

    assert horizon_of(made) == expected


def test_what_is_left_counts_from_the_oldest_record_that_waits() -> None:
    behind = lane(state="copying", lag_records=5, lag_s=100.0)

    found = with_horizon(behind, Horizon(delete_retention_s=50))

    assert found.tombstones_s == -50.0


def test_nothing_is_lost_of_a_lane_that_has_nothing_to_copy_and_the_unknown_stays_unknown() -> None:
    idle = with_horizon(lane(), Horizon(delete_retention_s=1))
    unknown = with_horizon(lane(lag_records=5, lag_s=None), Horizon(delete_retention_s=1))
    untold = with_horizon(lane(lag_records=5, lag_s=9.0), None)

    assert idle.tombstones_s == NEVER
    assert (unknown.tombstones_s, untold.tombstones_s) == (None, None)
