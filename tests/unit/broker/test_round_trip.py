"""How far away a broker is."""

from __future__ import annotations

import pytest

from heliograph.broker import round_trip
from heliograph.broker.round_trip import RoundTrip


def test_the_shortest_answer_counts_and_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(round_trip, "monotonic_s", lambda: now_s)
    found = RoundTrip()
    seen = [found.is_far]
    for at_s, heard_s in ((0, 0.3), (1, 0.001), (2, 0.2), (700, 0.2), (1_400, 0.2)):
        now_s = at_s
        found.heard(heard_s)
        seen.append(found.is_far)

    assert seen == [False, True, False, False, False, True]
    assert found.seconds == 0.2
