from __future__ import annotations

import json
from datetime import UTC, datetime

from heliograph.ledger.entries import LossEntry, MemoEntry
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, OffsetRange, StallReason, TopicName
from heliograph.pipeline import tables

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
AT = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_loss_is_a_row_of_both_its_tables() -> None:
    view = LedgerView()
    view.apply(
        LossEntry(
            topic=TopicName("orders"),
            partition=1,
            position=40,
            lost=OffsetRange(start=50, end=53),
            reason=next(iter(StallReason)),
            at_ms=int(AT.timestamp() * 1000),
        )
    )
    view.apply(MemoEntry(subject="note", text="{}"))

    (loss,) = tables._losses(FLOW, view)
    entry, memo = tables._entries(FLOW, view)

    assert loss[:6] == ("A->B", "orders", 1, 40, 50, 53) and loss[-1] == AT
    assert entry[:6] == ("A->B", "orders", 1, "loss", 40, AT)
    assert json.loads(entry[6])["lost"] == {"start": 50, "end": 53}
    assert memo[3] == "memo" and json.loads(memo[6]) == {"subject": "note", "text": "{}"}
