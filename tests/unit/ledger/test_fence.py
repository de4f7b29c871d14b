"""A fence in the ledger: up, read back, lifted, and up in doubt."""

from __future__ import annotations

import pytest

from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.fence import Fence, fence_entry, fence_of, unfence_entry
from heliograph.ledger.view import LedgerView

FENCE = Fence(at_ms=1_767_225_600_000, why="failed over to B")


def test_a_fence_that_is_up_is_read_back_by_everybody() -> None:
    view = LedgerView()

    view.apply_record(*encode(fence_entry(FENCE)))

    assert fence_of(view) == FENCE


def test_a_ledger_without_one_has_none_and_lifting_it_leaves_none() -> None:
    view = LedgerView()
    before = fence_of(view)
    view.apply_record(*encode(fence_entry(FENCE)))

    view.apply_record(encode_key(unfence_entry().key), None)

    assert before is None
    assert fence_of(view) is None


@pytest.mark.parametrize("text", ["{}", '{"at_ms":"soon","why":""}', '{"at_ms":1}'])
def test_a_fence_that_cannot_be_read_is_up(text: str) -> None:
    view = LedgerView()

    view.apply_record(*encode(MemoEntry(subject="fence", text=text)))

    found = fence_of(view)
    assert found is not None
    assert "cannot be read" in found.why
