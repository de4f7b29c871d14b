"""Options as MirrorMaker 2 has them."""

from __future__ import annotations

import pytest

from heliograph.cli.options import spread


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("run f --clusters B C", "run f --clusters B --clusters C"),
        ("run f --clusters B C --once", "run f --clusters B --clusters C --once"),
        ("run f --clusters B --clusters C", "run f --clusters B --clusters C"),
        ("run f --flow A->B --once", "run f --flow A->B --once"),
        ("run f --clusters", "run f --clusters"),
        ("run f --clusters=B --slots 2", "run f --clusters=B --slots 2"),
    ],
)
def test_clusters_take_all_words_up_to_the_next_option(written: str, read: str) -> None:
    assert spread(written.split(), "--clusters") == read.split()
