"""Completion scripts hold what the commands have; bash's is run in bash."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence

import pytest
import typer.main

from heliograph.cli.app import COMMANDS, app
from heliograph.cli.completion import Place, bash_script, fish_script, places, zsh_script

BASH = shutil.which("bash") or "/bin/bash"
FOUND = list(places(typer.main.get_command(app())))
PROBE = """
source /dev/stdin
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_heliograph
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> list[str]:
    """What bash offers for the last of `words`, without Python."""
    ended = subprocess.run(
        [BASH, "--norc", "-c", PROBE, "bash", "heliograph", *words],
        input=bash_script(FOUND),
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
        env={"PATH": "/nowhere"},
    )
    assert not ended.stderr
    return [word for word in ended.stdout.splitlines() if word]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("fail",), ["failover", "failback"]),
        (("local", "st"), ["status", "stop", "start"]),
        (("run", "--da"), ["--daemon"]),
        (("run", "mm2.properties", "--quiet", "--pid"), ["--pid-file"]),
        (("run", "failover", "--pl"), []),
        (("failover", "mm2.properties", "--pl"), ["--planned"]),
        (("local", "status", "--watch"), []),
        (("status", "--watch"), ["--watch"]),
        (("--ver",), ["--version"]),
        (("--version", "compl"), ["completion"]),
        (("run", "mm"), []),
        (("nonsense", "--x"), []),
    ],
)
def test_bash_completes_commands_and_the_flags_of_each(
    words: Sequence[str], offered: list[str]
) -> None:
    assert completed(*words) == offered


def test_bash_offers_every_command() -> None:
    assert set(completed("")) == set(COMMANDS)


@pytest.mark.parametrize("script", [zsh_script, fish_script])
def test_the_other_shells_are_told_every_command_and_flag(
    script: Callable[[Sequence[Place]], str],
) -> None:
    text = script(FOUND)

    for place in FOUND:
        for word in (*place.commands, *place.flags):
            assert word.text.removeprefix("--") in text


def test_no_text_of_a_command_ends_its_quotes() -> None:
    for script in (bash_script, zsh_script, fish_script):
        for line in script(FOUND).splitlines():
            assert line.count("'") % 2 == 0, line
