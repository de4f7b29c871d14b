"""What stands before a value with a schema: how the schema is named. No I/O; runs anywhere.

00  id, 4 bytes      what most serializers write; behind it, of Protobuf, message indexes
00  id, 8 bytes      the same with long ids (Apicurio's older default)
01  GUID, 16 bytes   with the GUID in the header `__key_schema_id` or `__value_schema_id`
03  00 or 05, GUID   AWS Glue
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

GUID_HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
MAGIC: Final = 0
GUID_MAGIC: Final = 1
GLUE_MAGIC: Final = 3
GUID_FRAME_BYTES: Final = 17
IDS: Final = {4: struct.Struct(">bi"), 8: struct.Struct(">bq")}
"""Magic byte and id."""
_INDEXES_MAX: Final = 64


class UnknownSchemaId(ValueError):
    """The source's registry does not know it; the record fails."""


class NoSchemaId(ValueError):
    """No id stands where one should be; the record fails."""


class Frame(NamedTuple):
    """A value that is taken apart."""

    schema: int | uuid.UUID
    head: bytes
    """All before the payload but the indexes; nothing where a header names the schema."""
    indexes: tuple[int, ...] | None
    """Of Protobuf: which message of the file, and which in that. None where they stand in a
    header."""
    path: tuple[int, ...]
    """The same, wherever they stand."""
    payload: bytes


def frames_of(
    batch: Any, column: Literal["key", "value"], *, id_bytes: int, has_indexes: bool = False
) -> Iterator[Frame | None]:
    """Of each record of a batch; None where there is null."""
    for field, name in zip(batch.column(column).to_pylist(), _names(batch, column), strict=True):
        yield None if field is None else _frame(field, name, column, id_bytes, has_indexes)


def changed_frames(
    batch: Any,
    column: Literal["key", "value"],
    change: Callable[[Frame], bytes],
    *,
    id_bytes: int,
    has_indexes: bool = False,
) -> Any:
    """The batch with each field of the column as `change` makes it of its frame; null stays."""
    # Slots that make no columns start without Arrow.
    import pyarrow as pa

    frames = frames_of(batch, column, id_bytes=id_bytes, has_indexes=has_indexes)
    made = [None if frame is None else change(frame) for frame in frames]
    index = batch.schema.get_field_index(column)
    return batch.set_column(index, column, pa.array(made, pa.binary()))


def _names(batch: Any, column: str) -> Sequence[bytes | None]:
    """The header that names the schema, of each record."""
    headers, mark = batch.column("headers"), GUID_HEADERS[column]
    if mark not in headers.flatten().field("key").unique().to_pylist():
        return [None] * batch.num_rows
    return [
        next((each["value"] for each in some or () if each["key"] == mark), None)
        for some in headers.to_pylist()
    ]


def _frame(
    field: bytes, name: bytes | None, column: str, id_bytes: int, has_indexes: bool
) -> Frame:
    if name is not None:
        if not (len(name) >= GUID_FRAME_BYTES and name[0] == GUID_MAGIC):
            raise NoSchemaId(f"its header {GUID_HEADERS[column]} holds no GUID")
        path = _read_indexes(name, GUID_FRAME_BYTES)[0] if has_indexes else ()
        return Frame(uuid.UUID(bytes=name[1:GUID_FRAME_BYTES]), b"", None, path, field)
    form = IDS[id_bytes]
    schema: int | uuid.UUID
    if len(field) >= form.size and field[0] == MAGIC:
        size, schema = form.size, form.unpack_from(field)[1]
    elif len(field) >= GUID_FRAME_BYTES and field[0] == GUID_MAGIC:
        size, schema = GUID_FRAME_BYTES, uuid.UUID(bytes=field[1:GUID_FRAME_BYTES])
    else:
        shown = field[: form.size].hex(" ")
        raise NoSchemaId(f"its {column} ({len(field)} bytes: {shown}) begins with no schema id")
    indexes, start = _read_indexes(field, size) if has_indexes else ((), size)
    return Frame(schema, field[:size], indexes, indexes, field[start:])


def _read_indexes(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Which message, and where what follows begins; the first message of a file is a single 0."""
    count, at = _read_zigzag(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise NoSchemaId(f"has {count} message indexes behind its schema id")
    found = []
    for _ in range(count):
        index, at = _read_zigzag(data, at)
        found.append(index)
    return tuple(found), at


def _read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise NoSchemaId("ends amid the message indexes behind its schema id")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def indexes_as_bytes(path: Sequence[int]) -> bytes:
    if tuple(path) == (0,):
        return b"\x00"
    return b"".join(map(_zigzag, (len(path), *path)))


def _zigzag(value: int) -> bytes:
    left, made = value << 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)
