"""The first record that waits, past everything that a lane drops."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence

import pytest

from heliograph.errors import BrokerUnreachable
from heliograph.inspect.lag import PendingRecord, first_pending_record
from heliograph.wire.batch import CONTROL_BIT, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, restamp
from tests.kit.batches import NOW_MS, Record, batch_of
from tests.kit.fake_cluster import Asked
from tests.kit.memory_log import PARTITION, MemoryCluster

ABORT, COMMIT = 0, 1


def batch(offset: int, count: int = 1, *, producer_id: int = -1, attributes: int = 0) -> memoryview:
    made = batch_of(
        *(Record(offset=offset + index, timestamp_ms=NOW_MS + offset) for index in range(count)),
        base_offset=offset,
        attributes=attributes,
        base_timestamp_ms=NOW_MS + offset,
    )
    restamp(made, producer_id=producer_id, producer_epoch=0, sequence=0)
    return _as_in_log(made, offset, attributes)


def marker(offset: int, producer_id: int, kind: int) -> memoryview:
    key = struct.pack(">hh", 0, kind)
    made = batch_of(Record(offset=offset, key=key, value=b""), base_offset=offset)
    restamp(made, producer_id=producer_id, producer_epoch=0, sequence=-1)
    return _as_in_log(made, offset, TRANSACTIONAL_BIT | CONTROL_BIT)


def _as_in_log(made: memoryview, offset: int, attributes: int) -> memoryview:
    """Restamping takes offset and attributes away, as a mirror must."""
    made[0:8] = offset.to_bytes(8, "big")
    made[21:23] = attributes.to_bytes(2, "big")
    return made


def pending(
    batches: Sequence[memoryview],
    aborted: Sequence[tuple[int, int]] = (),
    *,
    next_offset: int = 0,
    read_committed: bool = True,
) -> PendingRecord:
    source = MemoryCluster("A", batches)
    source.log(PARTITION).aborted = list(aborted)
    return asyncio.run(
        first_pending_record(
            source, PARTITION, next_offset, source.end, read_committed=read_committed
        )
    )


IN_A_TRANSACTION = [
    batch(0, 3, producer_id=7, attributes=TRANSACTIONAL_BIT),
    batch(3, 2, producer_id=8, attributes=TRANSACTIONAL_BIT),
    marker(5, 7, ABORT),
    marker(6, 8, COMMIT),
    batch(7, 1, producer_id=7, attributes=TRANSACTIONAL_BIT),
    marker(8, 7, COMMIT),
]


def test_a_record_that_waits_is_told_with_its_time() -> None:
    found = pending([batch(0, 5), batch(5, 5)], next_offset=6)

    assert found == PendingRecord(offset=6, timestamp_ms=NOW_MS + 5)


def test_records_of_an_aborted_transaction_are_passed_by() -> None:
    assert pending(IN_A_TRANSACTION, [(7, 0)]).offset == 3
    assert pending(IN_A_TRANSACTION, [(7, 0), (8, 3)]).offset == 7


def test_what_follows_the_marker_of_an_aborted_transaction_waits() -> None:
    assert pending(IN_A_TRANSACTION, [(7, 0)], next_offset=5).offset == 7


def test_a_log_that_ends_in_markers_has_nothing_that_waits() -> None:
    assert pending(IN_A_TRANSACTION, next_offset=8) == PendingRecord(offset=9, timestamp_ms=None)


def test_a_lane_that_reads_uncommitted_drops_only_markers() -> None:
    found = pending(IN_A_TRANSACTION, [(7, 0)], read_committed=False)

    assert found.offset == 0


def test_the_append_time_counts_where_the_source_sets_it() -> None:
    late = batch(0, 3, attributes=LOG_APPEND_TIME_BIT)
    late[35:43] = (NOW_MS + 99).to_bytes(8, "big")

    assert pending([late]).timestamp_ms == NOW_MS + 99


@pytest.mark.parametrize("next_offset", [0, 4])
def test_a_source_that_does_not_answer_leaves_the_lane_where_it_is(next_offset: int) -> None:
    source = MemoryCluster("A", [batch(0, 5)])

    def unreachable(_: Asked) -> None:
        raise BrokerUnreachable("cluster A: gone")

    source.before = unreachable

    found = asyncio.run(
        first_pending_record(source, PARTITION, next_offset, 5, read_committed=True)
    )

    assert found == PendingRecord(offset=next_offset, timestamp_ms=None)
