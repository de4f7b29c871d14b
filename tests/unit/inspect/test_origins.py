from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.config.sections import IDENTITY_POLICY
from heliograph.errors import BrokerUnreachable, MirrorError, NotAuthorised
from heliograph.inspect import origins
from heliograph.model import ClusterAlias, FlowId

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))


def both_ways(tmp_path: Path, prevention: str = "returning") -> MirrorConfig:
    file = tmp_path / "mm2.properties"
    lines = [
        "clusters = A, B",
        "A.bootstrap.servers = 127.0.0.1:1",
        "B.bootstrap.servers = 127.0.0.1:1",
        f"replication.policy.class = {IDENTITY_POLICY}",
        "A->B.enabled = true",
        "B->A.enabled = true",
        f"loop.prevention = {prevention}",
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_config(file)


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (NotAuthorised("READ is missing"), "READ on topic heliograph-ledger.B.internal of A"),
        (BrokerUnreachable("A does not answer"), "what mirrors brought to A is not known"),
    ],
)
def test_a_ledger_that_cannot_be_read_is_named_before_a_lane_needs_it(
    error: MirrorError, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> None:
        raise error

    monkeypatch.setattr(origins, "producers_of_mirrors", refused)

    assert part in asyncio.run(origins.words_on_origins(both_ways(tmp_path), FLOW))


def test_a_flow_that_leaves_nothing_out_asks_for_no_ledger(tmp_path: Path) -> None:
    # Nobody listens there: a look at the cluster would be told.
    assert asyncio.run(origins.words_on_origins(both_ways(tmp_path, "none"), FLOW)) == ""
