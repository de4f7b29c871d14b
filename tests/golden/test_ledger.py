"""Ledger records that an earlier version wrote: today's code reads and writes the same bytes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from heliograph.ledger.entry_codec import decode, decode_key, encode, encode_key

GOLDEN: Final = json.loads((Path(__file__).parent / "ledger-eeaabf2.json").read_text())
RECORDS: Final[list[dict[str, Any]]] = GOLDEN["records"]
KINDS: Final = ("flow", "lease", "start", "head", "run", "loss", "acl", "memo")


def key_of(row: dict[str, Any]) -> bytes:
    return str(row["key"]).encode()


def value_of(row: dict[str, Any]) -> bytes | None:
    text = row["value"]
    if text is None:
        return None
    return bytes.fromhex(text) if key_of(row).startswith(b"run|") else str(text).encode()


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [row for row in RECORDS if row["key"].startswith(f"{kind}|")]


@pytest.mark.parametrize("kind", KINDS)
def test_records_of_an_earlier_version_are_read_as_it_read_them(kind: str) -> None:
    for row in of_kind(kind):
        entry = decode(key_of(row), value_of(row))

        # Through JSON, as the file was: tuples are lists there and enums their values.
        found = None if entry is None else [type(entry).__name__, asdict(entry)]
        assert json.loads(json.dumps(found)) == row["decoded"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_is_written_to_the_very_same_bytes(kind: str) -> None:
    for row in of_kind(kind):
        entry = decode(key_of(row), value_of(row))

        assert encode_key(decode_key(key_of(row))) == key_of(row)
        if entry is not None:
            assert encode(entry) == (key_of(row), value_of(row))


def test_the_golden_file_has_every_kind_with_and_without_what_may_be_left_out() -> None:
    fields = {kind: {row["value"] is None for row in of_kind(kind)} for kind in KINDS}
    starts = [row["decoded"][1] for row in of_kind("start") if row["decoded"]]

    assert fields == {kind: {False, True} for kind in KINDS}
    assert {(start["adopted"], start["source_topic_id"] is None) for start in starts} == {
        (adopted, is_unknown) for adopted in (False, True) for is_unknown in (False, True)
    }
