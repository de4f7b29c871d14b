"""Fields of flexible Kafka messages (KIP-482), read with every length checked. No I/O; runs
anywhere."""

from __future__ import annotations

import struct
from typing import Any, Final

from heliograph.errors import WireError

_INT32: Final = struct.Struct(">i")


class Fields:
    """A cursor over one answer; never reads past the end, never trusts a length."""

    __slots__ = ("at", "buffer")

    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.at = 0

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        at = self.at
        self.at = at + layout.size
        if self.at > len(self.buffer):
            raise WireError(
                f"answer ends at byte {len(self.buffer)}, inside a field of {layout.size}"
            )
        return layout.unpack_from(self.buffer, at)

    def int32(self) -> int:
        return int(self.unpack(_INT32)[0])

    def uvarint(self) -> int:
        buffer, at = self.buffer, self.at
        if at < len(buffer) and buffer[at] < 0x80:
            self.at = at + 1
            return buffer[at]
        value = shift = 0
        while True:
            if at >= len(buffer) or shift > 28:
                raise WireError(f"bad length at byte {self.at} of an answer")
            byte = buffer[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if not byte & 0x80:
                self.at = at
                return value
            shift += 7

    def count(self, item_bytes_min: int) -> int:
        """The length of a compact array; more items than the bytes left could hold is a lie."""
        items = self.uvarint() - 1
        if items > (len(self.buffer) - self.at) // item_bytes_min:
            raise WireError(f"an array of {items} items in {len(self.buffer) - self.at} bytes")
        return max(items, 0)

    def take(self, size: int) -> memoryview:
        end = self.at + size
        if size < 0 or end > len(self.buffer):
            raise WireError(f"{size} bytes wanted, {len(self.buffer) - self.at} left")
        piece = self.buffer[self.at : end]
        self.at = end
        return piece

    def compact_bytes(self) -> memoryview | None:
        size = self.uvarint() - 1
        return None if size < 0 else self.take(size)

    def compact_string(self) -> str | None:
        piece = self.compact_bytes()
        return None if piece is None else bytes(piece).decode("utf-8", "replace")

    def tags(self) -> dict[int, memoryview]:
        """Tagged fields; nearly always none, then without an allocation worth naming."""
        count = self.uvarint()
        if count == 0:
            return _NO_TAGS
        found: dict[int, memoryview] = {}
        for _ in range(count):
            tag = self.uvarint()
            found[tag] = self.take(self.uvarint())
        return found


_NO_TAGS: Final[dict[int, memoryview]] = {}


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact_string(text: str) -> bytes:
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded
