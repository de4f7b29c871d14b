"""Ledger records that an earlier version wrote: today's code reads and writes the same bytes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from heliograph.audit.plan import (
    AuditEndNote,
    end_memo,
    lane_memo,
    note_of,
    repairs_memo,
    repairs_of,
)
from heliograph.ledger.drill_note import last_memo, last_of, schedule_memo, schedule_of
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.entry_codec import decode, decode_key, encode, encode_key
from heliograph.ledger.fence import fence_entry, fence_of
from heliograph.ledger.memo import Memo
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName, TopicPartition

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


def written_again(view: LedgerView, subject: str) -> MemoEntry | None:
    """What is read of a memo by the module that owns its subject, as that module writes it."""
    head, *rest = subject.split("/")
    if head == "fence":
        fence = fence_of(view)
        return None if fence is None else fence_entry(fence)
    if head == "drill":
        schedule = schedule_of(view)
        return None if schedule is None else schedule_memo(schedule)
    if head == "drill.last":
        last = last_of(view)
        return None if last is None else last_memo(last)
    if not rest:
        end = Memo[AuditEndNote](AuditEndNote).read(view, subject)
        if end is None:
            return None
        return end_memo(at_ms=end.at_ms, records=end.records, counts=end.findings)
    lane = TopicPartition(topic=TopicName(rest[0]), partition=int(rest[1]))
    if head == "audit.repaired":
        return repairs_memo(lane, repairs_of(view, lane))
    note = note_of(view, lane)
    return None if note is None else lane_memo(lane, note)


@pytest.mark.parametrize("owner", ["fence", "drill", "drill.last", "audit", "audit.repaired"])
def test_memos_of_an_earlier_version_are_read_and_written_to_the_same_bytes(owner: str) -> None:
    rows = [
        row
        for row in of_kind("memo")
        if row["key"].removeprefix("memo|").split("/")[0] == owner and row["value"] is not None
    ]

    assert len(rows) > 1
    for row in rows:
        view = LedgerView()
        view.apply_record(key_of(row), value_of(row))
        entry = written_again(view, row["key"].removeprefix("memo|"))

        assert entry is not None
        assert encode(entry) == (key_of(row), value_of(row))
