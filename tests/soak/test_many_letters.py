"""Ten thousand records that the target does not take are letters in seconds, not in hours."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.letters import measure


@pytest.mark.timeout(900)
def test_ten_thousand_records_that_are_too_large_are_letters_within_two_minutes(
    tmp_path: Path,
) -> None:
    found = measure(10_000, 10_000, tmp_path)

    assert found.problems == []
    assert found.seconds < 120
    assert found.seconds - found.half_s < 4 * found.half_s, "quadratic"
