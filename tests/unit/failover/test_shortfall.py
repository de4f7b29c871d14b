"""What a failover says was lost: exact where it begins, a lower bound where it ends."""

from __future__ import annotations

from heliograph.failover.shortfall import find_losses
from heliograph.failover.source_ends import SourceEnds
from heliograph.inspect.lag import PendingRecord
from heliograph.ledger.locations import LaneLocation
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.view import LaneRecord
from heliograph.model import ClusterAlias, FlowId, LaneId, TopicName, TopicPartition
from tests.kit.entries import head_entry

FLOW = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
SOURCE = TopicPartition(topic=TopicName("orders"), partition=0)
TARGET = TopicPartition(topic=TopicName("A.orders"), partition=0)
SILENT = SourceEnds(at_ms=9_000, problem="cluster A: no broker answers")


def location(*, next_offset: int, noted_end: int | None = None) -> LaneLocation:
    head = None
    if noted_end is not None:
        head = head_entry(
            SOURCE.topic,
            records=50,
            source_next_offset=min(next_offset, noted_end),
            source_end_offset=noted_end,
            at_ms=5_000,
            state="copying",
        )
    runs = Runs([Run(position=0, source_offset=0, target_offset=0)])
    return LaneLocation(
        lane=LaneId(flow=FLOW, source=SOURCE),
        target=TARGET,
        record=LaneRecord(head=head, runs=runs, losses=(), starts=()),
        position=next_offset,
        exact=True,
        source_next_offset=next_offset,
        target_next_offset=next_offset,
        foreign_records=0,
    )


def test_of_a_silent_source_the_ledgers_last_word_counts_and_its_age_is_told() -> None:
    (loss,) = find_losses([location(next_offset=100, noted_end=130)], SILENT)

    assert (loss.first_missing_offset, loss.known_end_offset) == (100, 130)
    assert loss.records_min == 30
    assert loss.known_at_ms == 5_000
    assert not loss.source_told


def test_a_lane_past_the_ledgers_last_word_has_no_known_loss() -> None:
    (loss,) = find_losses([location(next_offset=200, noted_end=130)], SILENT)

    assert loss.first_missing_offset == loss.known_end_offset == 200
    assert loss.records_min == 0


def test_a_lane_of_which_nobody_ever_noted_an_end_says_so() -> None:
    (loss,) = find_losses([location(next_offset=7)], SILENT)

    assert (loss.records_min, loss.known_at_ms) == (0, None)


def test_a_source_that_answers_is_believed_over_the_ledger() -> None:
    seen = SourceEnds(
        at_ms=9_000,
        ends={SOURCE: 150},
        waiting={SOURCE: PendingRecord(offset=110, timestamp_ms=8_000)},
    )

    (loss,) = find_losses([location(next_offset=100, noted_end=130)], seen)

    assert (loss.first_missing_offset, loss.known_end_offset) == (110, 150)
    assert (loss.known_at_ms, loss.oldest_ms) == (9_000, 8_000)
    assert loss.source_told


def test_markers_and_aborted_records_at_the_end_are_no_loss() -> None:
    seen = SourceEnds(
        at_ms=9_000,
        ends={SOURCE: 103},
        waiting={SOURCE: PendingRecord(offset=103, timestamp_ms=None)},
    )

    (loss,) = find_losses([location(next_offset=100, noted_end=100)], seen)

    assert loss.records_min == 0
