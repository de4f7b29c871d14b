"""Fill a source topic with exactly the batches a row asks for. Runs on the driver.

A few batches are built once and sent again and again: a broker stores bytes, and a mirror that
does not open batches, like one that does, works the same whether it has seen them before.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from heliograph.clock import now_ms
from heliograph_tools.bench.raw import Address, RawConnection, produce_frame
from heliograph_tools.bench.rows import Codec, CopyRow

_VARIANTS: Final = 8
"""Different batches in rotation, so that compressed sizes vary a little as they do in life."""
_KEY_BYTES: Final = 8
_REQUESTS_IN_FLIGHT: Final = 32
_WORDS: Final = (
    "order",
    "customer",
    "city",
    "amount",
    "shipped",
    "pending",
    "returned",
    "invoice",
    "Vienna",
    "Lisbon",
    "Oslo",
    "Kyoto",
    "express",
    "standard",
    "north",
    "south",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltBatch:
    payload: bytes
    records: int


def fill_topic(address: Address, topic: str, row: CopyRow) -> None:
    """Write the row's records, spread evenly; returns when the broker has acknowledged all."""
    per_partition = row.records // row.partitions
    lots = [list(range(first, row.partitions, 2)) for first in range(min(2, row.partitions))]
    frames = _Frames(row=row, full=build_batches(row, _VARIANTS, row.batch_bytes))
    # A broker works on one request per connection at a time; two connections keep it busy.
    with ThreadPoolExecutor(max_workers=len(lots), thread_name_prefix="fill") as pool:
        for filled in [
            pool.submit(_fill_partitions, address, topic, lot, per_partition, frames)
            for lot in lots
        ]:
            filled.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frames:
    row: CopyRow
    full: list[BuiltBatch]


def build_batches(row: CopyRow, variants: int, batch_bytes: int) -> list[BuiltBatch]:
    """`variants` full batches of equal record count, differing in what the records say."""
    first = build_batch(0, row.record_bytes, batch_bytes, row.codec)
    rest = [
        build_batch(seed, row.record_bytes, batch_bytes, row.codec, records_max=first.records)
        for seed in range(1, variants)
    ]
    return [first, *rest]


def build_batch(
    seed: int,
    record_bytes: int,
    batch_bytes: int,
    codec: Codec = Codec.NONE,
    records_max: int | None = None,
) -> BuiltBatch:
    """As many records as fit in `batch_bytes`, at least one, at most `records_max`."""
    text = random.Random(seed)
    builder = DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, batch_bytes)
    timestamp_ms = now_ms()
    records = 0
    while records_max is None or records < records_max:
        key = b"%0*d" % (_KEY_BYTES, text.randrange(10**_KEY_BYTES))
        value = _value(text, record_bytes - _KEY_BYTES)
        if builder.append(records, timestamp_ms, key, value, []) is None:
            break
        records += 1
    return BuiltBatch(payload=bytes(builder.build()), records=records)


def _value(text: random.Random, size_bytes: int) -> bytes:
    """Words and numbers, so that lz4 finds about what it finds in real events."""
    parts: list[str] = []
    length = 0
    while length < size_bytes:
        part = f"{text.choice(_WORDS)}:{text.getrandbits(40):x},"
        parts.append(part)
        length += len(part)
    return "".join(parts)[:size_bytes].encode()


def _fill_partitions(
    address: Address, topic: str, partitions: list[int], per_partition: int, frames: _Frames
) -> None:
    records = frames.full[0].records
    whole, rest = divmod(per_partition, records)
    ready = [
        produce_frame(topic, [(partition, batch.payload) for partition in partitions])
        for batch in frames.full
    ]
    in_flight = 0
    with RawConnection(address) as connection:
        for index in range(whole):
            connection.send(ready[index % len(ready)])
            in_flight += 1
            if in_flight == _REQUESTS_IN_FLIGHT:
                connection.receive_produced()
                in_flight -= 1
        if rest:
            row = frames.row
            last = build_batch(99, row.record_bytes, row.batch_bytes, row.codec, records_max=rest)
            connection.send(produce_frame(topic, [(p, last.payload) for p in partitions]))
            in_flight += 1
        for _ in range(in_flight):
            connection.receive_produced()
