"""Folders of running clusters survive each other, and those of the dead are removed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from heliograph_tools.localkafka.runs import RunFolder


def test_a_folder_left_by_a_dead_process_is_removed_by_the_next(tmp_path: Path) -> None:
    script = (
        "import os, pathlib\n"
        "from heliograph_tools.localkafka.runs import RunFolder\n"
        f"run = RunFolder(pathlib.Path({str(tmp_path)!r}))\n"
        "(run.path / 'left').touch()\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False)
    left = list(tmp_path.glob("clusters/*/left"))

    run = RunFolder(tmp_path)

    assert len(left) == 1
    assert [path for path in (tmp_path / "clusters").iterdir() if path.is_dir()] == [run.path]
    run.enter()
    run.leave()


def test_a_folder_in_use_is_left_alone_until_the_last_one_leaves(tmp_path: Path) -> None:
    first = RunFolder(tmp_path)
    first.enter()
    first.enter()
    second = RunFolder(tmp_path)
    second.enter()

    first.leave()
    still_there = first.path.is_dir()
    first.leave()
    second.leave()

    assert still_there
    assert list((tmp_path / "clusters").iterdir()) == []
