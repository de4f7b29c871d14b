"""What `heliograph verdict` prints, and the exit code that a script reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.cli.verdict import _print, exit_code
from heliograph.health.verdict import Cutover, FlowVerdict, Word
from tests.unit.cli.canned import AB, VERDICTS

READY = FlowVerdict(flow=AB, word=Word.HEALTHY, reasons=(), cutover=Cutover(reasons=()))
(BEHIND,) = VERDICTS
HEALTHY = replace(READY, cutover=Cutover(reasons=("no drill was made",)))
DARK = replace(BEHIND, word=Word.STALLED, is_unknown=True)


@pytest.mark.parametrize(
    ("found", "by_health", "by_cutover"),
    [
        ([READY], 0, 0),
        ([HEALTHY], 0, 3),
        ([BEHIND], 3, 3),
        ([READY, BEHIND], 3, 3),
        ([DARK], 1, 3),
        ([BEHIND, DARK], 1, 3),
        ([], 0, 0),
    ],
)
def test_the_exit_code_answers_the_question_that_was_asked(
    found: list[FlowVerdict], by_health: int, by_cutover: int
) -> None:
    assert exit_code(found) == by_health
    assert exit_code(found, cutover=True) == by_cutover


def test_every_reason_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    _print(BEHIND)

    assert capsys.readouterr().out.splitlines() == [
        "A->B: behind",
        "  records wait for 301 s: orders-0",
        "  cutover: not yet",
        "    no drill was made",
        "    (a failover writes offsets of: billing)",
    ]
