"""What a lane writes of its map when others write to the target too."""

from __future__ import annotations

from typing import Any

from heliograph.ledger.entries import RunsEntry, StartEntry
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.view import LedgerView
from tests.kit.lane_records import TOPIC, runs, start
from tests.unit.copy.kit import RECORDS, FakeLedger, carried_lane, chunk, running_at, send


class RecordedLedger(FakeLedger):
    """Keeps what is written; whether and when it is durable is the test's to say."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[RunsEntry] = []

    def write_soon(self, entries: list[Any]) -> int:
        self.written += entries
        return super().write_soon(entries)


def folded(*entries: RunsEntry | StartEntry) -> Runs:
    view = LedgerView()
    for entry in entries:
        view.apply(entry)
    record = view.lane(TOPIC, 0)
    assert record is not None
    return record.runs


def test_a_correction_that_is_late_leaves_what_a_successor_wrote() -> None:
    """Others wrote three records before the lane's first batch; behind it a gap is in flight.

    The slot is given up with the correction on its way. Its successor finds the same in the log and
    copies on; then the correction arrives. Were it without end, the successor's gaps would be gone
    and the next resume would copy records again.
    """
    lane, ledger = carried_lane(), RecordedLedger()
    lane.flow.ledger = ledger  # type: ignore[assignment]
    running = running_at(lane)
    lane.enter(running)
    gap = Run(position=RECORDS, source_offset=RECORDS + 1, target_offset=RECORDS)
    lane.enqueue(running, chunk(running), [], 0)
    lane.enqueue(running, chunk(running), [gap], 0)
    first = send(lane)
    lane.in_flight -= 1

    lane.settle(running, first, 3)
    (late,) = ledger.written
    successor = runs((8, 11, 11), (10, 14, 13), end_position=12)
    before = folded(start(), runs((0, 0, 3), (4, 5, 7), end_position=8), successor)
    after = folded(start(), runs((0, 0, 3), (4, 5, 7), end_position=8), successor, late)

    assert late.end_position == 2 * RECORDS
    assert list(after) == list(before)
    assert after.source_offset_at(12) == 16
