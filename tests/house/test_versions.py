"""The page on versions says what the kept runs found, and nothing else."""

from __future__ import annotations

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
