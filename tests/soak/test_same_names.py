"""Clusters that all take writes under one name, for minutes, while their mirrors are killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.same_names import hunt, write
from bench.same_names_found import SCENES

from tests.crash.stage import SEED

_SECONDS = 180.0


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCENES)
def test_whatever_mirrors_die_each_record_is_once_everywhere_and_groups_skip_none(
    name: str, tmp_path: Path
) -> None:
    found = hunt(SCENES[name], seconds=_SECONDS, seed=SEED, folder=tmp_path)
    write(found, tmp_path)

    assert found.problems == []
    assert found.kills_while_copying > 0
    assert found.records > 10_000
