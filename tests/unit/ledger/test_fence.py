"""A fence in the ledger: up, read back, lifted, and up in doubt."""

from __future__ import annotations

import pytest

from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.fence import (
    Fence,
    KeptFences,
    are_kept,
    fence_entry,
    fence_of,
    kept_fences_entry,
    topic_fence_entry,
    topic_fences,
    topic_unfence_entries,
    unfence_entry,
)
from heliograph.ledger.fenced_topics import begun_elsewhere, unless_fenced
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName

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


ORDERS, BILLS = TopicName("orders"), TopicName("bills")
ALONE = Fence(at_ms=1, why="failed over alone", id="f1")


def view_of(*entries: MemoEntry) -> LedgerView:
    view = LedgerView()
    for entry in entries:
        view.apply_record(*encode(entry))
    return view


def test_fences_of_topics_stand_beside_each_other_and_are_none_of_the_flow() -> None:
    view = view_of(topic_fence_entry(ORDERS, ALONE), topic_fence_entry(BILLS, FENCE))
    both = topic_fences(view)

    (gone,) = topic_unfence_entries([ORDERS])
    view.apply_record(encode_key(gone.key), None)

    assert both == {ORDERS: ALONE, BILLS: FENCE}
    assert topic_fences(view) == {BILLS: FENCE}
    assert fence_of(view) is None


def test_a_fence_of_a_flow_is_written_as_it_always_was_and_fences_no_topic() -> None:
    entry = fence_entry(FENCE)

    assert entry.text == '{"v": 1, "at_ms": 1767225600000, "why": "failed over to B"}'
    assert topic_fences(view_of(entry)) == {}


def test_a_fence_of_a_topic_that_cannot_be_read_is_up() -> None:
    view = view_of(MemoEntry(subject="fence/orders", text="{}"))

    assert "cannot be read" in topic_fences(view)[ORDERS].why


def test_only_the_driver_that_leads_says_that_it_keeps_to_these_very_fences() -> None:
    kept = kept_fences_entry(KeptFences(author="leader", at_ms=1, ids=("f0", "f1")))
    view = view_of(kept)

    assert are_kept(view, [ALONE], "leader")
    assert not are_kept(view, [ALONE], "successor")
    assert not are_kept(view, [ALONE, Fence(at_ms=1, why="", id="f2")], "leader")
    assert not are_kept(LedgerView(), [ALONE], "leader")
    assert not are_kept(view_of(MemoEntry(subject=kept.subject, text="{}")), [ALONE], "leader")


def test_no_decision_lets_a_topic_in_that_was_failed_over() -> None:
    chosen = unless_fenced({ORDERS: ALONE}, lambda topic: (True, f"included {topic}"))

    assert chosen(ORDERS) == (False, "failed over alone")
    assert chosen(BILLS) == (True, "included bills")
    assert unless_fenced({})(ORDERS) is None


def test_the_way_back_does_not_begin_a_topic_that_was_failed_over_and_goes_on_with_begun_ones() -> (
    None
):
    found = begun_elsewhere({ORDERS: ALONE, BILLS: ALONE}, begun=[BILLS])

    assert found.keys() == {ORDERS}
    assert "failed over alone" in found[ORDERS].why
