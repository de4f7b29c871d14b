"""How a group on the target compares with where it stands on the source."""

from __future__ import annotations

import pytest

from heliograph.broker.group_view import GroupOffset
from heliograph.inspect.groups import Verdict, verdict_of
from heliograph.ledger.translate import Clamped, Exact, Translated


@pytest.mark.parametrize(
    ("translated", "committed", "verdict"),
    [
        (Exact(offset=10), 10, Verdict.IN_STEP),
        (Exact(offset=10), 9, Verdict.BEHIND),
        (Exact(offset=10), 11, Verdict.AHEAD),
        (Clamped(offset=10, side="coarse"), 11, Verdict.COARSE),
        (Clamped(offset=10, side="coarse"), 9, Verdict.BEHIND),
        (Clamped(offset=10, side="after"), 11, Verdict.AHEAD),
        (None, 10, Verdict.NOT_TRANSLATABLE),
    ],
)
def test_a_verdict_says_what_is_known(
    translated: Translated | None, committed: int, verdict: Verdict
) -> None:
    stands = GroupOffset(offset=committed)

    assert verdict_of(translated, stands, is_active=False, writes_offsets=True) is verdict
