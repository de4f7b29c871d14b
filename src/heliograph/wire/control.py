"""Control batches: which way a transaction ended (KIP-98). Pure; runs anywhere.

A control batch holds one record, never compressed: after length, attributes and two deltas comes
the key,
`version int16, type int16`, where type 0 is ABORT and 1 is COMMIT.
"""

from __future__ import annotations

import struct
from typing import Final

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import HEADER_BYTES, BatchHeader

_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0
_VARINTS_BEFORE_KEY: Final = 3  # after length: timestamp delta, offset delta, key length


def is_abort_marker(batch: memoryview, header: BatchHeader) -> bool:
    at = _skip_varint(batch, HEADER_BYTES, header) + 1  # length, then attributes
    for _ in range(_VARINTS_BEFORE_KEY):
        at = _skip_varint(batch, at, header)
    if at + _KEY.size > len(batch):
        raise CorruptBatch(header.base_offset, "a control record without its key")
    _, kind = _KEY.unpack_from(batch, at)
    return bool(kind == _ABORT)


def _skip_varint(batch: memoryview, at: int, header: BatchHeader) -> int:
    for index in range(at, min(at + 10, len(batch))):
        if batch[index] < 0x80:
            return index + 1
    raise CorruptBatch(header.base_offset, "a control record cut short")
