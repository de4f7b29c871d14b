"""Where a lane stands, for every state a log and a ledger may be in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from heliograph.ledger.entries import HeadEntry, RunsEntry, StartEntry
from heliograph.ledger.locate import (
    AheadOfEnd,
    Anchor,
    At,
    Located,
    LogState,
    NeedsScan,
    NothingLeft,
    RecordsMissing,
    Scan,
    TargetRecreated,
    Truncated,
    Unexplained,
    anchor_of,
    if_lasting,
    is_other_topic,
    locate,
    source_next_offset,
)
from heliograph.ledger.runs import Run
from heliograph.ledger.view import LaneRecord
from heliograph.model import TopicId
from heliograph.wire.batch import SEQUENCES, BatchHeader, parse_header
from tests.kit.batches import Record, batch_of
from tests.kit.lane_records import head, lane_record, runs, start

OLD, NEW = TopicId("old"), TopicId("new")


def log(end: int, last_sequence: int = -1, first: int = 0) -> LogState:
    return LogState(start=first, end=end, last_sequence=last_sequence)


def at(position: int) -> At:
    return At(position=position)


def needs(position: int, target: int, known: int | None) -> NeedsScan:
    return NeedsScan(anchor=Anchor(position=position, target_offset=target), position=known)


@pytest.mark.parametrize(
    ("entries", "seen", "expected"),
    [
        pytest.param([start()], log(0), at(0), id="nothing copied yet"),
        pytest.param([start()], log(100, 99), at(100), id="the producer's last sequence"),
        pytest.param([start(), head(90, 90)], log(100, 99), at(100), id="further than the head"),
        pytest.param([start(), head(90, 90)], log(80, 79), at(80), id="the log lost its end"),
        pytest.param(
            [start(target=57), head(0, 0, 57)],
            log(57, SEQUENCES - 1),
            at(0),
            id="only filler is there",
        ),
        pytest.param(
            [start(target=57)], log(60, SEQUENCES - 1), needs(0, 57, None), id="filler and others"
        ),
        pytest.param(
            [start(), head(SEQUENCES, SEQUENCES)],
            log(SEQUENCES + 5, 4),
            at(SEQUENCES + 5),
            id="sequences began again",
        ),
        pytest.param([start()], log(103, 99), needs(0, 0, 100), id="others wrote behind ours"),
        pytest.param(
            [start(), head(90, 90)], log(103, 99), needs(90, 90, 100), id="others since the head"
        ),
        pytest.param([start()], log(98, 99), AheadOfEnd(position=100), id="above the watermark"),
        pytest.param(
            [start(), head(90, 90)], log(90), at(90), id="forgotten, nothing since the head"
        ),
        pytest.param(
            [start(), head(90, 90)], log(95), needs(90, 90, None), id="forgotten, more than noted"
        ),
        pytest.param(
            [start(), head(90, 90)],
            log(80),
            Truncated(anchor=Anchor(position=90, target_offset=90)),
            id="forgotten, less than acknowledged",
        ),
        pytest.param(
            [start(position=50, source=50, target=50)],
            log(60, 9),
            Unexplained(position=10),
            id="a position before the first run",
        ),
        pytest.param(
            [start(), runs((40, 40, 60)), runs((60, 60, 70)), head(90, 90, 100)],
            log(100, 89),
            needs(40, 50, 90),
            id="two runs claim the same offsets, before the head",
        ),
        pytest.param(
            [start(), runs((40, 40, 60)), runs((60, 60, 70)), head(90, 90, 100)],
            log(100),
            needs(40, 50, None),
            id="the same, and the producer is forgotten",
        ),
        pytest.param(
            [start(), head(90, 90), runs((95, 95, 99)), runs((97, 97, 97))],
            log(90, 89),
            at(90),
            id="an overlap among runs written ahead",
        ),
    ],
)
def test_a_lane_stands_where_log_and_ledger_agree(
    entries: Sequence[StartEntry | RunsEntry | HeadEntry], seen: LogState, expected: Located
) -> None:
    assert locate(lane_record(*entries), seen) == expected


def test_nothing_is_read_off_the_log_of_another_topic() -> None:
    lane = lane_record(start(target_topic_id=OLD), head(7, 9))

    assert locate(lane, log(3, 2), target_topic_id=NEW) == TargetRecreated(position=7)
    assert locate(lane, log(7, 6), target_topic_id=OLD) == at(7)


def test_an_id_that_is_not_known_says_nothing() -> None:
    assert not is_other_topic(None, NEW)
    assert not is_other_topic(OLD, None)
    assert not is_other_topic(OLD, OLD)
    assert is_other_topic(OLD, NEW)


def test_the_anchor_is_the_head_unless_the_lane_started_again_since() -> None:
    noted = lane_record(start(), head(10, 12, 11))
    again = lane_record(start(), head(10, 12, 11), start(position=20, source=5, target=23))

    assert anchor_of(noted) == Anchor(position=10, target_offset=11)
    assert anchor_of(again) == Anchor(position=20, target_offset=23)


def test_what_was_dropped_since_the_last_record_counts_as_read() -> None:
    noted = lane_record(start(), head(10, 12))

    assert source_next_offset(noted, 10) == 12
    assert source_next_offset(noted, 9) == 9


def own_batch(first_position: int, count: int, base_offset: int) -> BatchHeader:
    records = [Record(offset=base_offset + index) for index in range(count)]
    header = parse_header(batch_of(*records, base_offset=base_offset))
    assert header is not None
    return header._replace(base_sequence=first_position % SEQUENCES)


def scanned(
    lane: LaneRecord, seen: LogState, *batches: tuple[int, int, int]
) -> tuple[Scan, At | AheadOfEnd | RecordsMissing | NothingLeft]:
    found = locate(lane, seen)
    assert isinstance(found, NeedsScan)
    scan = Scan(lane, found, seen)
    for batch in batches:
        scan.see(own_batch(*batch))
    return scan, scan.found()


def test_records_of_others_between_ours_move_the_map() -> None:
    scan, found = scanned(lane_record(start()), log(23, 19), (0, 10, 0), (10, 10, 13))

    assert found == at(20)
    assert scan.corrected(20, 23) == [Run(position=10, source_offset=10, target_offset=13)]


def test_records_of_others_behind_ours_move_only_what_comes_next() -> None:
    scan, found = scanned(lane_record(start()), log(23, 19), (0, 10, 0), (10, 10, 10))

    assert (found, scan.own_end(20)) == (at(20), 20)
    assert scan.corrected(20, 23) == [Run(position=20, source_offset=20, target_offset=23)]


def test_a_forgotten_producers_batches_say_how_far_the_lane_came() -> None:
    scan, found = scanned(lane_record(start(), head(10, 10)), log(20), (10, 5, 10), (15, 5, 15))

    assert (found, scan.corrected(20, 20)) == (at(20), [])


def test_a_batch_where_acknowledged_ones_were_says_that_those_are_gone() -> None:
    """An unclean election took all that the new leader would have known of the producer, so it took
    the next batch as its first, and the log is longer than before: its end says nothing."""
    record, seen = lane_record(start(), head(10, 10)), log(14, 17)
    ahead = locate(record, seen)
    assert isinstance(ahead, AheadOfEnd)
    needs = if_lasting(record, seen, ahead)
    assert isinstance(needs, NeedsScan)
    scan = Scan(record, needs, seen)

    scan.see(own_batch(10, 8, 6))

    assert scan.found() == RecordsMissing(position=6, end_position=10)


def test_acknowledged_ones_are_gone_also_where_the_map_contradicts_itself() -> None:
    """Then no position follows from a target offset; that the one before it is gone does."""
    record = lane_record(start(), runs((10, 10, 12)), runs((20, 20, 15)), head(12, 12, 14))
    seen = log(40, 19)
    found = locate(record, seen)
    assert found == needs(10, 5, 20)
    scan = Scan(record, needs(10, 5, 20), seen)

    scan.see(own_batch(10, 8, 3))

    assert scan.found() == RecordsMissing(position=9, end_position=10)


def test_what_others_lost_before_the_first_of_ours_is_no_loss_of_ours() -> None:
    lane, seen = lane_record(start(target=57)), log(60, 9)
    found = locate(lane, seen)
    assert isinstance(found, AheadOfEnd)
    scan = Scan(lane, needs(0, 57, 10), seen)

    scan.see(own_batch(0, 10, 50))

    assert scan.found() == at(10)
    assert scan.corrected(10, 60) == [Run(position=0, source_offset=0, target_offset=50)]


def test_a_batch_that_the_leader_remembers_and_does_not_show_is_above_the_watermark() -> None:
    _, found = scanned(lane_record(start(), head(10, 10)), log(35, 29), (10, 5, 10))

    assert found == AheadOfEnd(position=30)


@pytest.mark.parametrize(
    ("last_sequence", "expected"),
    [(29, at(30)), (-1, NothingLeft(position=10, deleted=15))],
    ids=["remembered", "forgotten: it may be others'"],
)
def test_what_retention_deleted_since_the_head_counts_as_far_as_it_was_ours(
    last_sequence: int, expected: At | NothingLeft
) -> None:
    lane, seen = lane_record(start(), head(10, 10)), log(40, last_sequence, first=25)
    found = locate(lane, seen)
    assert isinstance(found, NeedsScan)

    scan = Scan(lane, found, seen)

    assert scan.read_from == 25
    assert scan.found() == expected


def test_a_scan_is_complete_once_it_saw_what_the_leader_remembers() -> None:
    lane, seen = lane_record(start(), head(10, 10)), log(40, 19)
    found = locate(lane, seen)
    assert isinstance(found, NeedsScan)
    scan = Scan(lane, found, seen)

    scan.see(own_batch(10, 5, 10))
    halfway = scan.is_complete()
    scan.see(own_batch(15, 5, 15))

    assert (halfway, scan.is_complete()) == (False, True)


def test_a_head_says_how_far_a_lane_read_that_mirrored_nothing_since_its_start() -> None:
    known = replace(head(0, 900, 0), begun_at=0)

    assert source_next_offset(lane_record(start(), known), 0) == 900


@pytest.mark.parametrize("begun_at", [None, 40], ids=["of an earlier version", "another start"])
def test_a_head_at_the_place_of_a_start_it_did_not_go_on_from_says_nothing(
    begun_at: int | None,
) -> None:
    known = replace(head(0, 900, 0), begun_at=begun_at)

    assert source_next_offset(lane_record(start(), known), 0) == 0
