"""What a schema registry holds, as values, and how its JSON is read. No I/O; runs anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

AVRO: Final = "AVRO"
"""What a registry leaves out."""


class Nonsense(ValueError):
    """An answer that is not what the published API promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    name: str
    """As the schema's text calls it."""
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    text: str
    kind: str = AVRO
    """`AVRO`, `PROTOBUF` or `JSON`."""
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A schema as one version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema

    def __str__(self) -> str:
        return f"{self.subject} version {self.version}"


def schema_json(schema: Schema) -> dict[str, Any]:
    """As a registry takes it; of Avro without its type, which the oldest ones do not know."""
    made: dict[str, Any] = {"schema": schema.text}
    if schema.kind != AVRO:
        made["schemaType"] = schema.kind
    if schema.references:
        made["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version}
            for each in schema.references
        ]
    return made


def read_schema(found: Any) -> Schema:
    fields = _object(found)
    return Schema(
        text=_text(fields, "schema"),
        kind=_text(fields, "schemaType", AVRO),
        references=tuple(_reference(each) for each in _array(fields.get("references") or [])),
    )


def read_registered(found: Any) -> Registered:
    fields = _object(found)
    return Registered(
        subject=_text(fields, "subject"),
        version=whole(fields, "version"),
        id=whole(fields, "id"),
        schema=read_schema(fields),
    )


def read_places(found: Any) -> list[tuple[str, int]]:
    """Subjects and versions."""
    return [(_text(_object(at), "subject"), whole(at, "version")) for at in _array(found)]


def read_names(found: Any) -> list[str]:
    names = _array(found)
    if not all(isinstance(name, str) for name in names):
        raise Nonsense("names that are no text")
    return names


def read_numbers(found: Any) -> list[int]:
    numbers = _array(found)
    if not all(type(number) is int for number in numbers):
        raise Nonsense("versions that are no numbers")
    return numbers


def whole(found: Any, name: str) -> int:
    value = _object(found).get(name)
    if type(value) is not int:
        raise Nonsense(f"`{name}` is no number")
    return value


def _reference(found: Any) -> Reference:
    fields = _object(found)
    return Reference(
        name=_text(fields, "name"),
        subject=_text(fields, "subject"),
        version=whole(fields, "version"),
    )


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise Nonsense("no object")
    return found


def _array(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise Nonsense("no list")
    return found


def _text(fields: dict[str, Any], name: str, default: str | None = None) -> str:
    value = fields.get(name) or default
    if not isinstance(value, str):
        raise Nonsense(f"`{name}` is no text")
    return value
