"""Plain English where an operator reads: the noun instead of "somebody", one meaning for a word."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.house.test_style import modules

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        ROOT / "bench/README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)
VAGUE = re.compile(
    r"\b(somebody|someone|whoever|nobody|anybody|everybody|makes no sense|is at it|for ever"
    r"|unless told|goes round|given up for dead|please report)\b",
    re.IGNORECASE,
)
"""Say who: the driver, another process, a producer. Say what: which field, which limit."""
GLOSSARY = (
    "lane",
    "slot",
    "shuttle",
    "position",
    "run",
    "ledger",
    "start",
    "head",
    "link",
    "fence",
)


def prose(page: Path) -> str:
    """The page without code and output, which are somebody else's words."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`]*`", "", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_who_and_what(page: Path) -> None:
    found = Counter(word.lower() for word in VAGUE.findall(prose(page)))

    assert not found


def test_messages_name_who_and_what() -> None:
    found = [
        f"{name}:{line}: {text.strip()}"
        for name, source in modules()
        for line, text in literals(ast.parse(source))
        if VAGUE.search(text)
    ]

    assert found == []


def literals(tree: ast.Module) -> list[tuple[int, str]]:
    """Every string of a module that is not a docstring: what may reach a person."""
    docstrings = {
        id(statement.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
    }
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
    ]


def test_the_glossary_has_each_word_once() -> None:
    rows = re.findall(r"^\| ([a-z][^|]*?) \|", section("Glossary"), re.MULTILINE)
    words = [word for row in rows for word in re.split(r", | \(|\)", row) if word]

    assert [word for word, times in Counter(words).items() if times > 1] == []
    assert set(GLOSSARY) <= set(words)


def section(name: str) -> str:
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    found = re.search(rf"^## \d+\. {name}\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found.group(1)


def test_nothing_cites_a_document_that_a_clone_does_not_have() -> None:
    cited = [name for name, text in modules() if "DESIGN.md" in text]
    cited += [page.name for page in PAGES if "DESIGN.md" in page.read_text()]

    assert cited == []
