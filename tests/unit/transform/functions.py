"""Functions as operators write them, good and bad."""

from __future__ import annotations

import threading
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from heliograph.transform.record import Record


def same(batch: Any) -> Any:
    return batch


def no_tests(batch: Any) -> Any:
    return pc.invert(pc.starts_with(batch.column("value").cast(pa.string()), "test"))


def upper_kept(batch: Any) -> Any:
    """Drops some rows and changes the others."""
    kept = batch.filter(no_tests(batch))
    upper = pc.utf8_upper(kept.column("value").cast(pa.string()))
    return kept.set_column(kept.schema.get_field_index("value"), "value", upper)


def twice(batch: Any) -> Any:
    return pa.concat_batches([batch, batch])


def backwards(batch: Any) -> Any:
    return batch.take(pa.array(range(batch.num_rows - 1, -1, -1)))


def numbers(batch: Any) -> Any:
    return pa.record_batch({"value": pa.array(range(batch.num_rows), pa.int64())})


def short_mask(batch: Any) -> Any:
    return [True] * (batch.num_rows - 1) if batch.num_rows > 1 else [True, True]


def nothing(batch: Any) -> Any:
    return None


def picky(batch: Any) -> Any:
    if b"bad" in batch.column("value").to_pylist():
        raise ValueError("a bad value")
    return batch


def marked(record: Record) -> Record | None:
    if record.value is None:
        return None
    return record._replace(headers=(*record.headers, ("seen", b"%d" % record.offset)))


def elsewhere(record: Record) -> Record:
    return record._replace(partition=record.partition + 1)


def text(record: Record) -> Any:
    return record._replace(value="text")  # type: ignore[arg-type]


def unchanged(record: Record) -> Record:
    return record


def by_the_clock(record: Record) -> Record:
    return record._replace(value=b"%d" % time.monotonic_ns())


no_function = 17


class Handler:
    """As a message handler of MirrorMaker 1: made with a string, a list for each record."""

    def __init__(self, args: str) -> None:
        self._every = int(args)

    def handle(self, record: Record) -> list[Record]:
        if record.offset % self._every == 0:
            return []
        return [record._replace(value=b"handled " + (record.value or b""))]


def fanned_out(record: Record, copies: str = "2") -> list[Record]:
    return [record] * int(copies)


def routed(record: Record) -> Record:
    return record._replace(topic="elsewhere")


def number(record: Record) -> int:
    return record.offset


sleeps_s = 0.0
"""Of `slow`; a test sets it."""
never = threading.Event()
"""Ends what hangs, once a test is over."""
asked: list[list[int]] = []


def slow(batch: Any) -> Any:
    asked.append(batch.column("offset").to_pylist())
    time.sleep(sleeps_s)
    return batch


def slow_numbered(batch: Any) -> Any:
    numbered = pa.array([b"%d" % offset for offset in batch.column("offset").to_pylist()])
    return pa.record_batch({"offset": slow(batch).column("offset"), "value": numbered})


def slow_upper(batch: Any) -> Any:
    return upper_kept(slow(batch))


def hangs_on_bad(batch: Any) -> Any:
    asked.append(batch.column("offset").to_pylist())
    if b"bad" in batch.column("value").to_pylist():
        never.wait(60)
    return batch


def leaves(record: Record) -> Record:
    raise SystemExit(3)
