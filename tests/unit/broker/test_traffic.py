from __future__ import annotations

from heliograph.broker.traffic import Traffic
from heliograph.model import ClusterAlias


def test_requests_are_counted_by_what_became_of_them() -> None:
    traffic = Traffic()
    for _ in range(3):
        traffic.departed()
    traffic.answered(100, 0.002, 5)
    traffic.lost()

    found = traffic.figures(ClusterAlias("A"), "from")

    assert (found.requests, found.failed, found.requests_in_flight) == (2, 1, 1)
    assert (found.bytes, found.answer_ms, found.throttle_ms) == (100, 2, 5)


def test_what_was_largest_is_that_since_the_last_report() -> None:
    traffic = Traffic()
    for size in (300, 100):
        traffic.departed()
        traffic.answered(size, 0.01, 0)

    first, second = (traffic.figures(ClusterAlias("A"), "to") for _ in range(2))

    assert (first.request_bytes_max, first.answer_ms_max) == (300, 10)
    assert (second.request_bytes_max, second.answer_ms_max) == (0, 0)
    assert first.bytes == second.bytes == 400
