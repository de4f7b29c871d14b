"""Fields of Avro and Protobuf values, by the schemas of a registry, in every framing."""

from __future__ import annotations

import io
import json
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pytest

from heliograph.config.registry import RegistryConfig
from heliograph.errors import NotYetKnown
from heliograph.registry.schema import Schema
from heliograph.transform.avro import avro_field, avro_fields
from heliograph.transform.columns import batch_of
from heliograph.transform.fields import NoFields
from heliograph.transform.framing import NoSchemaId, UnknownSchemaId, indexes_as_bytes
from heliograph.transform.known_schemas import WholeSchema
from heliograph.transform.protobuf import ProtobufSchema, protobuf_field, protobuf_fields
from heliograph.transform.record import Where
from tests.kit.small_registry import SmallRegistry, guid_of, small_registry

WHERE = Where("orders", "A.orders", 0)
CARD = {
    "type": "record",
    "name": "Card",
    "namespace": "shop",
    "fields": [{"name": "number", "type": "string"}, {"name": "limit", "type": "int"}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "card", "type": ["null", "Card"]},
        {"name": "cards", "type": {"type": "array", "items": "Card"}},
        {"name": "email", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}
GIVEN = {
    "id": 7,
    "at": -(2**62),
    "card": {"number": "4711", "limit": 9},
    "cards": [{"number": "1", "limit": 1}, {"number": "2", "limit": 2}],
    "email": "a@b",
    "raw": b"\x00\xff",
    "kind": "B",
}
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


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bi", 0, schema_id) + payload


def batch(*values: bytes | None, headers: Any = ()) -> Any:
    contents = [(1, b"k", value, headers) for value in values]
    return batch_of(WHERE, range(len(values)), contents)


def settled(function: Callable[[Any], Any], given: Any) -> Any:
    due_s = time.monotonic() + 60
    while True:
        try:
            return function(given)
        except NotYetKnown:
            assert time.monotonic() < due_s
            time.sleep(0.005)


def changed(function: Callable[[Any], Any], *values: bytes | None, headers: Any = ()) -> Any:
    made = settled(function, batch(*values, headers=headers))
    return made.column("value").to_pylist()


# -- Avro


def in_avro(value: Any, schema: Any = ORDER) -> bytes:
    named: dict[str, Any] = {}
    fastavro.parse_schema(CARD, named_schemas=named)
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(schema, named_schemas=named), value)
    return made.getvalue()


def put_order(held: SmallRegistry, schema: Any = ORDER) -> int:
    if "card" not in held.subjects:
        held.put("card", json.dumps(CARD))
    reference = {"name": "shop.Card", "subject": "card", "version": 1}
    return held.put("orders-value", json.dumps(schema), references=[reference])


def test_fields_of_avro_are_changed_and_written_with_their_schema(held: SmallRegistry) -> None:
    order = put_order(held)
    function = avro_fields(
        held.config,
        mask=["card.number", "cards.number", "card.limit", "raw", "no.such"],
        hash=["email"],
        set={"id": 8},
        salt="s",
    )

    made, again, nothing = changed(
        function, framed(order, in_avro(GIVEN)), framed(order, in_avro(GIVEN)), None
    )

    assert nothing is None
    assert made == again
    expected = {
        **GIVEN,
        "id": 8,
        "card": {"number": "****", "limit": 0},
        "cards": [{"number": "****", "limit": 1}, {"number": "****", "limit": 2}],
        "raw": b"****",
    }
    (hashed,) = settled(avro_field(held.config, "email"), batch(made)).to_pylist()
    assert len(hashed) == 64
    assert made == framed(order, in_avro(expected | {"email": hashed}))
    without = [framed(order, in_avro(GIVEN | {"email": None}))]
    assert changed(avro_fields(held.config, hash=["email"]), *without) == without


def test_a_value_that_nothing_is_done_to_is_written_as_it_was(held: SmallRegistry) -> None:
    """Times beyond Python's, branches of unions and enums among it."""
    order = put_order(held)
    given = [framed(order, in_avro(each)) for each in (GIVEN, GIVEN | {"card": None})]

    assert changed(avro_fields(held.config), *given) == given


def test_a_dropped_field_gets_its_default_and_one_without_fails(held: SmallRegistry) -> None:
    order = put_order(held)
    given = framed(order, in_avro(GIVEN))

    dropped = changed(avro_fields(held.config, drop=["email"]), given)

    assert dropped == [framed(order, in_avro(GIVEN | {"email": None}))]
    for bad in ({"drop": ["id"]}, {"rename": {"id": "number"}}, {"set": {"new": 1}}):
        with pytest.raises(ValueError, match=r"id|new|number"):
            changed(avro_fields(held.config, **bad), given)


def test_a_field_is_renamed_by_the_schema_that_is_written_with(held: SmallRegistry) -> None:
    fields: Any = ORDER["fields"]
    later = {**ORDER, "fields": [{"name": "number", "type": "long"}, *fields[1:]]}
    order, new = put_order(held), put_order(held, later)

    made = changed(
        avro_fields(held.config, rename={"id": "number"}, write_id=new),
        framed(order, in_avro(GIVEN)),
    )

    expected = {"number": 7, **{name: each for name, each in GIVEN.items() if name != "id"}}
    assert made == [framed(new, in_avro(expected, later))]


def test_a_guid_in_a_header_names_the_schema_and_stays(held: SmallRegistry) -> None:
    put_order(held)
    guid = guid_of(json.dumps(ORDER)).bytes
    headers = (("h", b"1"), ("__value_schema_id", b"\x01" + guid))

    function = avro_fields(held.config, mask=["raw"])
    (made,) = changed(function, in_avro(GIVEN), headers=headers)
    (in_value,) = changed(function, b"\x01" + guid + in_avro(GIVEN))

    assert made == in_avro(GIVEN | {"raw": b"****"})
    assert in_value == b"\x01" + guid + made


def test_a_field_is_read_into_a_column(held: SmallRegistry) -> None:
    order = put_order(held)
    some = batch(framed(order, in_avro(GIVEN)), None, framed(order, in_avro(GIVEN | {"id": 9})))

    assert settled(avro_field(held.config, "id"), some).to_pylist() == [7, None, 9]
    assert settled(avro_field(held.config, "card.number"), some).to_pylist() == [
        "4711",
        None,
        "4711",
    ]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"abc", NoSchemaId),
        (b"", NoSchemaId),
        (b"\x03\x00" + bytes(16), NoSchemaId),
        (framed(999, b""), UnknownSchemaId),
        (framed(58, b"\x02"), NoFields),
        (framed(58, in_avro(GIVEN) + b"x"), NoFields),
    ],
)
def test_what_is_no_such_value_fails(
    held: SmallRegistry, value: bytes, why: type[Exception]
) -> None:
    assert put_order(held) == 58

    with pytest.raises(why):
        changed(avro_fields(held.config, mask=["raw"]), value)


def test_branches_of_unions_that_look_alike_stay_what_they_are(held: SmallRegistry) -> None:
    fields = [{"name": "a", "type": "string"}]
    one, two = ({"type": "record", "name": name, "fields": fields} for name in ("One", "Two"))
    color = {"type": "enum", "name": "Color", "symbols": ["RED"]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "u", "type": [one, two]}, {"name": "e", "type": ["string", color]}],
    }
    number = held.put("r", json.dumps(schema))
    given = framed(number, b"\x02\x02x\x02\x00")  # Two("x"), RED

    assert changed(avro_fields(held.config), given) == [given]
    assert changed(avro_fields(held.config, mask=["u.a"]), given) == [
        framed(number, b"\x02\x08****\x02\x00")
    ]


@pytest.mark.parametrize("path", ["card", "kind"])
def test_what_has_no_mask_fails(held: SmallRegistry, path: str) -> None:
    order = put_order(held)

    with pytest.raises((NoFields, ValueError, KeyError)):
        changed(avro_fields(held.config, mask=[path]), framed(order, in_avro(GIVEN)))


def test_a_registry_that_is_down_makes_the_lane_wait() -> None:
    function = avro_fields(RegistryConfig(urls=("http://127.0.0.1:9",), timeout_ms=100))

    with pytest.raises(NotYetKnown, match="asks the schema registry of 127"):
        function(batch(framed(1, b"")))


# -- Protobuf


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


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": "Nope"}]}, "is none"),
        (["int", "double"], "two kinds of numbers"),
    ],
)
def test_an_avro_schema_that_cannot_be_used_fails_the_record(
    held: SmallRegistry, schema: Any, why: str
) -> None:
    bad = held.put("bad", json.dumps(schema))

    with pytest.raises(NoFields, match=why):
        changed(avro_fields(held.config), framed(bad, b"\x00"))
