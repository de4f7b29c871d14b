"""Batches as a mirror, a seeder and clients append them to a `FakeLog`."""

from __future__ import annotations

from heliograph.wire.batch import SEQUENCES, restamp
from tests.kit.batches import NOW_MS, Record, batch_of
from tests.kit.fake_log import FakeLog


def records_batch(
    count: int,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    timestamp_ms: int = NOW_MS,
) -> bytes:
    records = (Record(offset=offset, timestamp_ms=timestamp_ms) for offset in range(count))
    batch = batch_of(*records)
    restamp(batch, producer_id=producer_id, producer_epoch=epoch, sequence=sequence)
    return bytes(batch)


def append_own(log: FakeLog, producer_id: int, position: int, count: int) -> None:
    """What a mirror appends for the records from `position` on."""
    batch = records_batch(count, producer_id=producer_id, epoch=0, sequence=position % SEQUENCES)
    log.append(batch)


def append_foreign(log: FakeLog, count: int) -> None:
    log.append(records_batch(count))


def filler(producer_id: int, *, count: int, left: int) -> bytes:
    """The part of a seeding that begins when `left` records are missing."""
    return records_batch(count, producer_id=producer_id, epoch=0, sequence=-left % SEQUENCES)
