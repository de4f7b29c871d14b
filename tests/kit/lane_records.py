"""What a ledger says of one lane, `orders-0`, built entry by entry."""

from __future__ import annotations

from typing import Any

from heliograph.ledger.entries import HeadEntry, RunsEntry, StartEntry, new_author
from heliograph.ledger.runs import Run
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import TopicName
from tests.kit.entries import head_entry, start_entry

TOPIC = TopicName("orders")


def start(position: int = 0, source: int = 0, target: int = 0, **changed: Any) -> StartEntry:
    return start_entry(
        TOPIC, position=position, source_offset=source, target_offset=target, **changed
    )


def runs(*of: tuple[int, int, int], end_position: int | None = None) -> RunsEntry:
    """Of position, source offset and target offset."""
    made = tuple(
        Run(position=position, source_offset=source, target_offset=target)
        for position, source, target in of
    )
    return RunsEntry(
        topic=TOPIC, partition=0, author=new_author(), runs=made, end_position=end_position
    )


def head(position: int, source_next: int, target_next: int | None = None) -> HeadEntry:
    return head_entry(
        TOPIC,
        records=position,
        source_next_offset=source_next,
        source_end_offset=source_next,
        target_next_offset=position if target_next is None else target_next,
    )


def lane_record(*entries: StartEntry | RunsEntry | HeadEntry) -> LaneRecord:
    """As whoever reads these entries in this order has it."""
    view = LedgerView()
    for entry in entries:
        view.apply(entry)
    found = view.lane(TOPIC, 0)
    assert found is not None
    return found
