"""What a flow that carries a failback must be, before anything is looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.config.sections import IDENTITY_POLICY
from heliograph.errors import ConfigError
from heliograph.failback.command import _require_way_back
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId
from tests.unit.config.texts import with_lines

THERE = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
BACK = FlowId(source=ClusterAlias("B"), target=ClusterAlias("A"))


def context(lines: str) -> Any:
    made = with_lines(
        f"replication.policy.class = {IDENTITY_POLICY}\nB->A.enabled = true\n"
        f"A.provenance.id = cluster-a-0000\n{lines}"
    )
    ledger = SimpleNamespace(store=SimpleNamespace(view=LedgerView()))
    pair = SimpleNamespace(flow=made.flow(THERE), ledger=ledger)
    return SimpleNamespace(is_renaming=False, back_flow=made.flow(BACK), back=BACK, pair=pair)


def test_one_that_leaves_out_by_header_what_the_old_primary_may_have_lost_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"provenance\.drop leaves out what A may have lost"):
        _require_way_back(context("B->A.provenance.drop = h\n"))


def test_one_that_drops_nothing_by_header_may_carry_it() -> None:
    _require_way_back(context(""))
