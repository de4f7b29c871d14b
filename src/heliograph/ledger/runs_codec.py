"""Runs as bytes: delta-coded, three varints a run. No I/O; runs anywhere.

    version         1 byte, 0x01
    extent          varint   positions replaced, from the first run's on; 0 = all there are
    source_offset   varint   of the first run, whose position is in the record's key
    target_offset   varint   of the first run
    then for each further run, until the bytes end:
    records         varint   positions since the run before, at least 1
    source_skip     varint   source offsets skipped on top; negative where the source began again
    target_skip     varint   target offsets skipped on top, at least 0

Varints are Kafka's: zigzag, seven bits a byte, lowest first, ten bytes at most and none to spare.
A transactional topic has a run for each transaction, with one offset skipped for the marker: mostly
three bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from heliograph.errors import InvariantError, WireError
from heliograph.ledger.runs import OFFSET_MAX, Run, require_ascending

VERSION: Final = 1
_VARINT_BYTES_MAX: Final = 10


def encode_runs(runs: Sequence[Run], end_position: int | None) -> bytes:
    if not runs:
        raise InvariantError("there are no runs to encode")
    require_ascending(runs)
    if end_position is not None and not runs[-1].position < end_position <= OFFSET_MAX:
        raise InvariantError(f"runs up to {runs[-1].position} cannot end at {end_position}")
    out = bytearray([VERSION])
    _put_varint(out, 0 if end_position is None else end_position - runs[0].position)
    _put_varint(out, runs[0].source_offset)
    _put_varint(out, runs[0].target_offset)
    for before, run in pairwise(runs):
        records = run.position - before.position
        _put_varint(out, records)
        _put_varint(out, run.source_offset - before.source_offset - records)
        _put_varint(out, run.target_offset - before.target_offset - records)
    return bytes(out)


def decode_runs(first_position: int, value: bytes) -> tuple[tuple[Run, ...], int | None]:
    """The runs and where what they replace ends.

    At least one run, and never more than half of the bytes: the first takes two or more, each
    further one three or more.
    """
    if not value or value[0] != VERSION:
        raise WireError(f"ledger runs of another version than {VERSION}")
    position = first_position
    extent, at = _take_varint(value, 1)
    source_offset, at = _take_varint(value, at)
    target_offset, at = _take_varint(value, at)
    runs = [_checked_run(position, source_offset, target_offset)]
    while at < len(value):
        records, at = _take_varint(value, at)
        source_skip, at = _take_varint(value, at)
        target_skip, at = _take_varint(value, at)
        if records < 1 or target_skip < 0:
            raise WireError(f"ledger runs: the run after position {position} does not follow it")
        position += records
        source_offset += records + source_skip
        target_offset += records + target_skip
        runs.append(_checked_run(position, source_offset, target_offset))
    if extent == 0:
        return tuple(runs), None
    end_position = first_position + extent
    if not position < end_position <= OFFSET_MAX:
        raise WireError(f"ledger runs: up to position {position}, but they end at {end_position}")
    return tuple(runs), end_position


def _checked_run(position: int, source_offset: int, target_offset: int) -> Run:
    # Positions and target offsets only grow, so the first check of them covers their lower end.
    if position > OFFSET_MAX or not 0 <= source_offset <= OFFSET_MAX:
        raise WireError("ledger runs: a position or source offset is out of range")
    if not 0 <= target_offset <= OFFSET_MAX:
        raise WireError("ledger runs: a target offset is out of range")
    return Run(position=position, source_offset=source_offset, target_offset=target_offset)


def _put_varint(out: bytearray, number: int) -> None:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _take_varint(value: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, of 70 bits at most, and where the next one starts."""
    zigzag = 0
    for index in range(at, min(at + _VARINT_BYTES_MAX, len(value))):
        byte = value[index]
        zigzag |= (byte & 0x7F) << 7 * (index - at)
        if byte < 0x80:
            if byte == 0 and index > at:
                raise WireError(f"ledger runs: the varint at byte {at} is not in its one spelling")
            return (zigzag >> 1) ^ -(zigzag & 1), index + 1
    raise WireError(f"ledger runs: the varint at byte {at} does not end")
