"""Fields of Protobuf values, by the schemas of a registry, for functions on columns. Executors.

    schemas = registry("https://registry.a.example:8081")
    masked = protobuf_fields(schemas, mask=["card.number"], hash=["email"])

is a whole transform, as `transform.fields` has it for JSON. Needs the extra `formats`. Fields that
a schema does not know stay as they are.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from heliograph.config.registry import RegistryConfig
from heliograph.transform.avro import hashable, masked
from heliograph.transform.fields import Changes, Column, NoFields
from heliograph.transform.framing import (
    IDS,
    MAGIC,
    Frame,
    NoSchemaId,
    changed_frames,
    frames_of,
    indexes_as_bytes,
)
from heliograph.transform.known_schemas import WholeSchema, known_schemas, registry

__all__ = ["protobuf_field", "protobuf_fields", "registry"]

_MAIN: Final = "heliograph_schema_itself.proto"
_COMPILE_S_MAX: Final = 60


class ProtobufSchema:
    """A file of messages, compiled."""

    def __init__(self, whole: WholeSchema) -> None:
        if whole.schema.kind != "PROTOBUF":
            raise NoFields(f"its schema is {whole.schema.kind}, not PROTOBUF")
        found = _compiled(whole)
        self._pool, self._file = DescriptorPool(), found.file[-1]
        for each in found.file:
            self._pool.Add(each)

    def message_at(self, path: Sequence[int]) -> Any:
        """The class of the message that indexes name."""
        package, names, at = self._file.package, [], self._file.message_type
        for index in path:
            if not 0 <= index < len(at):
                raise NoSchemaId(f"has message indexes {list(path)}, which its schema lacks")
            names.append(at[index].name)
            at = at[index].nested_type
        return self._class_of(".".join([package, *names] if package else names))

    def message_named(self, name: str) -> tuple[tuple[int, ...], Any]:
        """Its indexes and class."""
        package, at, path = self._file.package, self._file.message_type, []
        for part in name.removeprefix(f"{package}." if package else "").split("."):
            row = next((row for row, each in enumerate(at) if each.name == part), None)
            if row is None:
                raise NoFields(f"the schema to write with has no message {name}")
            path.append(row)
            at = at[row].nested_type
        return tuple(path), self._class_of(name)

    def _class_of(self, name: str) -> Any:
        return GetMessageClass(self._pool.FindMessageTypeByName(name))


def _compiled(whole: WholeSchema) -> Any:
    """By protoc, in a process of its own: schemas come as text from elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        for name, schema in (*whole.needed, (_MAIN, whole.schema)):
            if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
                raise NoFields(f"its schema refers to {name}, which is no name of a file")
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(schema.text)
        out, known = Path(folder, "compiled.bin"), files("grpc_tools") / "_proto"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{known}"]
        command += ["--include_imports", f"--descriptor_set_out={out}", _MAIN]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMPILE_S_MAX)
        if done.returncode:
            raise NoFields(f"its schema cannot be compiled: {done.stderr.strip()[-300:]}")
        return FileDescriptorSet.FromString(out.read_bytes())


def protobuf_fields(
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
    """A transform that changes fields of Protobuf messages, and writes them with the schema they
    came with, or the message of the same name with `write_id` of the same registry.

    A mask is `****` in text and bytes, 0 in numbers, false in booleans; a hash is text or bytes.
    To rename moves a value to another field of the schema it is written with, which `set` takes
    its fields from as well.
    """
    changes = Changes(mask, hash, drop, rename or {}, set or {}, salt)
    known = known_schemas(schemas, ProtobufSchema)

    def change(frame: Frame) -> bytes:
        message = _parsed(known.get(frame.schema).message_at(frame.path), frame.payload)
        _hide(message, changes)
        head = frame.head
        if frame.indexes is not None:
            head += indexes_as_bytes(frame.indexes)
        if write_id is not None:
            if frame.indexes is None or not isinstance(frame.schema, int):
                raise NoSchemaId("is named by a GUID, and cannot be written with another's id")
            path, kind = known.get(write_id).message_named(message.DESCRIPTOR.full_name)
            message = _parsed(kind, _written(message))
            head = IDS[id_bytes].pack(MAGIC, write_id) + indexes_as_bytes(path)
        _rename_and_set(message, changes)
        return head + _written(message)

    def apply(batch: Any) -> Any:
        return changed_frames(batch, column, change, id_bytes=id_bytes, has_indexes=True)

    return apply


def protobuf_field(
    schemas: RegistryConfig,
    path: str,
    *,
    column: Column = "value",
    type: Any = None,
    id_bytes: int = 4,
) -> Callable[[Any], Any]:
    """Reads a field that is no message, as `json_field` does."""
    known = known_schemas(schemas, ProtobufSchema)

    def read(batch: Any) -> Any:
        found = []
        for frame in frames_of(batch, column, id_bytes=id_bytes, has_indexes=True):
            value = None
            if frame is not None:
                message = _parsed(known.get(frame.schema).message_at(frame.path), frame.payload)
                value = next((getattr(*each) for each in _held_at(message, path)), None)
            found.append(value)
        return pa.array(found, type)

    return read


def _parsed(kind: Any, payload: bytes) -> Any:
    try:
        return kind.FromString(payload)
    except DecodeError as exc:
        raise NoFields(f"is no {kind.DESCRIPTOR.full_name}") from exc


def _written(message: Any) -> bytes:
    """Maps in one order, always: an audit compares what is made twice."""
    return bytes(message.SerializeToString(deterministic=True))


def _hide(message: Any, changes: Changes) -> None:
    for path in changes.mask:
        for holder, name in _held_at(message, path):
            _put(holder, name, _masked(holder, name))
    for path in changes.hash:
        for holder, name in _held_at(message, path):
            _put(holder, name, changes.hashed(hashable(getattr(holder, name))))
    for path in changes.drop:
        for holder, name in _held_at(message, path):
            holder.ClearField(name)


def _masked(holder: Any, name: str) -> Any:
    field, value = holder.DESCRIPTOR.fields_by_name[name], getattr(holder, name)
    if field.message_type is not None or field.enum_type is not None:
        raise NoFields(f"{name} is a message or an enum, which has no mask; mask fields, or drop")
    return masked(list(value) if field.is_repeated else value)


def _rename_and_set(message: Any, changes: Changes) -> None:
    for path, new in changes.rename.items():
        for holder, name in _held_at(message, path):
            value = getattr(holder, name)
            _put(holder, new, value)
            holder.ClearField(name)
    for path, value in changes.set.items():
        *_, last = path.split(".")
        for holder in _holders(message, path, makes=True):
            _put(holder, last, value)


def _put(holder: Any, name: str, value: Any) -> None:
    field = holder.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        raise NoFields(f"{holder.DESCRIPTOR.full_name} has no field {name}")
    if field.is_repeated:
        values = list(value)
        holder.ClearField(name)
        getattr(holder, name).extend(values)
    elif field.message_type is not None:
        getattr(holder, name).CopyFrom(value)
    else:
        setattr(holder, name, value)


def _held_at(message: Any, path: str) -> Iterator[tuple[Any, str]]:
    """The messages in which the path's last field is set."""
    *_, last = path.split(".")
    for holder in _holders(message, path, makes=False):
        if any(field.name == last for field, _ in holder.ListFields()):
            yield holder, last


def _holders(message: Any, path: str, *, makes: bool) -> list[Any]:
    *names, _ = path.split(".")
    at = [message]
    for name in names:
        at = [inner for each in at for inner in _inner(each, name, makes=makes)]
    return at


def _inner(message: Any, name: str, *, makes: bool) -> list[Any]:
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None or field.message_type is None:
        return []
    value = getattr(message, name)
    if field.message_type.GetOptions().map_entry:
        of_entry = field.message_type.fields_by_name["value"]
        return list(value.values()) if of_entry.message_type is not None else []
    if field.is_repeated:
        return list(value)
    return [value] if makes or message.HasField(name) else []
