"""What state a lane is shown in: what was noted, brought up to date by what can be seen."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.inspect.flow_status import STOPPED
from heliograph.inspect.status import _state
from heliograph.ledger.entries import HeadEntry
from tests.kit.entries import head_entry
from tests.unit.audit.test_plan import GAPPED, location


def noted(state: str) -> HeadEntry:
    return head_entry("orders", records=90, state=state, at_ms=0)


@pytest.mark.parametrize(
    ("state", "lag_records", "carried", "shown"),
    [
        ("idle", 0, True, "idle"),
        ("idle", 7, True, "copying"),
        ("copying", 0, True, "idle"),
        ("idle", None, True, "idle?"),
        ("copying", None, True, "copying?"),
        ("idle", None, False, STOPPED),
        ("stalled: source unreachable", None, True, "stalled: source unreachable"),
        ("waiting: source answer", 3, True, "waiting: source answer"),
        ("waiting: source answer", 0, True, "idle"),
        ("waiting: source answer", None, True, "waiting: source answer?"),
        ("waiting: source answer", 3, False, STOPPED),
        ("paused", 3, True, "copying"),  # resumed since: what pauses it now is a decision
    ],
)
def test_a_state_is_no_more_certain_than_what_is_known(
    state: str, lag_records: int | None, carried: bool, shown: str
) -> None:
    at = location(GAPPED, 90)
    at = replace(at, record=replace(at.record, head=noted(state)))

    assert _state(at, lag_records, carried=carried) == shown
