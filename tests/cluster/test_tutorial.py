"""Pages that are played: their commands, typed in order, print what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.tutorial import MIRRORMAKER_1, TUTORIAL, Player


@pytest.mark.timeout(600)  # about 40 s; on a machine full of other work Spark alone took 85
def test_the_commands_of_the_tutorial_print_what_the_page_shows(tmp_path: Path) -> None:
    with Player(TUTORIAL.read_text(), tmp_path) as player:
        player.play()

        assert not (differences := player.differences()), "\n".join(differences)


def test_what_the_guide_from_mirrormaker_1_types_prints_what_it_shows(tmp_path: Path) -> None:
    with Player(MIRRORMAKER_1.read_text(), tmp_path) as player:
        player.play()

        assert player.actual
        assert not (differences := player.differences()), "\n".join(differences)
