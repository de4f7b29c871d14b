"""MirrorMaker 2's own records: heartbeats, checkpoints, offset syncs. No I/O; runs anywhere.

    heartbeat    key    STRING source alias, STRING target alias
                 value  INT16 version = 0, INT64 timestamp in ms
    checkpoint   key    STRING group, STRING topic on the target, INT32 partition
                 value  INT16 version = 0, INT64 upstream offset, INT64 downstream offset,
                        STRING metadata, empty where there is none
    offset sync  key    STRING topic on the source, INT32 partition
                 value  INT64 upstream offset, INT64 downstream offset, no version

Big-endian; STRING is an INT16 length and UTF-8. What Java writes is read here byte for byte. What
it would never write is refused, though Java reads some of it: a version other than 0 (Java reads it
as 0), bytes after the last field, text that is not UTF-8, negative offsets, partitions and times.
Nothing but garbage looks like that, and an offset out of garbage would move a consumer group.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from heliograph.errors import WireError
from heliograph.model import TopicName

VERSION: Final = 0
STRING_BYTES_MAX: Final = 2**15 - 1
PARTITION_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_CHECKPOINT_VALUE: Final = struct.Struct(">hqqh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """`source->target` was alive at that time; written to the target of the flow."""

    source: str
    target: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a group stands on both sides, as next offsets; written to the target."""

    group: str
    topic: TopicName
    """As it is called on the target."""
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""
    """What the group's consumer committed beside its offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSync:
    """One record, and the offset it has on either side."""

    topic: TopicName
    """As it is called on the source."""
    partition: int
    upstream_offset: int
    downstream_offset: int


def encode_heartbeat(heartbeat: Heartbeat) -> tuple[bytes, bytes]:
    """Key and value. Raises `WireError` where the format has no room, as the others here do."""
    key = _string("source alias", heartbeat.source) + _string("target alias", heartbeat.target)
    return key, _INT16.pack(VERSION) + _int64("timestamp", heartbeat.timestamp_ms)


def decode_heartbeat(key: bytes | None, value: bytes | None) -> Heartbeat:
    """Raises `WireError` for anything else, a missing key or value included; so do the others."""
    keyed = _Cursor("heartbeat key", key)
    source, target = keyed.string(), keyed.string()
    keyed.require_end()
    valued = _Cursor("heartbeat value", value)
    valued.require_version()
    timestamp_ms = valued.unsigned(_INT64)
    valued.require_end()
    return Heartbeat(source=source, target=target, timestamp_ms=timestamp_ms)


def encode_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    key = (
        _string("group", checkpoint.group)
        + _string("topic", checkpoint.topic)
        + _int32("partition", checkpoint.partition)
    )
    value = (
        _INT16.pack(VERSION)
        + _int64("upstream offset", checkpoint.upstream_offset)
        + _int64("downstream offset", checkpoint.downstream_offset)
        + _string("metadata", checkpoint.metadata)
    )
    return key, value


def decode_checkpoint(key: bytes | None, value: bytes | None) -> Checkpoint:
    keyed = _Cursor("checkpoint key", key)
    group, topic, partition = keyed.string(), keyed.string(), keyed.unsigned(_INT32)
    keyed.require_end()
    valued = _Cursor("checkpoint value", value)
    valued.require_version()
    upstream_offset, downstream_offset = valued.unsigned(_INT64), valued.unsigned(_INT64)
    metadata = valued.string()
    valued.require_end()
    return Checkpoint(
        group=group,
        topic=TopicName(topic),
        partition=partition,
        upstream_offset=upstream_offset,
        downstream_offset=downstream_offset,
        metadata=metadata,
    )


def is_checkpoint_value(value: bytes) -> bool:
    """Whether `decode_checkpoint` takes it; a tenth of its work, for who seeks the last of many."""
    size = len(value) - _CHECKPOINT_VALUE.size
    if size < 0:
        return False
    version, upstream, downstream, metadata_size = _CHECKPOINT_VALUE.unpack_from(value)
    if version != VERSION or upstream < 0 or downstream < 0 or metadata_size != size:
        return False
    try:
        value[_CHECKPOINT_VALUE.size :].decode()
    except UnicodeDecodeError:
        return False
    return True


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    key = _string("topic", sync.topic) + _int32("partition", sync.partition)
    value = _int64("upstream offset", sync.upstream_offset) + _int64(
        "downstream offset", sync.downstream_offset
    )
    return key, value


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    keyed = _Cursor("offset sync key", key)
    topic, partition = keyed.string(), keyed.unsigned(_INT32)
    keyed.require_end()
    valued = _Cursor("offset sync value", value)
    upstream_offset, downstream_offset = valued.unsigned(_INT64), valued.unsigned(_INT64)
    valued.require_end()
    return OffsetSync(
        topic=TopicName(topic),
        partition=partition,
        upstream_offset=upstream_offset,
        downstream_offset=downstream_offset,
    )


def _string(what: str, text: str) -> bytes:
    try:
        encoded = text.encode()
    except UnicodeEncodeError as exc:
        raise WireError(f"{what} is not text: {exc.reason}") from exc
    if len(encoded) > STRING_BYTES_MAX:
        raise WireError(f"{what} has {len(encoded)} bytes, at most {STRING_BYTES_MAX} fit")
    return _INT16.pack(len(encoded)) + encoded


def _int32(what: str, value: int) -> bytes:
    return _INT32.pack(_within(what, value, PARTITION_MAX))


def _int64(what: str, value: int) -> bytes:
    return _INT64.pack(_within(what, value, INT64_MAX))


def _within(what: str, value: int, largest: int) -> int:
    if not 0 <= value <= largest:
        raise WireError(f"{what} is {value}, not between 0 and {largest}")
    return value


class _Cursor:
    """Over one key or value; never reads past the end, never trusts a length."""

    __slots__ = ("_at", "_buffer", "_what")

    def __init__(self, what: str, buffer: bytes | None) -> None:
        if buffer is None:
            raise WireError(f"{what}: missing")
        self._what, self._buffer, self._at = what, buffer, 0

    def signed(self, layout: struct.Struct) -> int:
        end = self._at + layout.size
        if end > len(self._buffer):
            raise WireError(f"{self._what}: ends at byte {len(self._buffer)}, inside a number")
        found: int = layout.unpack_from(self._buffer, self._at)[0]
        self._at = end
        return found

    def unsigned(self, layout: struct.Struct) -> int:
        found = self.signed(layout)
        if found < 0:
            raise WireError(f"{self._what}: {found} before byte {self._at} is negative")
        return found

    def string(self) -> str:
        size = self.signed(_INT16)
        left = len(self._buffer) - self._at
        if not 0 <= size <= left:
            raise WireError(f"{self._what}: a string of {size} bytes, {left} are left")
        piece = self._buffer[self._at : self._at + size]
        self._at += size
        try:
            return piece.decode()
        except UnicodeDecodeError as exc:
            raise WireError(f"{self._what}: not UTF-8: {exc.reason}") from exc

    def require_version(self) -> None:
        version = self.signed(_INT16)
        if version != VERSION:
            raise WireError(f"{self._what}: version {version}, only {VERSION} is known")

    def require_end(self) -> None:
        left = len(self._buffer) - self._at
        if left:
            raise WireError(f"{self._what}: {left} bytes after its last field")
