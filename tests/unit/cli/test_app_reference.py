"""The page about the command line and the commands that exist say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from heliograph.cli.app import COMMANDS as LISTED
from heliograph.cli.app import app

PAGE = (Path(__file__).parents[3] / "docs/reference/cli.md").read_text()


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
        return
    for name, each in inner.items():
        yield from commands(each, (*path, name))


WHOLE: Any = typer.main.get_command(app())
COMMANDS = dict(commands(WHOLE))
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def flags(command: Any) -> set[str]:
    return {
        flag
        for parameter in command.params
        for flag in parameter.opts
        if flag.startswith("-") and flag != "--help"
    }


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    assert set(SECTIONS) == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_exactly_the_flags_of_the_command(name: str) -> None:
    rows = [line for line in SECTIONS[name].splitlines() if line.startswith("| `-")]

    documented = {flag for row in rows for flag in re.findall(r"`(-[^`]*)`", row.split(" | ")[0])}

    assert documented == flags(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_with_an_example(name: str) -> None:
    said = COMMANDS[name].help or ""

    assert "Example" in said
    assert f"heliograph {name}" in said


@pytest.mark.parametrize("name", LISTED)
def test_the_list_of_commands_says_how_their_help_begins(name: str) -> None:
    assert WHOLE.commands[name].help.startswith(LISTED[name].summary)


@pytest.mark.parametrize(
    "name",
    [
        "adopt",
        "archive",
        "bench",
        "config",
        "conflicts",
        "doctor",
        "drill",
        "groups",
        "ledger",
        "local up",
        "offsets",
        "pipeline",
        "plan",
        "release",
        "reset",
        "restore",
        "status",
        "topology",
        "transform",
        "tune",
        "why",
    ],
)
def test_every_table_can_be_had_as_json(name: str) -> None:
    assert "--json" in flags(COMMANDS[name])


def test_the_page_has_every_exit_code() -> None:
    codes = re.findall(r"^\| `(\d)` \|", PAGE, re.MULTILINE)

    assert codes == ["0", "1", "2", "3"]
