"""The ids of schemas on both sides, as the ledger keeps them. Runs anywhere.

memo|schema-ids/<n>      ids of the source from 1000 n on, each with the target's
memo|schemas-importing   subjects of the target that are in import mode for a moment
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from heliograph.errors import WireError
from heliograph.ledger.entries import Entry, Tombstone
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView
from heliograph.schemas.copying import Importing

_IDS: Final = "schema-ids/"
_IMPORTING: Final = "schemas-importing"
_IDS_PER_NOTE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ids:
    ids: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Importing:
    subjects: tuple[Importing, ...]


_MEMO: Final[Memo[_Ids]] = Memo(_Ids)
_IMPORTING_MEMO: Final[Memo[_Importing]] = Memo(_Importing)


def schema_ids_of(view: LedgerView) -> dict[int, int]:
    """Of the source, and on the target; a note that cannot be read is written again."""
    found: dict[int, int] = {}
    for subject in view.memos:
        if subject.startswith(_IDS):
            try:
                note = _MEMO.read(view, subject)
            except WireError:
                continue
            found.update(note.ids if note is not None else ())
    return found


def schema_ids_entries(before: Mapping[int, int], after: Mapping[int, int]) -> list[Entry]:
    """Notes that differ, whole. What was known stays: records with an old id may still come."""
    together = {**before, **after}
    changed = {number // _IDS_PER_NOTE for number, to in after.items() if before.get(number) != to}
    return [
        _MEMO.entry(
            f"{_IDS}{bucket}",
            _Ids(
                ids=tuple(
                    sorted(pair for pair in together.items() if pair[0] // _IDS_PER_NOTE == bucket)
                )
            ),
        )
        for bucket in sorted(changed)
    ]


def importing_of(view: LedgerView) -> tuple[Importing, ...]:
    found = _IMPORTING_MEMO.read(view, _IMPORTING)
    return () if found is None else found.subjects


def importing_entry(subjects: Iterable[Importing]) -> Entry | Tombstone:
    held = tuple(subjects)
    return (
        _IMPORTING_MEMO.entry(_IMPORTING, _Importing(subjects=held))
        if held
        else forget_memo(_IMPORTING)
    )
