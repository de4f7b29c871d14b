"""What the command line imports, commands that are not installed, and how errors are said."""

from __future__ import annotations

import subprocess
import sys

import pytest

from heliograph.cli import app as cli

CALL = """
import sys
sys.modules["trustme"] = None  # as if it were not installed
sys.argv = ["heliograph", *sys.argv[1:]]
from heliograph.cli.app import main
main()
"""

LOADED = """
import sys
sys.argv = ["heliograph", *sys.argv[1:]]
from heliograph.cli.app import main
try:
    main()
finally:
    sys.stderr.write("\\n".join(sys.modules))
"""
COSTLY = {"aiokafka", "confluent_kafka", "cryptography", "kio", "pyarrow", "pydantic", "pyspark"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--version",), "heliograph "),
        (("--help",), "Mirror topics as FILE says"),
        ((), "Mirror topics as FILE says"),
    ],
)
def test_what_names_no_command_imports_none(words: tuple[str, ...], said: str) -> None:
    ended = called(*words, program=LOADED)

    loaded = set(ended.stderr.split())
    assert said in ended.stdout
    assert "heliograph.cli.app" in loaded
    assert not COSTLY & loaded
    assert not {f"heliograph.cli.{name}" for name in cli.COMMANDS} & loaded


@pytest.mark.parametrize("words", [("run", "--help"), ("--", "run", "--help")])
def test_a_command_is_imported_without_the_others(words: tuple[str, ...]) -> None:
    ended = called(*words, program=LOADED)

    loaded = set(ended.stderr.split())
    assert ended.returncode == 0
    assert "--no-lease" in ended.stdout
    assert "heliograph.cli.run" in loaded
    assert not {"heliograph.cli.failback", "heliograph.cli.adopt", "pyarrow"} & loaded


@pytest.mark.parametrize(
    "words", [("local", "up", "--cluster", "A:3"), ("local", "down"), ("demo",)]
)
def test_a_tool_without_its_packages_says_in_one_sentence_what_to_install(
    words: tuple[str, ...],
) -> None:
    ended = called(*words)

    assert ended.returncode == 1
    assert ended.stderr == (
        f"heliograph: `heliograph {words[0]}` needs the package trustme, which is not installed: "
        "pip install 'heliograph[tools]'\n"
    )


def test_help_lists_the_commands_that_are_not_installed_and_how_to_get_them() -> None:
    ended = called("--help")

    assert ended.returncode == 0
    assert ended.stdout.count("Not installed: pip install 'heliograph[tools]'") == 2


def called(*words: str, program: str = CALL) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_folder_that_cannot_be_used_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `HELIOGRAPH_CACHE=/dev/null heliograph local up`, or a home that is another user's."""

    def refuse(*_: str) -> None:
        raise NotADirectoryError(20, "Not a directory", "/dev/null/background")

    monkeypatch.setattr(cli, "catalogue", refuse)
    monkeypatch.setattr(sys, "argv", ["heliograph"])

    with pytest.raises(SystemExit) as ended:
        cli.main()

    assert ended.value.code == 1
    assert capsys.readouterr().err == "heliograph: /dev/null/background: Not a directory\n"
