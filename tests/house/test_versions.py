"""The page on versions says what the kept runs found, and nothing else."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from bench import versions


def test_the_tables_of_the_page_are_those_of_the_kept_runs() -> None:
    page = versions.PAGE.read_text(encoding="utf-8")

    assert versions.with_tables(page) == page


def test_what_was_not_kept_is_shown_as_not_run_and_a_failure_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "RESULTS", tmp_path)
    records, *_ = versions.SCENES.values()
    outcomes = {f"{records}[as source]": "passed", f"{records}[as target]": "failed: it broke"}
    versions.keep("kafka-3.1", {"outcomes": outcomes})

    page = versions.with_tables(versions.PAGE.read_text(encoding="utf-8"))

    assert "| 3.1.2 | as source | passed | not run |" in page
    assert "| 3.1.2 | as target | failed | not run |" in page
    assert "| 3.6.2 | as source | not run | not run |" in page


def test_a_part_has_passed_where_each_of_its_tests_has_and_says_what_one_of_them_recorded() -> None:
    cases = {
        "good": "<testcase/>",
        "bad": '<testcase><failure message="it broke"/></testcase>',
        "skipped": "<testcase><skipped/></testcase>",
        "refused": "<testcase><properties><property name='outcome' value='refused'/></properties>"
        "</testcase>",
    }
    found = {name: versions._outcome(ElementTree.fromstring(text)) for name, text in cases.items()}

    def summed(*names: str) -> str:
        return versions._summed({name: found[name] for name in names})

    assert summed("good") == "passed"
    assert summed("good", "refused") == "refused"
    assert summed("good", "skipped") == "not run"
    assert summed("refused", "bad", "good") == "failed: 1 of 3: bad failed: it broke"
    assert summed().startswith("failed")
