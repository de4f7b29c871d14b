"""Fields of Avro values, by the schemas of a registry, for functions on columns. Runs on executors.

    schemas = registry("https://registry.a.example:8081")
    masked = avro_fields(schemas, mask=["card.number"], hash=["email"])

is a whole transform, as `transform.fields` has it for JSON. Needs the extra `formats`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from heliograph.config.registry import RegistryConfig
from heliograph.transform.fields import MASK, Changes, Column, NoFields, on_inside, value_at
from heliograph.transform.framing import IDS, MAGIC, Frame, NoSchemaId, changed_frames, frames_of
from heliograph.transform.known_schemas import WholeSchema, known_schemas, registry

__all__ = ["avro_field", "avro_fields", "registry"]

_NUMBERS: Final = ("int", "long", "float", "double")
_NESTED: Final = ("fields", "items", "values", "type")


class AvroSchema:
    """One that values are read and written by."""

    def __init__(self, whole: WholeSchema) -> None:
        if whole.schema.kind != "AVRO":
            raise NoFields(f"its schema is {whole.schema.kind}, not AVRO")
        named: dict[str, Any] = {}
        try:
            for _, each in whole.needed:
                fastavro.parse_schema(_plain(json.loads(each.text)), named_schemas=named)
            plain = _plain(json.loads(whole.schema.text))
            self._parsed = fastavro.parse_schema(plain, named_schemas=named)
        except (SchemaParseException, UnknownType) as exc:
            raise NoFields(f"its schema is none: {exc}") from exc

    def read(self, payload: bytes) -> Any:
        at = io.BytesIO(payload)
        try:
            found = fastavro.schemaless_reader(at, self._parsed, None, return_named_type=True)
        except (EOFError, IndexError) as exc:
            raise NoFields("ends before its schema does") from exc
        left = len(payload) - at.tell()
        if left:
            raise NoFields(f"{left} bytes stand behind what its schema describes")
        return found

    def write(self, value: Any) -> bytes:
        """Exactly the schema's fields, but for those with a default."""
        made = io.BytesIO()
        fastavro.schemaless_writer(made, self._parsed, value, strict_allow_default=True)
        return made.getvalue()


def _plain(schema: Any) -> Any:
    """Without logical types: a time stays the number that it is, and is written as it was."""
    if isinstance(schema, list):
        kinds = [each.get("type") if isinstance(each, dict) else each for each in schema]
        if sum(kind in _NUMBERS for kind in kinds if isinstance(kind, str)) > 1:
            raise NoFields("its schema has a union of two kinds of numbers, which Python has not")
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _plain(value) if name in _NESTED else value
        for name, value in schema.items()
        if name != "logicalType"
    }


def avro_fields(
    schemas: RegistryConfig,
    *,
    mask: Sequence[str] = (),
    hash: Sequence[str] = (),
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,
    salt: str = "",
    column: Column = "value",
    id_bytes: int = 4,
    write_id: int | None = None,
) -> Callable[[Any], Any]:
    """A transform that changes fields of Avro values, and writes them with the schema they came
    with, or with `write_id` of the same registry.

    A mask is `****` in text and bytes, 0 in numbers, false in booleans; a hash is text or bytes; a
    field that is dropped gets its default. What the schema does not hold fails the record.
    """
    changes = Changes(mask, hash, drop, rename or {}, set or {}, salt)
    known = known_schemas(schemas, AvroSchema)

    def change(frame: Frame) -> bytes:
        fields = known.get(frame.schema).read(frame.payload)
        changes.apply(fields, masked, hashable)
        if write_id is None:
            return frame.head + known.get(frame.schema).write(fields)
        if not isinstance(frame.schema, int):
            raise NoSchemaId("is named by a GUID, and cannot be written with another schema's id")
        return IDS[id_bytes].pack(MAGIC, write_id) + known.get(write_id).write(fields)

    def apply(batch: Any) -> Any:
        return changed_frames(batch, column, change, id_bytes=id_bytes)

    return apply


def avro_field(
    schemas: RegistryConfig,
    path: str,
    *,
    column: Column = "value",
    type: Any = None,
    id_bytes: int = 4,
) -> Callable[[Any], Any]:
    """Reads a field, as `json_field` does; of logical types what they are made of."""
    known = known_schemas(schemas, AvroSchema)

    def read(batch: Any) -> Any:
        found = [
            None if frame is None else value_at(known.get(frame.schema).read(frame.payload), path)
            for frame in frames_of(batch, column, id_bytes=id_bytes)
        ]
        return pa.array(found, type)

    return read


def masked(value: Any) -> Any:
    """What hides a value of the same kind."""
    match value:
        case None:
            return None
        case tuple():
            return on_inside(value, masked)
        case list():
            return [masked(each) for each in value]
        case str():
            return MASK
        case bytes():
            return MASK.encode()
        case bool() | int() | float():
            return type(value)(0)
    raise NoFields("an object cannot be masked; mask its fields, or drop it")


def hashable(value: Any) -> str | bytes | None:
    if value is None or isinstance(value, str | bytes):
        return value
    raise NoFields(f"a hash is text or bytes, and the field is {type(value).__name__}")
