"""The runbook of a rolling cut-over is true: its commands, typed in order, print what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.tutorial import ROLLING_CUTOVER, Player


@pytest.mark.timeout(600)
def test_the_commands_of_the_runbook_print_what_the_page_shows(tmp_path: Path) -> None:
    with Player(ROLLING_CUTOVER.read_text(), tmp_path) as player:
        player.play()

        assert not (differences := player.differences()), "\n".join(differences)
