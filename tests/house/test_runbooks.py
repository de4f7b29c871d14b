"""Every command a guide tells people to type exists, with every option it is given."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from tests.house.test_style import flat, modules
from tests.house.test_words import literals
from tests.unit.cli.test_app_reference import COMMANDS, flags

ROOT = Path(__file__).parents[2]
GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))
TUTORIAL = ROOT / "docs/tutorial.md"
PAGES = [ROOT / "README.md", TUTORIAL, *GUIDES]
LINKING = sorted(
    {
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "bench").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    }
)


def typed(page: Path) -> list[list[str]]:
    """The words after `heliograph` of every line a reader could type."""
    lines = re.findall(r"^\$ heliograph (.+)$", page.read_text(), re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_only_commands_and_options_that_exist(page: Path) -> None:
    unknown: list[str] = []
    for words in typed(page):
        name = " ".join(words[:2]) if words[0] == "local" else words[0]
        given = {word.partition("=")[0] for word in words if word.startswith("-")}
        if name not in COMMANDS:
            unknown.append(name)
        else:
            unknown += [f"{name} {flag}" for flag in sorted(given - flags(COMMANDS[name]))]

    assert unknown == []


def test_the_runbooks_go_through_every_command_of_recovery() -> None:
    named = {words[0] for words in typed(ROOT / "docs/guides/failover.md")}

    assert named >= {"failover", "failback", "drill", "audit", "offsets", "status"}


def test_every_message_that_a_runbook_quotes_is_one_that_can_be_printed() -> None:
    page = (ROOT / "docs/guides/failover.md").read_text()
    tables = re.findall(r"^\| you see \|.*?\n\n", page, re.MULTILINE | re.DOTALL)
    quoted = [
        text for table in tables for text in re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    ]
    printed = flat(" ".join(text for _, code in modules() for _, text in literals(ast.parse(code))))

    unknown = [text for text in quoted if not any(part in printed for part in fixed_parts(text))]

    assert len(quoted) > 10
    assert unknown == []


def fixed_parts(message: str) -> list[str]:
    """What no name or number of the example is part of, where it is long enough to be told by."""
    parts = re.split(r"…|A->B|\b[AB]\b|orders-0|orders|billing|\d+", message)
    return [text for part in parts if len(text := part.strip(" ;:,")) >= 8]


def test_the_first_screen_of_the_runbooks_is_six_commands() -> None:
    first_screen = "\n".join((ROOT / "docs/guides/failover.md").read_text().splitlines()[:25])

    assert len(re.findall(r"^\$ heliograph ", first_screen, re.MULTILINE)) == 6


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = [
        link
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text())
        if "://" not in link and not leads_somewhere(page, link)
    ]

    assert broken == []


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    there = (page.parent / path).resolve() if path else page
    if not anchor:
        return there.exists()
    return there.exists() and anchor in anchors(there.read_text())


def anchors(text: str) -> set[str]:
    """As GitHub makes them from headings, repeated ones left out."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }
