"""Fifty operations of two fixed seeds; `make soak SEED=... OPS=...` has others, and more of them.

On clusters of one broker each, with drivers whose slots are threads: six brokers and two Sparks are
too much for a test session that shares two cores (both seeds here: 98 s of CPU, on a busy machine).
`bench/results/soak` says what else was played.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign.journal import Journal
from tests.campaign.operations import drawn_plan
from tests.campaign.play import Pace, play
from tests.campaign.world import Size

_SIZE = Size(brokers=1, drivers=2)
_PACE = Pace(pause_s=0.2, quiet_every=25)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [6, 7])
def test_what_was_written_is_mirrored_once_in_order_and_mapped_whatever_happens(
    seed: int, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal.jsonl")

    played = play(drawn_plan(seed, 25, _SIZE), _SIZE, _PACE, tmp_path, journal)
    journal.close()

    assert played.findings == []
    assert played.operations == 25
    assert played.mirrored > 500
