"""Memos as typed values: what a command notes under a subject, and how it reads. Runs anywhere.

A memo's text is a JSON object of its own version, written by `json.dumps` as it comes. Everything
kept under `memo` keys goes through here: fences, schedules and results of drills, the progress of
audits, and each step of a failover or failback (`procedure.journal`).
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter, ValidationError

from heliograph.errors import WireError
from heliograph.ledger.entries import MemoEntry, MemoKey, Tombstone
from heliograph.ledger.entry_codec import first_problem
from heliograph.ledger.view import LedgerView
from heliograph.model import OffsetRange

T = TypeVar("T")
VERSION: Final = 1


def _range(bounds: object) -> OffsetRange:
    match bounds:
        case OffsetRange():
            return bounds
        case [int(start), int(end)] if 0 <= start <= end:
            return OffsetRange(start=start, end=end)
    raise ValueError("is not a range of offsets")


OffsetPair = Annotated[
    OffsetRange, BeforeValidator(_range), PlainSerializer(lambda part: [part.start, part.end])
]
"""A range that is `[start, end]` in JSON."""


class Typed(Generic[T]):
    """A dataclass as a JSON object of its fields, in their order and by their aliases.

    Fields that a newer version added are left out of the value, as every version did so far; what
    lacks a field or has another type in it raises `WireError`.
    """

    def __init__(self, kind: Any, *, writes_null: bool = True) -> None:
        """`kind` is the dataclass `T`; without `writes_null` fields that are None are left out."""
        self._adapter: TypeAdapter[T] = TypeAdapter(kind)
        self._writes_null = writes_null

    def dump(self, value: T) -> dict[str, Any]:
        fields: dict[str, Any] = self._adapter.dump_python(
            value, mode="json", by_alias=True, exclude_none=not self._writes_null
        )
        return fields

    def load(self, subject: str, fields: object) -> T:
        """`subject` is the memo's that the fields are from."""
        try:
            return self._adapter.validate_python(fields)
        except ValidationError as exc:
            raise WireError(
                f"cannot decode ledger record memo|{subject}: {first_problem(exc)}"
            ) from exc


class Memo(Generic[T]):
    """Memos of one kind, each about one subject."""

    def __init__(self, kind: Any, *, writes_null: bool = True) -> None:
        """As `Typed`."""
        self._typed: Typed[T] = Typed(kind, writes_null=writes_null)

    def entry(self, subject: str, value: T) -> MemoEntry:
        fields = self._typed.dump(value)
        return MemoEntry(subject=subject, text=json.dumps({"v": VERSION, **fields}))

    def read(self, view: LedgerView, subject: str) -> T | None:
        """What the ledger says about it; None where it says nothing. Raises `WireError`."""
        text = view.memos.get(subject)
        return None if text is None else self.decode(subject, text)

    def decode(self, subject: str, text: str) -> T:
        # Not pydantic's JSON, which refuses half of a surrogate pair: that is how a path that is
        # no UTF-8 was written.
        return self._typed.load(subject, json.loads(text))


def forget_memo(subject: str) -> Tombstone:
    return Tombstone(key=MemoKey(subject=subject))
