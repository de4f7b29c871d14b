"""A skipped test fails the session it is in, in one process and with workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).parents[2]
_ONE_SKIPPED = """
import pytest

def test_that_runs() -> None: pass

@pytest.mark.skip(reason="tried")
def test_that_does_not() -> None: pass
"""


@pytest.mark.parametrize("options", [[], ["-n", "1"]], ids=["one process", "a worker"])
def test_a_skipped_test_fails_the_session(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "test_tried.py").write_text(_ONE_SKIPPED, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.kit.session_rules", *options]

    ended = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)],
        cwd=_REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.returncode == pytest.ExitCode.TESTS_FAILED, ended.stdout + ended.stderr
    assert "1 tests did not run" in ended.stdout
    assert "1 passed, 1 skipped" in ended.stdout
