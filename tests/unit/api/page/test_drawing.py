"""Lines and arrows, as numbers."""

from __future__ import annotations

from heliograph.api.page.drawing import CLUSTERS_MAX, SPARK_WIDTH, drawing, spark
from heliograph.lag.history import LaneHistory, Sample


def history(*lags: int | None) -> LaneHistory:
    samples = tuple(Sample(5.0 * number, 0, lag, None) for number, lag in enumerate(lags))
    return LaneHistory(samples=samples, moved_s=0.0)


def test_a_line_ends_now_and_is_broken_where_the_lag_was_not_known() -> None:
    found = spark(history(10, 20, None, 5, 0))

    assert found is not None
    assert len(found.paths) == 2
    assert found.paths[-1].endswith(f"{SPARK_WIDTH}.0,21.0")
    assert found.told == "lag over the last 20 s: from 10 to 0 records, at most 20"


def test_what_was_never_known_is_no_line_at_zero() -> None:
    found = spark(history(None, None, None))

    assert found is not None
    assert found.paths == ()
    assert "unknown" in found.told
    assert spark(history(3)) is None
    assert spark(None) is None


def test_there_and_back_are_two_arrows_and_too_many_clusters_are_a_list() -> None:
    both = drawing([("A", "B"), ("B", "A")])
    star = drawing([("hub", f"edge-{number}") for number in range(CLUSTERS_MAX)])

    assert both is not None
    assert [node.label for node in both.nodes] == ["A", "B"]
    assert both.arrows[0].y != both.arrows[1].y
    assert star is None
