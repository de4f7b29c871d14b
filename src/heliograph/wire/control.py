"""Control batches: which way a transaction ended (KIP-98). No I/O; runs anywhere.

A control batch holds one record, never compressed: after length, attributes and two deltas comes
the key,
`version int16, type int16`, where type 0 is ABORT and 1 is COMMIT. Later brokers may write others
(KIP-1279 resets producer ids with one): no control record is data, so they are skipped and counted.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from heliograph.errors import CorruptBatch
from heliograph.wire.batch import HEADER_BYTES, BatchHeader

_KEY: Final = struct.Struct(">hh")
_ABORT: Final = 0
_COMMIT: Final = 1
_DELTAS: Final = 2  # of timestamp and offset, after length and attributes


def is_abort_marker(batch: memoryview, header: BatchHeader) -> bool:
    return _kind(batch, header) == _ABORT


def is_unknown_control(batch: memoryview, header: BatchHeader) -> bool:
    """Whether a control batch says something else than how a transaction ended."""
    try:
        return _kind(batch, header) not in (_ABORT, _COMMIT)
    except CorruptBatch:
        return True  # its CRC holds, so this is another form of record and no damage


def _kind(batch: memoryview, header: BatchHeader) -> int:
    at = _skip_varint(batch, HEADER_BYTES, header) + 1  # length, then attributes
    for _ in range(_DELTAS):
        at = _skip_varint(batch, at, header)
    key_at = _skip_varint(batch, at, header)
    # The key's length is twice itself on the wire, and odd where there is no key.
    has_key = batch[at] % 2 == 0 and batch[at] >= 2 * _KEY.size
    at = key_at
    if not has_key or at + _KEY.size > len(batch):
        raise CorruptBatch(header.base_offset, "a control record without its key")
    _, kind = _KEY.unpack_from(batch, at)
    return int(kind)


class AbortedTransactions:
    """Which transactional batches of one answer belong to aborted transactions.

    The broker names producers and first offsets; a marker ends what it began.
    """

    def __init__(self, aborted: Sequence[tuple[int, int]]) -> None:
        self._ahead = sorted(aborted, key=lambda row: -row[1])
        self._open: set[int] = set()

    def covers(self, header: BatchHeader) -> bool:
        while self._ahead and self._ahead[-1][1] < header.next_offset:
            self._open.add(self._ahead.pop()[0])
        return (
            header.is_transactional and not header.is_control and header.producer_id in self._open
        )

    def end(self, header: BatchHeader, batch: memoryview) -> None:
        if header.producer_id in self._open and is_abort_marker(batch, header):
            self._open.discard(header.producer_id)


def _skip_varint(batch: memoryview, at: int, header: BatchHeader) -> int:
    for index in range(at, min(at + 10, len(batch))):
        if batch[index] < 0x80:
            return index + 1
    raise CorruptBatch(header.base_offset, "a control record cut short")
