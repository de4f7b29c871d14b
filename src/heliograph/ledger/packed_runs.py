"""Settled runs as bytes that say what is in them without being decoded. No I/O; runs anywhere.

    version         1 byte, 0x02, or 0x03 where the runs are anchors (`Runs.coarsen`)
    crc             4 bytes  CRC-32 of all that follows
    flags           1 byte   2: all offsets identical, 4: the source goes back within
    extent          varint   positions covered, from the first run's on; at least 1
    source_offset   varint   of the first run, whose position is in the record's key
    target_offset   varint   of the first run
    count           varint   runs, at least 1
    records         varint   positions from the first run to the last
    source_skip     varint   source offsets skipped between the two
    target_skip     varint   target offsets skipped between the two
    then each further run, as in `runs_codec`

A lane may have ten million runs: whoever starts needs the last of them, whoever translates those of
a few blocks. So blocks are held as bytes, and the ones that were asked for last are decoded.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from heliograph.errors import InvariantError, WireError
from heliograph.ledger.runs import OFFSET_MAX, Columns, LooseRuns, Run
from heliograph.ledger.runs_codec import checked_run, put_runs, put_varint, take_runs, take_varint

VERSION: Final = 2
COARSE_VERSION: Final = 3
"""Another version, not a flag: who takes anchors for all the runs there are skips records."""
_CRC: Final = struct.Struct(">I")
_BODY_AT: Final = 1 + _CRC.size
_IDENTICAL: Final = 2
_GOES_BACK: Final = 4
_DECODED_MAX: Final = 256
"""Blocks that stay decoded; with 4,096 runs in each, some 25 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRuns:
    """A block of runs (`runs.Block`) that covers `[first.position, end_position)`."""

    first: Run
    last: Run
    end_position: int
    count: int
    is_coarse: bool
    """Whether the runs are anchors: true where they are, with runs left out between them."""
    is_identical: bool
    goes_back: bool
    value: bytes
    body_at: int

    def columns(self) -> Columns:
        return _decoded(self.value, self.body_at, self.first)

    def runs(self) -> tuple[Run, ...]:
        columns = self.columns()
        return tuple(columns.run(index) for index in range(self.count))


def pack_runs(runs: Sequence[Run], end_position: int) -> PackedRuns:
    return _packed(runs, end_position, VERSION, is_identical=True)


def pack_anchors(anchors: Sequence[Run], end_position: int, *, is_identical: bool) -> PackedRuns:
    """`is_identical`: whether all runs were, also those that are left out."""
    return _packed(anchors, end_position, COARSE_VERSION, is_identical=is_identical)


def _packed(
    runs: Sequence[Run], end_position: int, version: int, *, is_identical: bool
) -> PackedRuns:
    if not runs or not runs[-1].position < end_position <= OFFSET_MAX:
        raise InvariantError(f"{len(runs)} runs cannot end at {end_position}")
    block = LooseRuns.of(runs)
    first, last, columns = block.first, block.last, block.columns()
    is_identical = is_identical and block.is_identical
    flags = _IDENTICAL * is_identical | _GOES_BACK * block.goes_back
    records = last.position - first.position
    body = bytearray([flags])
    for number in (
        end_position - first.position,
        first.source_offset,
        first.target_offset,
        block.count,
        records,
        last.source_offset - first.source_offset - records,
        last.target_offset - first.target_offset - records,
    ):
        put_varint(body, number)
    put_runs(body, columns)
    value = bytes([version]) + _CRC.pack(zlib.crc32(body)) + bytes(body)
    return parse_packed(first.position, value)


def parse_packed(first_position: int, value: bytes) -> PackedRuns:
    """What the bytes say of themselves; their CRC vouches for the runs in them."""
    if len(value) <= _BODY_AT or value[0] not in (VERSION, COARSE_VERSION):
        raise WireError(f"ledger runs of another version than {VERSION} or {COARSE_VERSION}")
    if zlib.crc32(memoryview(value)[_BODY_AT:]) != _CRC.unpack_from(value, 1)[0]:
        raise WireError("ledger runs: wrong CRC")
    flags, at = value[_BODY_AT], _BODY_AT + 1
    extent, at = take_varint(value, at)
    source_offset, at = take_varint(value, at)
    target_offset, at = take_varint(value, at)
    count, at = take_varint(value, at)
    records, at = take_varint(value, at)
    source_skip, at = take_varint(value, at)
    target_skip, at = take_varint(value, at)
    first = checked_run(first_position, source_offset, target_offset)
    last = checked_run(
        first_position + records,
        source_offset + records + source_skip,
        target_offset + records + target_skip,
    )
    end_position = first_position + extent
    # Each further run takes three bytes or more.
    if (
        flags & ~(_IDENTICAL | _GOES_BACK)
        or not 1 <= count <= 1 + (len(value) - at) // 3
        or target_skip < 0
    ):
        raise WireError("ledger runs: flags, count or target offsets are out of range")
    if not first_position <= last.position < end_position <= OFFSET_MAX:
        raise WireError(
            f"ledger runs: up to position {last.position}, but they end at {end_position}"
        )
    return PackedRuns(
        first=first,
        last=last,
        end_position=end_position,
        count=count,
        is_coarse=value[0] == COARSE_VERSION,
        is_identical=bool(flags & _IDENTICAL),
        goes_back=bool(flags & _GOES_BACK),
        value=value,
        body_at=at,
    )


@lru_cache(maxsize=_DECODED_MAX)
def _decoded(value: bytes, body_at: int, first: Run) -> Columns:
    return take_runs(value, body_at, first)
