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
three bytes. `packed_runs` has the other form, of runs that are settled.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from operator import add
from typing import Final

from heliograph.errors import InvariantError, WireError
from heliograph.ledger.runs import OFFSET_MAX, Columns, LooseRuns, Run, require_ascending

VERSION: Final = 1
_SMALL: Final = bytes(range(0, 128, 2))
"""Varints of one byte that are not negative."""
_HALVES: Final = bytes(byte >> 1 for byte in range(256))
_VARINT_BYTES_MAX: Final = 10


def encode_runs(runs: Sequence[Run], end_position: int | None) -> bytes:
    if not runs:
        raise InvariantError("there are no runs to encode")
    require_ascending(runs)
    if end_position is not None and not runs[-1].position < end_position <= OFFSET_MAX:
        raise InvariantError(f"runs up to {runs[-1].position} cannot end at {end_position}")
    out = bytearray([VERSION])
    put_varint(out, 0 if end_position is None else end_position - runs[0].position)
    put_varint(out, runs[0].source_offset)
    put_varint(out, runs[0].target_offset)
    for before, run in pairwise(runs):
        records = run.position - before.position
        put_varint(out, records)
        put_varint(out, run.source_offset - before.source_offset - records)
        put_varint(out, run.target_offset - before.target_offset - records)
    return bytes(out)


def decode_runs(first_position: int, value: bytes) -> tuple[tuple[Run, ...], int | None]:
    """The runs and where what they replace ends.

    At least one run, and never more than half of the bytes: the first takes two or more, each
    further one three or more.
    """
    block, end_position = decode_block(first_position, value)
    columns = block.columns()
    return tuple(columns.run(index) for index in range(block.count)), end_position


def decode_block(first_position: int, value: bytes) -> tuple[LooseRuns, int | None]:
    """As `decode_runs`, by column."""
    if not value or value[0] != VERSION:
        raise WireError(f"ledger runs of another version than {VERSION}")
    extent, at = take_varint(value, 1)
    source_offset, at = take_varint(value, at)
    target_offset, at = take_varint(value, at)
    columns = take_runs(value, at, checked_run(first_position, source_offset, target_offset))
    if extent == 0:
        return LooseRuns(columns), None
    end_position, last_position = first_position + extent, columns.positions[-1]
    if not last_position < end_position <= OFFSET_MAX:
        raise WireError(
            f"ledger runs: up to position {last_position}, but they end at {end_position}"
        )
    return LooseRuns(columns), end_position


def put_runs(out: bytearray, columns: Columns) -> None:
    """All runs but the first, each by what it is ahead of the one before."""
    positions, sources, targets = columns
    for index in range(1, len(positions)):
        records = positions[index] - positions[index - 1]
        source_skip = sources[index] - sources[index - 1] - records
        target_skip = targets[index] - targets[index - 1] - records
        if records < 64 and 0 <= source_skip < 64 and target_skip < 64:
            out += bytes((records << 1, source_skip << 1, target_skip << 1))
        else:
            put_varint(out, records)
            put_varint(out, source_skip)
            put_varint(out, target_skip)


def take_runs(value: bytes, at: int, first: Run) -> Columns:
    """What `put_runs` wrote, from byte `at` to the end."""
    small = _take_small(value[at:], first)
    return _take_any(value, at, first) if small is None else small


def _take_small(body: bytes, first: Run) -> Columns | None:
    """Runs that take three bytes each, as most do: without a step of Python for each of them."""
    if len(body) % 3 or body.translate(None, _SMALL):
        return None
    numbers = body.translate(_HALVES)
    records, source_skips, target_skips = numbers[::3], numbers[1::3], numbers[2::3]
    if 0 in records:
        return None
    try:
        return Columns(
            array("q", accumulate(records, initial=first.position)),
            array("q", accumulate(map(add, records, source_skips), initial=first.source_offset)),
            array("q", accumulate(map(add, records, target_skips), initial=first.target_offset)),
        )
    except OverflowError as exc:
        raise WireError("ledger runs: an offset or position is out of range") from exc


def _take_any(value: bytes, at: int, first: Run) -> Columns:
    position, source, target = first.position, first.source_offset, first.target_offset
    positions, sources, targets = [position], [source], [target]
    end = len(value)
    while at < end:
        # Nearly all are three numbers of one byte each, none negative, and there may be thousands.
        if at + 3 <= end and not (value[at] | value[at + 1] | value[at + 2]) & 0x81:
            records, source_skip, target_skip = (
                value[at] >> 1,
                value[at + 1] >> 1,
                value[at + 2] >> 1,
            )
            at += 3
        else:
            records, at = take_varint(value, at)
            source_skip, at = take_varint(value, at)
            target_skip, at = take_varint(value, at)
        if records < 1 or target_skip < 0:
            raise WireError(f"ledger runs: the run after position {position} does not follow it")
        position += records
        source += records + source_skip
        target += records + target_skip
        if source < 0:
            raise WireError("ledger runs: a position or source offset is out of range")
        positions.append(position)
        sources.append(source)
        targets.append(target)
    try:
        return Columns(array("q", positions), array("q", sources), array("q", targets))
    except OverflowError as exc:
        raise WireError("ledger runs: an offset or position is out of range") from exc


def checked_run(position: int, source_offset: int, target_offset: int) -> Run:
    if not 0 <= position <= OFFSET_MAX or not 0 <= source_offset <= OFFSET_MAX:
        raise WireError("ledger runs: a position or source offset is out of range")
    if not 0 <= target_offset <= OFFSET_MAX:
        raise WireError("ledger runs: a target offset is out of range")
    return Run(position=position, source_offset=source_offset, target_offset=target_offset)


def put_varint(out: bytearray, number: int) -> None:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def take_varint(value: bytes, at: int) -> tuple[int, int]:
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
