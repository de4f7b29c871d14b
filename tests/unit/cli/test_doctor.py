"""How an examination ends, and how it looks."""

from __future__ import annotations

import pytest
from rich.console import Console

from heliograph.cli.doctor import exit_code, report_table, summary
from heliograph.doctor.document import ReportDocument
from heliograph.doctor.examine import Report
from heliograph.doctor.finding import Finding, Severity, listed, worst_first
from heliograph.model import ClusterAlias


def finding(severity: Severity, what: str = "x", why: str = "", fix: str = "") -> Finding:
    return Finding(
        check="network", about="cluster A", severity=severity, what=what, why=why, fix=fix
    )


def report(*findings: Finding, dead: tuple[str, ...] = ()) -> Report:
    return Report(
        at_ms=1,
        seconds=2.0,
        findings=tuple(worst_first(findings)),
        unreachable=tuple(map(ClusterAlias, dead)),
    )


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (report(finding(Severity.OK)), 0),
        (report(finding(Severity.WARN), finding(Severity.UNKNOWN)), 0),
        (report(finding(Severity.PROBLEM)), 3),
        (report(finding(Severity.PROBLEM), dead=("A",)), 1),
    ],
)
def test_a_problem_and_a_cluster_that_is_dead_end_differently(found: Report, code: int) -> None:
    assert exit_code(found) == code


def test_the_worst_comes_first_and_each_finding_says_why_and_how() -> None:
    found = report(
        finding(Severity.OK, "fine"),
        finding(Severity.PROBLEM, "broken", "it matters", "mend it"),
        finding(Severity.NOTE, "by the way"),
    )
    console = Console(width=120)

    with console.capture() as said:
        console.print(report_table(found))

    lines = [line.strip() for line in said.get().splitlines()]
    assert lines[1].split() == ["problem", "network", "cluster", "A", "broken"]
    assert lines[2:4] == ["why: it matters", "fix: mend it"]
    assert lines[4].split()[0] == "note"
    assert summary(found) == "1 problem, 1 note, 1 ok; 2.0 s"


def test_as_json_nothing_to_say_is_null() -> None:
    document = ReportDocument.of(report(finding(Severity.OK))).plain()

    assert document == {
        "at_ms": 1,
        "seconds": 2.0,
        "unreachable": [],
        "findings": [
            {
                "check": "network",
                "about": "cluster A",
                "severity": "ok",
                "what": "x",
                "why": None,
                "fix": None,
            }
        ],
    }


def test_long_lists_are_cut() -> None:
    assert listed(["a", "b", "c"]) == "a, b, c"
    assert listed(list("abcdefg")) == "a, b, c and 4 more"
