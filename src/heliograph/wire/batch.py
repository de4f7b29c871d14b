"""The v2 record batch header (KIP-98): parse, verify, restamp. No I/O; runs
anywhere.

    offset  size  field                    in CRC
         0     8  base_offset              no
         8     4  batch_length             no
        12     4  partition_leader_epoch   no
        16     1  magic                    no
        17     4  crc                      no
        21     2  attributes               yes
        23     4  last_offset_delta        yes
        27     8  base_timestamp           yes
        35     8  max_timestamp            yes
        43     8  producer_id              yes
        51     2  producer_epoch           yes
        53     4  base_sequence            yes
        57     4  record_count             yes

The CRC starts at `attributes`: base_offset and partition_leader_epoch can be rewritten without
recomputing it, producer id, epoch and sequence cannot.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from heliograph.errors import CorruptBatch

HEADER_BYTES: Final = 61
LENGTH_END: Final = 12  # batch_length counts the bytes after itself
MAGIC_AT: Final = 16
SEQUENCES: Final = 1 << 31

_LAYOUT: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_AT: Final = 17
_CRC: Final = struct.Struct(">I")
_ATTRIBUTES_AT: Final = 21
_ATTRIBUTES: Final = struct.Struct(">h")
_PRODUCER_AT: Final = 43
_PRODUCER: Final = struct.Struct(">qhi")
_BASE_OFFSET: Final = struct.Struct(">q")

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
_DELETE_HORIZON_BIT: Final = 0x40
# A client may send only codec bits: a transactional bit would open a transaction nobody ends, and
# brokers refuse LogAppendTime and a delete horizon (KIP-534) from producers.
_KEPT_ATTRIBUTES: Final = COMPRESSION_MASK


class BatchHeader(NamedTuple):
    """A tuple because one is made for each batch: a frozen dataclass costs three times as much."""

    base_offset: int
    size_bytes: int
    """The whole batch, header included."""
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def next_offset(self) -> int:
        # Compaction keeps last_offset_delta when it removes the last records (KAFKA-5443),
        # so this moves past the gap where counting records would fetch it for ever.
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_dense(self) -> bool:
        return self.record_count == self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK


def parse_header(window: memoryview) -> BatchHeader | None:
    """Read the header at the start of `window`; None when the batch is cut short.

    Brokers may cut the last batch of a fetch, so None means "ask again from here". None for the
    *first* batch means the fetch was too small: the caller grows it, up to its own bound.
    """
    if len(window) < HEADER_BYTES:
        return None
    (
        base_offset,
        length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_delta,
        base_ms,
        max_ms,
        producer_id,
        producer_epoch,
        sequence,
        count,
    ) = _LAYOUT.unpack_from(window)
    if magic != 2:
        raise CorruptBatch(base_offset, f"magic is {magic}, expected 2")
    size_bytes = LENGTH_END + length
    if size_bytes < HEADER_BYTES:
        raise CorruptBatch(base_offset, f"batch_length {length} is less than a header")
    if base_offset < 0:
        raise CorruptBatch(base_offset, "base offset is negative")
    if last_delta < 0:
        raise CorruptBatch(base_offset, f"last_offset_delta is {last_delta}")
    if not 0 <= count <= last_delta + 1:
        raise CorruptBatch(base_offset, f"{count} records in {last_delta + 1} offsets")
    if len(window) < size_bytes:
        return None
    # In the order of the fields: names for each of them would take as long as all the rest.
    return BatchHeader(
        base_offset,
        size_bytes,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_delta,
        base_ms,
        max_ms,
        producer_id,
        producer_epoch,
        sequence,
        count,
    )


def verify_crc(batch: memoryview, header: BatchHeader) -> None:
    """Raise `CorruptBatch` unless the bytes are the ones their first writer sealed."""
    if crc32c(batch[_ATTRIBUTES_AT : header.size_bytes]) != header.crc:
        raise CorruptBatch(header.base_offset, "checksum does not match its bytes")


def restamp(batch: memoryview, *, producer_id: int, producer_epoch: int, sequence: int) -> None:
    """Make `batch`, in place, the one that belongs at `sequence` of this producer; records stay
    untouched.

    The caller owns the buffer and has verified its CRC: a new CRC over bad bytes would make them
    look good.
    """
    _BASE_OFFSET.pack_into(batch, 0, 0)
    (attributes,) = _ATTRIBUTES.unpack_from(batch, _ATTRIBUTES_AT)
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_AT, attributes & _KEPT_ATTRIBUTES)
    _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, producer_epoch, sequence)
    _CRC.pack_into(batch, _CRC_AT, crc32c(batch[_ATTRIBUTES_AT:]))


def is_compressed(batch: memoryview) -> bool:
    """Whether the batch is compressed, from its bytes alone."""
    return bool(batch[_ATTRIBUTES_AT + 1] & COMPRESSION_MASK)


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who writes: the flow's producer."""

    producer_id: int
    producer_epoch: int
