"""Fields of Protobuf messages, by the schemas of a registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from heliograph.registry.schema import Schema
from heliograph.transform.fields import NoFields
from heliograph.transform.framing import NoSchemaId, indexes_as_bytes
from heliograph.transform.known_schemas import WholeSchema
from heliograph.transform.protobuf import ProtobufSchema, protobuf_field, protobuf_fields
from tests.kit.framed import batch, changed, framed, settled
from tests.kit.small_registry import SmallRegistry, small_registry

PROTO = """syntax = "proto3"; package shop; import "cards/card.proto";
message Other { string x = 1; message Order { int64 id = 1; Card card = 2; repeated Card cards = 3;
optional string email = 4; bytes raw = 5; map<string, string> labels = 6; string mail = 7;
enum Kind { A = 0; B = 1; } Kind kind = 8; } }"""
CARD_PROTO = 'syntax = "proto3"; package shop; message Card { string number = 1; int32 limit = 2; }'
REFERENCE = {"references": [{"name": "cards/card.proto", "subject": "card", "version": 1}]}


@pytest.fixture
def held() -> Iterator[SmallRegistry]:
    with small_registry(first_id=57) as found:
        yield found


def put_proto(held: SmallRegistry, text: str = PROTO) -> int:
    if "card" not in held.subjects:
        held.put("card", CARD_PROTO, schemaType="PROTOBUF")
    return held.put("orders-value", text, schemaType="PROTOBUF", **REFERENCE)


def message_class(text: str = PROTO, path: tuple[int, ...] = (0, 0)) -> Any:
    card = Schema(text=CARD_PROTO, kind="PROTOBUF")
    whole = WholeSchema(Schema(text=text, kind="PROTOBUF"), (("cards/card.proto", card),))
    return ProtobufSchema(whole).message_at(path)


def order_message(kind: Any, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "id": 7,
        "card": {"number": "4711", "limit": 9},
        "cards": [{"number": "1"}, {"number": "2"}],
        "email": "a@b",
        "raw": b"\xff",
        "labels": {"b": "2", "a": "1"},
        "kind": 1,
    }
    message = kind(**{**fields, **changes})
    return bytes(message.SerializeToString(deterministic=True))


def test_fields_of_protobuf_are_changed_and_all_else_stays(held: SmallRegistry) -> None:
    order, kind = put_proto(held), message_class()
    unknown = b"\xa2\x06\x03new"  # field 100, which the schema does not know
    head = indexes_as_bytes((0, 0))
    function = protobuf_fields(
        held.config,
        mask=["card.number", "cards.number", "card.limit", "raw", "no.such"],
        hash=["email"],
        drop=["labels"],
        set={"id": 8},
    )

    made, nothing = changed(function, framed(order, head + order_message(kind) + unknown), None)

    assert nothing is None
    assert made[: 5 + len(head)] == framed(order, head)
    found = kind.FromString(made[5 + len(head) :])
    expected = order_message(
        kind,
        id=8,
        card={"number": "****", "limit": 0},
        cards=[{"number": "****"}, {"number": "****"}],
        raw=b"****",
        labels={},
        email=found.email,
    )
    assert len(found.email) == 64
    assert made[5 + len(head) :] == expected + unknown


def test_protobuf_is_renamed_to_another_field_and_read_into_a_column(held: SmallRegistry) -> None:
    order, kind = put_proto(held), message_class()
    given = framed(order, indexes_as_bytes((0, 0)) + order_message(kind))

    (made,) = changed(protobuf_fields(held.config, rename={"email": "mail"}), given)

    some = batch(made, None)
    assert settled(protobuf_field(held.config, "mail"), some).to_pylist() == ["a@b", None]
    assert settled(protobuf_field(held.config, "email"), some).to_pylist() == [None, None]
    with pytest.raises(NoFields, match="has no field nowhere"):
        changed(protobuf_fields(held.config, set={"nowhere": "x"}), given)
    with pytest.raises(NoFields, match="no mask"):
        changed(protobuf_fields(held.config, mask=["kind"]), given)


def test_protobuf_is_written_with_a_later_schema_by_the_messages_name(held: SmallRegistry) -> None:
    later = PROTO.replace("message Other {", "message First {} message Other {").replace(
        "email = 4", "address = 4"
    )
    order, new = put_proto(held), put_proto(held, later)
    given = framed(order, indexes_as_bytes((0, 0)) + order_message(message_class()))

    (made,) = changed(protobuf_fields(held.config, mask=["email"], write_id=new), given)

    head = framed(new, indexes_as_bytes((1, 0)))
    assert made.startswith(head)
    assert message_class(later, (1, 0)).FromString(made[len(head) :]).address == "****"


@pytest.mark.parametrize("value", [b"\x04\x00\x08", b"\x02\x0a", b"", b"\x04\x00\x00\xff"])
def test_bytes_that_are_no_such_message_fail(held: SmallRegistry, value: bytes) -> None:
    order = put_proto(held)

    with pytest.raises((NoSchemaId, NoFields)):
        changed(protobuf_fields(held.config, mask=["raw"]), framed(order, value))


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("syntax = nothing;", "PROTOBUF", "cannot be compiled"),
        ('{"type": "object"}', "JSON", "its schema is JSON, not"),
    ],
)
def test_a_schema_that_cannot_be_used_fails_the_record(
    held: SmallRegistry, text: str, kind: str, why: str
) -> None:
    bad = held.put("bad", text, schemaType=kind)

    with pytest.raises(NoFields, match=why):
        changed(protobuf_fields(held.config, mask=["raw"]), framed(bad, b"\x00"))
