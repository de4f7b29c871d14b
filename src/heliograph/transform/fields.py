"""Changes of fields, for functions on columns; those of JSON. Runs on executors.

    masked = json_fields(mask=["card.number"], hash=["email"], drop=["debug"])

is a whole transform: `A->B.transforms.m.type = my_module:masked`. `transform.avro` and
`transform.protobuf` have the same for values with a schema.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import pyarrow as pa

MASK: Final = "****"
Column = Literal["key", "value"]
_Object = dict[str, Any]


class NoFields(ValueError):
    """A value that has no fields, or not such ones; the record fails, and `on.transform.error` says
    what then."""


class NoJsonObject(NoFields):
    """Of JSON."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is done to the fields of an object, in this order."""

    mask: Sequence[str] = ()
    hash: Sequence[str] = ()
    drop: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    set: Mapping[str, Any] = field(default_factory=dict)
    salt: str = ""

    def apply(self, fields: Any, masked: Callable[[Any], Any], text: Callable[[Any], Any]) -> None:
        """To objects in objects. `masked` is what a field becomes, `text` what is hashed of it."""
        for path in self.mask:
            for holder, name in held_at(fields, path):
                holder[name] = masked(holder[name])
        for path in self.hash:
            for holder, name in held_at(fields, path):
                holder[name] = on_inside(holder[name], lambda value: self.hashed(text(value)))
        for path in self.drop:
            for holder, name in held_at(fields, path):
                del holder[name]
        for path, new in self.rename.items():
            for holder, name in held_at(fields, path):
                renamed = {new if each == name else each: value for each, value in holder.items()}
                holder.clear()
                holder.update(renamed)
        for path, value in self.set.items():
            *_, last = path.split(".")
            for holder in _holders(fields, path, makes=True):
                holder[last] = value

    def hashed(self, found: Any) -> Any:
        """In hexadecimal of text, as it is of bytes; null stays null."""
        if found is None:
            return None
        if isinstance(found, bytes):
            return hmac.new(self.salt.encode(), found, hashlib.sha256).digest()
        return hmac.new(self.salt.encode(), found.encode(), hashlib.sha256).hexdigest()


def inside(value: Any) -> Any:
    """Of a union's branch, which Avro's reader names, what is in it."""
    return value[1] if isinstance(value, tuple) else value


def on_inside(value: Any, change: Callable[[Any], Any]) -> Any:
    return (value[0], change(value[1])) if isinstance(value, tuple) else change(value)


def held_at(fields: Any, path: str) -> Iterator[tuple[_Object, str]]:
    """The objects that have the path's last name, and that; a path goes into each entry of a
    list."""
    *_, last = path.split(".")
    for holder in _holders(fields, path, makes=False):
        if last in holder:
            yield holder, last


def _holders(fields: Any, path: str, *, makes: bool) -> list[_Object]:
    *names, _ = path.split(".")
    at = _objects(fields)
    for name in names:
        found = (each.setdefault(name, {}) if makes else each.get(name) for each in at)
        at = [inner for each in found for inner in _objects(each)]
    return at


def _objects(value: Any) -> list[_Object]:
    value = inside(value)
    if isinstance(value, dict):
        return [value]
    return [each for one in value for each in _objects(one)] if isinstance(value, list) else []


def value_at(fields: Any, path: str) -> Any:
    """Of the first that has it; None where none does."""
    for holder, name in held_at(fields, path):
        return inside(holder[name])
    return None


def json_fields(
    *,
    mask: Sequence[str] = (),
    hash: Sequence[str] = (),
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,
    salt: str = "",
    column: Column = "value",
) -> Callable[[Any], Any]:
    """A transform that changes fields of JSON objects, first mask, then hash, drop, rename, set.

    Fields are named by paths, `card.number`; one that a record lacks is left alone, `set` makes it.
    A path goes into each entry of a list. A mask is the text `****`; a hash is HMAC-SHA256 with
    `salt`, in hexadecimal, of the field's text. Null stays null: a tombstone has no fields.
    """
    changes = Changes(mask, hash, drop, rename or {}, set or {}, salt)

    def apply(batch: Any) -> Any:
        index = batch.schema.get_field_index(column)
        made = [_changed(each, changes) for each in batch.column(index).to_pylist()]
        return batch.set_column(index, column, pa.array(made, pa.binary()))

    return apply


def json_field(path: str, *, column: Column = "value", type: Any = None) -> Callable[[Any], Any]:
    """Reads a field: a function that makes one Arrow column of a batch, null where a record lacks
    the field. `type` is Arrow's; without one it follows from what is found."""

    def read(batch: Any) -> Any:
        found = (None if each is None else _object(each) for each in _column(batch, column))
        return pa.array([None if each is None else value_at(each, path) for each in found], type)

    return read


def _column(batch: Any, column: str) -> list[bytes | None]:
    return batch.column(column).to_pylist()  # type: ignore[no-any-return]


def _object(found: bytes) -> _Object:
    try:
        fields = json.loads(found)
    except ValueError as exc:
        raise NoJsonObject("not JSON") from exc
    if not isinstance(fields, dict):
        raise NoJsonObject(f"JSON, but no object: {type(fields).__name__}")
    return fields


def _changed(found: bytes | None, changes: Changes) -> bytes | None:
    if found is None:
        return None
    fields = _object(found)
    changes.apply(fields, lambda _: MASK, _text)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)
