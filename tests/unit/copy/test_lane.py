"""What a lane writes of its map when others write to the target too."""

from __future__ import annotations

from typing import Any

from heliograph.ledger.entries import RunsEntry, StartEntry
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.view import LedgerView
from tests.kit.lane_records import TOPIC, runs, start
from tests.unit.copy.kit import (
    RECORDS,
    FakeLedger,
    OfferedTargets,
    QuietSlot,
    carried_lane,
    chunk,
    running_at,
    send,
)


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


def two_chunks(base_offset: int | None) -> list[RunsEntry]:
    """What a slot writes of the same source: a gap before position 4, then two batches of one
    chunk. `base_offset`: where others left room for the first; None: its batches never landed."""
    lane, ledger = carried_lane(), RecordedLedger()
    lane.flow.ledger = ledger  # type: ignore[assignment]
    running, targets = running_at(lane), OfferedTargets(QuietSlot())
    lane.enter(running)
    targets.enqueue(lane, running, chunk(running))
    running.cursor.next_offset += 1
    at = running.cursor
    gap = Run(position=at.position, source_offset=at.next_offset, target_offset=at.target_offset)
    second = chunk(running, [gap])
    if base_offset is None:
        second.batches += chunk(running).batches
        targets.enqueue(lane, running, second)
        return ledger.written
    targets.enqueue(lane, running, second)
    targets.enqueue(lane, running, chunk(running))
    for _ in range(3):
        batch = send(lane)
        lane.in_flight -= 1
        lane.settle(running, batch, base_offset + batch.position)
    return ledger.written


def test_runs_of_a_stopped_slot_change_nothing_whenever_they_land() -> None:
    """It was stopped with its runs on their way; others wrote ten records, and its successor copied
    the same. Then it goes on, or what it sent arrives: what it predicted was true before."""
    (late,), successor = two_chunks(None), two_chunks(10)
    wanted = [(n + (n >= 4), n + 10) for n in range(12)]

    for place in range(len(successor) + 1):
        found = folded(start(), *successor[:place], late, *successor[place:])
        assert [(found.source_offset_at(n), found.target_offset_at(n)) for n in range(12)] == wanted
