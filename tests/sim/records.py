"""Source records that say who they are, in batches built and read without a codec."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from heliograph.wire.batch import HEADER_BYTES
from tests.kit.batches import records_of

_HEAD: Final = struct.Struct(">qiibI")
_SEALED: Final = struct.Struct(">hiqqqhii")
_RECORD: Final = struct.Struct(">BBBBBBBQB")
_MARKER: Final = struct.Struct(">BBBBBhhB6sB")
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
KEYS: Final = 4


class Made(NamedTuple):
    """One record as a client wrote it; `number` is of this one alone."""

    number: int
    key: int
    timestamp_ms: int


def batch_of(
    made: Sequence[tuple[int, Made]],
    *,
    base_offset: int = 0,
    last_delta: int | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 0,
) -> bytes:
    """Of offset deltas and records, all of one timestamp; `producer` is id, epoch and sequence."""
    payload = b"".join(
        # Length, attributes, time, offset, key, value, headers; numbers of a byte, doubled.
        _RECORD.pack(30, 0, 0, 2 * delta, 2, each.key, 16, each.number, 0)
        for delta, each in made
    )
    at_ms = made[0][1].timestamp_ms if made else -1
    delta = made[-1][0] if last_delta is None else last_delta
    return _sealed(
        payload, base_offset, attributes, delta, at_ms, producer, len(made), leader_epoch
    )


def marker_of(producer_id: int, epoch: int, *, commits: bool, at_ms: int) -> bytes:
    payload = _MARKER.pack(32, 0, 0, 0, 8, 0, int(commits), 12, b"\0" * 6, 0)
    producer = (producer_id, epoch, -1)
    return _sealed(payload, 0, TRANSACTIONAL | CONTROL, 0, at_ms, producer, 1, 0)


def _sealed(
    payload: bytes,
    base_offset: int,
    attributes: int,
    delta: int,
    at_ms: int,
    producer: tuple[int, int, int],
    count: int,
    leader_epoch: int,
) -> bytes:
    sealed = _SEALED.pack(attributes, delta, at_ms, at_ms, *producer, count) + payload
    return _HEAD.pack(base_offset, len(sealed) + 9, leader_epoch, 2, crc32c(sealed)) + sealed


def numbers_of(batch: bytes) -> list[Made]:
    """The records of a batch, also of one that was encoded anew."""
    count = int.from_bytes(batch[57:61], "big")
    if len(batch) == HEADER_BYTES + count * _RECORD.size and batch[22] & 7 == 0:
        (at_ms,) = struct.unpack_from(">q", batch, 27)
        rows = list(_RECORD.iter_unpack(batch[HEADER_BYTES:]))
        if all(row[0] == 30 and row[2] == 0 and row[4] == 2 and row[6] == 16 for row in rows):
            return [Made(row[7], row[5], at_ms) for row in rows]
    found = []
    for each in records_of(batch):
        key, value = each.key or b"", each.value or b""
        if len(key) != 1 or len(value) != 8:
            raise ValueError(f"a record that no client wrote: {each}")
        found.append(Made(int.from_bytes(value, "big"), key[0], each.timestamp_ms))
    return found
