"""Ids of schemas exchanged in records, in every framing there is."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Mapping

import pytest

from heliograph.config.registry import RegistryConfig
from heliograph.config.transforms import SchemaIdsConfig
from heliograph.errors import NotYetKnown
from heliograph.model import ClusterAlias
from heliograph.transform.framing import NoSchemaId, UnknownSchemaId
from heliograph.transform.lane import LaneTransform, _LaneStep
from heliograph.transform.record import Where
from heliograph.transform.schema_ids import SchemaIds, schema_ids
from heliograph.wire.opened import Content

WHERE = Where("orders", "orders", 0)
GUID = uuid.UUID(int=0x0102030405060708090A0B0C0D0E0F10).bytes
_SETTINGS = {"source": ClusterAlias("A"), "target": ClusterAlias("B")}


def step(ids: Mapping[int, int | None], **settings: object) -> SchemaIds:
    return SchemaIds(SchemaIdsConfig.model_validate({**_SETTINGS, **settings}), ids.__getitem__)


def framed(schema_id: int, payload: bytes = b"payload") -> bytes:
    return struct.pack(">bi", 0, schema_id) + payload


def record(value: bytes | None, key: bytes | None = b"k", **headers: bytes) -> Content:
    return 1_000, key, value, tuple(headers.items())


def made(ids: SchemaIds, *contents: Content) -> list[Content | None]:
    return ids(WHERE, range(len(contents)), contents)


@pytest.mark.parametrize(
    "payload", [b"", b"avro", b"\x00proto", b"\x04\x02\x00proto"], ids=["empty", "avro", "p0", "p2"]
)
def test_the_id_of_a_value_is_exchanged_and_what_follows_stays(payload: bytes) -> None:
    """Of Protobuf that is the array of message indexes: `00` alone is the first message."""
    ids = step({57: 9})

    assert made(ids, record(framed(57, payload))) == [record(framed(9, payload))]


def test_an_id_that_stays_makes_no_other_record() -> None:
    given = record(framed(57))

    (found,) = made(step({57: 57}), given)

    assert found is given


def test_keys_are_exchanged_where_they_are_asked_for_and_left_alone_else() -> None:
    """A key that is a long begins like an id."""
    given = record(framed(57), key=framed(57, b"abc"))

    assert made(step({57: 9}), given) == [record(framed(9), key=framed(57, b"abc"))]
    assert made(step({57: 9}, parts=("key",)), given) == [record(framed(57), framed(9, b"abc"))]
    both = step({57: 9}, parts=("key", "value"))
    assert made(both, given) == [record(framed(9), framed(9, b"abc"))]


def test_null_keys_and_tombstones_stay() -> None:
    given = record(None, key=None)

    assert made(step({}, parts=("key", "value")), given) == [given]


@pytest.mark.parametrize(
    "value",
    [b"\x01" + GUID + b"payload", b"\x03\x00" + GUID + b"payload", b"\x03\x05" + GUID],
    ids=["guid", "glue", "glue compressed"],
)
def test_guids_mean_the_same_everywhere_and_stay(value: bytes) -> None:
    assert made(step({}), record(value)) == [record(value)]


def test_a_value_whose_guid_is_in_a_header_is_payload_whatever_it_begins_with() -> None:
    given = record(framed(57), __value_schema_id=b"\x01" + GUID)
    of_key = record(framed(57), __key_schema_id=b"\x01" + GUID)

    assert made(step({57: 9}), given, of_key) == [
        given,
        record(framed(9), __key_schema_id=b"\x01" + GUID),
    ]


def test_ids_of_eight_bytes_are_exchanged_too() -> None:
    given, wanted = (struct.pack(">bq", 0, number) + b"x" for number in (1 << 40, 7))

    assert made(step({1 << 40: 7}, id_bytes=8), record(given)) == [record(wanted)]


@pytest.mark.parametrize("value", [b"", b"\x00\x00\x01", b"{}", b"\x03\x07abc", b"\x01short"])
def test_bytes_without_an_id_fail_or_pass(value: bytes) -> None:
    with pytest.raises(NoSchemaId, match="begins with no schema id"):
        made(step({}), record(value))
    assert made(step({}, on_unframed="pass"), record(value)) == [record(value)]


def test_an_id_that_nobody_knows_fails_or_passes() -> None:
    with pytest.raises(UnknownSchemaId, match="schema id 57, which the source's registry"):
        made(step({57: None}), record(framed(57)))
    assert made(step({57: None}, on_unknown="pass"), record(framed(57))) == [record(framed(57))]


def test_what_is_not_known_yet_is_neither_kept_nor_given_up() -> None:
    answers: list[int | None] = []

    def lookup(_: int) -> int | None:
        if not answers:
            raise NotYetKnown("asking")
        return answers.pop()

    ids = SchemaIds(SchemaIdsConfig.model_validate(_SETTINGS), lookup)
    with pytest.raises(NotYetKnown):
        made(ids, record(framed(57)))
    answers.append(9)

    assert made(ids, record(framed(57))) == [record(framed(9))]
    assert made(ids, record(framed(57))) == [record(framed(9))]


def test_who_waits_for_a_registry_that_is_down_is_told_so_soon() -> None:
    """An audit for example, which has nothing else to do."""
    down = RegistryConfig(urls=("http://127.0.0.1:9",), timeout_ms=200)
    ids = schema_ids(SchemaIdsConfig.model_validate(_SETTINGS), down, down)
    transform = LaneTransform([_LaneStep("ids", ids, None)], WHERE)
    began_s = time.monotonic()

    with pytest.raises(NotYetKnown, match="schema registry of A: does not serve"):
        transform.apply_patiently([0], [record(framed(57))])

    assert time.monotonic() - began_s < 30
