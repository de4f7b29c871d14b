"""Functions that take more memory than they should, one way or another."""

from __future__ import annotations

import time

import pyarrow as pa

from heliograph.transform.record import Record

PIECE = 4 << 20
ENOUGH = 2 << 30
"""Where one ends by itself that is not stopped, so that a test fails and no machine does."""


def eats_in_python(record: Record) -> Record:
    if record.value == b"bad":
        kept = []
        for _ in range(ENOUGH // PIECE):
            kept.append(b"x" * PIECE)
            time.sleep(0.002)
    return record


def eats_and_catches(record: Record) -> Record:
    if record.value == b"bad":
        kept = []
        for _ in range(ENOUGH // PIECE):
            time.sleep(0.002)
            try:
                kept.append(b"x" * PIECE)
            except Exception:  # noqa: BLE001, S112 - as careless functions do
                continue
    return record


def eats_in_one_go(record: Record) -> Record:
    if record.value == b"bad":
        return record._replace(value=b"x" * ENOUGH)
    return record


def eats_in_arrow(record: Record) -> Record:
    if record.value == b"bad":
        pa.allocate_buffer(ENOUGH).address  # noqa: B018 - asked for, and never written
        pa.array([b"x" * PIECE]).take(pa.array([0] * 400))
    return record


def takes_a_little(record: Record) -> Record:
    kept = [b"x" * PIECE for _ in range(4)]
    return record._replace(timestamp_ms=record.timestamp_ms + len(kept) - 4)


def slow(record: Record) -> Record:
    time.sleep(0.3)
    return record
