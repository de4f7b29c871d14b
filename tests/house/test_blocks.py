"""Every command block of README, tutorial and guides is played by a test, or checked and listed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.house.test_style import modules
from tests.house.test_words import literals
from tests.kit.block_index import CHECKED, PLAYED, PLAYED_WHOLE
from tests.kit.blocks import ROOT, Block, BlockName, all_blocks, problems_of
from tests.unit.cli.test_app_reference import COMMANDS

BLOCKS = all_blocks()
LISTED = [
    *(name for names in PLAYED.values() for name in names),
    *(BlockName(f"{page}: {first}") for page, firsts in CHECKED.items() for first in firsts),
]
WHOLE = [
    name
    for name, block in BLOCKS.items()
    if block.page in PLAYED_WHOLE.values() and name not in LISTED
]
PARSED = [
    name for name in LISTED if name.partition(": ")[2] in CHECKED.get(name.split(": ")[0], {})
]
_HEADING = re.compile(r"[a-zA-Z]+(?: +[a-zA-Z]+){3,}")
_COLUMN_WORDS_MAX = 4
_STUDENTS = ("my_transforms", "pipelines")
"""Modules that a reader writes."""


def test_every_block_is_played_or_checked_and_none_is_listed_that_is_gone() -> None:
    assert set(BLOCKS) == {*LISTED, *WHOLE}
    assert len(LISTED) == len(set(LISTED))


def test_a_page_that_is_played_whole_has_commands_and_files_alone() -> None:
    """What its player leaves to the reader has to be listed."""
    left = [name for name in WHOLE if not is_played_by_the_tutorials_player(name)]

    assert left == []


def is_played_by_the_tutorials_player(name: BlockName) -> bool:
    page = next(path for path in ROOT.rglob(f"docs/**/{BLOCKS[name].page}"))
    found = re.findall(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    kept = {body for language, info, body in found if language == "console" or info}
    return BLOCKS[name].body in kept


@pytest.mark.parametrize("test", [*PLAYED, *PLAYED_WHOLE])
def test_the_test_that_plays_a_block_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    tree = ast.parse((ROOT / path).read_text())

    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", CHECKED)
def test_a_reason_names_only_tests_that_are_there(page: str) -> None:
    named = re.findall(r"tests/[\w./]+", " ".join(CHECKED[page].values()))

    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("block", BLOCKS.values(), ids=lambda block: block.name)
def test_what_a_block_types_or_says_exists(
    block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in _STUDENTS:
        (tmp_path / f"{module}.py").write_text("def masked(records): return records\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    assert problems_of(block, COMMANDS, tmp_path) == []


def test_the_columns_of_a_table_that_is_not_played_are_those_of_today() -> None:
    known = {
        " ".join(text.split()) for _, code in modules() for _, text in literals(ast.parse(code))
    }
    headings = [
        (name, line)
        for name in PARSED
        for line in BLOCKS[name].body.splitlines()
        if _HEADING.fullmatch(line) and BLOCKS[name].language in ("console", "")
    ]

    assert len(headings) > 8
    assert [each for each in headings if not is_made_of(each[1].split(), known)] == []


def is_made_of(words: list[str], known: set[str]) -> bool:
    """Whether they can be cut into texts that the program has, such as the names of columns."""
    reached = {0}
    for start in range(len(words)):
        if start in reached:
            ends = range(start + 1, min(start + _COLUMN_WORDS_MAX, len(words)) + 1)
            reached |= {end for end in ends if " ".join(words[start:end]) in known}
    return len(words) in reached


def test_a_block_that_names_what_is_not_there_is_seen(tmp_path: Path) -> None:
    def wrong(language: str, body: str) -> list[str]:
        block = Block(name=BlockName("x"), page="x", language=language, body=body)
        return problems_of(block, COMMANDS, tmp_path)

    assert wrong("console", "$ heliograph fail-over mm2.properties\n")
    assert wrong("console", "$ heliograph failover mm2.properties --plan\n")
    assert wrong("console", "$ heliograph failover\n")
    assert wrong("console", "$ curl -s localhost:8080/v1/lines\n")
    assert wrong("sh", "make demonstration\n")
    assert wrong("", "heliograph archive mm2.properties --topics orders\n")
    assert wrong("properties", "A->B.topic = orders\n")
    assert wrong("python", "import heliograph\nheliograph.mirror('mm2.properties')\n")
    assert wrong("python", "from heliograph.mirror_client import Client\n")
    assert wrong("json", "{'a': 1}\n")


def test_it_is_said_how_many_blocks_are_played() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()

    assert f"{len(BLOCKS) - len(PARSED)} of {len(BLOCKS)} blocks are played" in page
