"""Changes of JSON fields, for functions on columns. Runs on executors.

    masked = json_fields(mask=["card.number"], hash=["email"], drop=["debug"])

is a whole transform: `A->B.transforms.m.type = my_module:masked`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import pyarrow as pa

MASK: Final = "****"
_Object = dict[str, Any]
_Change = Callable[[_Object, str], None]


class NoJsonObject(ValueError):
    """A value that has no fields; the record fails, and `on.transform.error` says what then."""


def json_fields(
    *,
    mask: Sequence[str] = (),
    hash: Sequence[str] = (),
    drop: Sequence[str] = (),
    rename: Mapping[str, str] | None = None,
    set: Mapping[str, Any] | None = None,
    salt: str = "",
    column: Literal["key", "value"] = "value",
) -> Callable[[Any], Any]:
    """A transform that changes fields of JSON objects, first mask, then hash, drop, rename, set.

    Fields are named by paths, `card.number`; one that a record lacks is left alone, `set` makes it.
    A mask is the text `****`; a hash is HMAC-SHA256 with `salt`, in hexadecimal, of the field's
    text. Null stays null: a tombstone has no fields.
    """
    changes: list[tuple[_Change, str]] = [
        *((_mask, path) for path in mask),
        *((_hash_with(salt.encode()), path) for path in hash),
        *((_drop, path) for path in drop),
        *((_rename_to(name), path) for path, name in (rename or {}).items()),
    ]
    settings = dict(set or {})

    def apply(batch: Any) -> Any:
        index = batch.schema.get_field_index(column)
        made = [_changed(each, changes, settings) for each in batch.column(index).to_pylist()]
        return batch.set_column(index, column, pa.array(made, pa.binary()))

    return apply


def _changed(
    found: bytes | None, changes: Sequence[tuple[_Change, str]], settings: Mapping[str, Any]
) -> bytes | None:
    if found is None:
        return None
    try:
        fields = json.loads(found)
    except ValueError as exc:
        raise NoJsonObject("not JSON") from exc
    if not isinstance(fields, dict):
        raise NoJsonObject(f"JSON, but no object: {type(fields).__name__}")
    for change, path in changes:
        holder, name = _holder(fields, path)
        if holder is not None and name in holder:
            change(holder, name)
    for path, value in settings.items():
        holder, name = _holder(fields, path, makes=True)
        if holder is not None:
            holder[name] = value
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _holder(fields: _Object, path: str, *, makes: bool = False) -> tuple[_Object | None, str]:
    """The object that has the last name of the path."""
    *names, last = path.split(".")
    at: Any = fields
    for name in names:
        at = at.setdefault(name, {}) if makes else at.get(name)
        if not isinstance(at, dict):
            return None, last
    return at, last


def _mask(holder: _Object, name: str) -> None:
    holder[name] = MASK


def _drop(holder: _Object, name: str) -> None:
    del holder[name]


def _hash_with(salt: bytes) -> _Change:
    def change(holder: _Object, name: str) -> None:
        value = holder[name]
        if value is not None:
            text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
            holder[name] = hmac.new(salt, text.encode(), hashlib.sha256).hexdigest()

    return change


def _rename_to(new: str) -> _Change:
    def change(holder: _Object, name: str) -> None:
        renamed = {new if each == name else each: value for each, value in holder.items()}
        holder.clear()
        holder.update(renamed)

    return change
