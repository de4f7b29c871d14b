"""Links that hardly carry anything: each record arrives once, and lanes say what they wait for."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.worst_links import LINKS, Link, behind, measure

from heliograph_tools.proxy import TcpProxy

_LATE_ONLY = "waiting: source answer"


@pytest.mark.parametrize("link", LINKS, ids=[link.name for link in LINKS])
def test_nothing_is_lost_or_repeated_over_the_worst_links(link: Link, tmp_path: Path) -> None:
    with TcpProxy() as proxy, behind(proxy, tmp_path) as (way, mirror):
        found = measure(link, 0, proxy, way, mirror)

    assert (found.lost, found.repeated) == (0, 0)
    if link.cut_every_s is not None:
        assert found.link_share is not None
        assert found.link_share > 0.5
        assert found.copied_meanwhile == link.records
    else:
        assert found.shown.get(_LATE_ONLY, 0) > 0
