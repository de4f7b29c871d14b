"""Fields of Avro values, by the schemas of a registry, in every framing."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest

from heliograph.config.registry import RegistryConfig
from heliograph.errors import NotYetKnown
from heliograph.transform.avro import avro_field, avro_fields
from heliograph.transform.fields import NoFields
from heliograph.transform.framing import NoSchemaId, UnknownSchemaId
from tests.kit.framed import batch, changed, framed, settled
from tests.kit.small_registry import SmallRegistry, guid_of, small_registry

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


@pytest.fixture
def held() -> Iterator[SmallRegistry]:
    with small_registry(first_id=57) as found:
        yield found


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
