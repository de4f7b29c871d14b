"""Memos as typed values: the bytes, what is refused and how the refusal reads."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.memo import Memo, OffsetPair, forget_memo
from heliograph.ledger.view import LedgerView
from heliograph.model import OffsetRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    number: int
    text: str
    part: OffsetPair | None = None


NOTES: Memo[Note] = Memo(Note)
NOTE = Note(number=1, text="ü", part=OffsetRange(start=3, end=5))


def view_of(text: str) -> LedgerView:
    view = LedgerView()
    view.apply_record(*encode(MemoEntry(subject="a/b", text=text)))
    return view


def test_a_memo_is_an_object_with_its_version_first_in_ascii() -> None:
    entry = NOTES.entry("a/b", NOTE)

    assert entry.text == '{"v": 1, "number": 1, "text": "\\u00fc", "part": [3, 5]}'
    assert NOTES.read(view_of(entry.text), "a/b") == NOTE


def test_a_subject_without_a_memo_reads_as_none() -> None:
    view = view_of(NOTES.entry("a/b", NOTE).text)

    view.apply_record(encode_key(forget_memo("a/b").key), None)

    assert NOTES.read(view, "a/b") is None


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{}", "number"),
        ('{"number": 1, "text": null}', "text"),
        ('{"number": "x", "text": ""}', "number"),
        ('{"number": 1, "text": "", "part": [5, 3]}', "part"),
        ('{"number": 1, "text": "", "part": [-1, 3]}', "part"),
        ('{"number": 1, "text": "", "part": 3}', "part"),
    ],
)
def test_a_memo_that_cannot_be_decoded_is_named_with_its_field(text: str, field: str) -> None:
    with pytest.raises(WireError, match=rf"^cannot decode ledger record memo\|a/b: {field}: "):
        NOTES.read(view_of(text), "a/b")


def test_fields_of_a_newer_version_are_left_out() -> None:
    view = view_of('{"v": 2, "number": 1, "text": "ü", "part": [3, 5], "more": {}}')

    assert NOTES.read(view, "a/b") == NOTE


def test_a_path_that_is_no_utf_8_comes_back_as_it_was() -> None:
    note = Note(number=1, text="/saved/\udcff")

    assert NOTES.read(view_of(NOTES.entry("a/b", note).text), "a/b") == note
