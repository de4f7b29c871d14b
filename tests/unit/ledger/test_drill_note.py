"""Schedules and results of drills survive in the ledger; what makes no sense is not trusted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from heliograph.drill.schedule import figures, summary_of
from heliograph.errors import WireError
from heliograph.ledger.drill_note import (
    LAST_SUBJECT,
    SCHEDULE_SUBJECT,
    LastDrill,
    Schedule,
    every_s,
    last_memo,
    last_of,
    next_due_ms,
    no_schedule,
    schedule_memo,
    schedule_of,
)
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.entry_codec import MEMO_BYTES_MAX, encode
from heliograph.ledger.view import LedgerView
from tests.unit.drill.drills import report

WEEKLY = Schedule(
    every_s=604_800, set_ms=1_000, sample_records=500, group="b.*", rpo_s_max=5.0, rto_s_max=None
)
PASSED = LastDrill(
    at_ms=5_000, verdict="pass", reasons=(), rpo_records=3, rpo_s=0.5, rto_s=1.25, groups=2
)


def folded(*entries: MemoEntry) -> LedgerView:
    view = LedgerView()
    for entry in entries:
        view.apply_record(*encode(entry))
    return view


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600)],
)
def test_a_time_between_drills_is_a_number_and_a_unit(text: str, seconds: int) -> None:
    assert every_s(text) == seconds


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-1d", "0d", "1.5h", "59s", "7D", "1y"])
def test_anything_else_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="drills"):
        every_s(text)


def test_a_schedule_and_a_result_come_back_as_they_were_written() -> None:
    view = folded(schedule_memo(WEEKLY), last_memo(PASSED))

    assert schedule_of(view) == WEEKLY
    assert last_of(view) == PASSED


def test_a_schedule_that_was_removed_is_none() -> None:
    view = folded(schedule_memo(WEEKLY))

    view.remove(no_schedule().key)

    assert schedule_of(view) is None


@pytest.mark.parametrize(
    "change",
    [
        {"every_s": 1},
        {"every_s": "soon"},
        {"every_s": None},
        {"sample_records": 0},
        {"group": "("},
        {"rpo_s_max": "x"},
    ],
)
def test_a_schedule_that_makes_no_sense_is_told_and_not_followed(change: dict[str, object]) -> None:
    fields = json.loads(schedule_memo(WEEKLY).text) | change

    view = folded(MemoEntry(subject=SCHEDULE_SUBJECT, text=json.dumps(fields)))

    with pytest.raises(WireError, match=rf"memo\|drill: {next(iter(change))}.*set it again"):
        schedule_of(view)


@pytest.mark.parametrize("change", [{"verdict": "fine"}, {"at_ms": "x"}, {"reasons": None}])
def test_a_result_that_makes_no_sense_is_none(change: dict[str, object]) -> None:
    fields = json.loads(last_memo(PASSED).text) | change

    view = folded(MemoEntry(subject=LAST_SUBJECT, text=json.dumps(fields)))

    assert last_of(view) is None


def test_the_reasons_of_a_drill_that_failed_badly_fit_a_memo() -> None:
    failed = replace(PASSED, verdict="fail", reasons=tuple("x" * 10_000 for _ in range(1_000)))

    memo = last_memo(failed)

    assert len(memo.text) < MEMO_BYTES_MAX / 10
    assert last_of(folded(memo)) is not None


def test_the_first_drill_is_due_at_once_and_the_next_after_its_interval() -> None:
    failed = replace(PASSED, verdict="fail", reasons=("one", "two"))
    not_done = replace(PASSED, verdict="not done", reasons=("unreachable",))

    assert next_due_ms(WEEKLY, None) == 1_000
    assert next_due_ms(WEEKLY, PASSED) == 5_000 + 604_800_000
    assert next_due_ms(WEEKLY, failed) == 5_000 + 604_800_000
    assert next_due_ms(WEEKLY, not_done) == 5_000 + 600_000
    assert failed.sentence == "failed: one (and 1 more)"
    assert not_done.sentence == "could not be done: unreachable"


def test_a_report_is_summed_up_for_the_ledger() -> None:
    last = summary_of(report())

    assert (last.verdict, last.rpo_records, last.rto_s, last.repeated_records) == (
        "pass",
        321,
        0.75,
        17,
    )
    assert figures(last) == "RPO 2.5 s, RTO 0.8 s, 1 group"
