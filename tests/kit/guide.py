"""Play single blocks of a guide between real clusters, and compare what they print by its shape.

`tests.kit.tutorial` plays a page from top to bottom, to the letter. A guide is no such story: its
blocks belong to moments that a test has to bring about. So here a test plays block by block, and
numbers, ages, processes and paths may be any; words, columns and their order may not. Commands run
in this process, `heliograph run` in one of its own with slots that are threads.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from heliograph.cli.app import main
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.blocks import ROOT, Block, BlockName, blocks_of
from tests.kit.connecting import free_port
from tests.kit.runs import WITHOUT_SPARK, MirrorRun
from tests.kit.tutorial import Fence

FILE: Final = "mm2.properties"
LEFT_OUT: Final = "…"
_LAB: Final = "/tmp/lab"
_LOOKS: Final = re.compile(r"heliograph (status|groups|plan|verdict|offsets .*--to copy|topology)")
_SETTLE_S_MAX: Final = 40.0
_POLL_S: Final = 0.5
_WIDTH: Final = "250"
_BY_TIMING: Final = re.compile(r"waiting for the driver|^groups # groups? moved$")
"""Printed where the other side takes its time, and once or more often while work goes on."""
_MASKS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T][\d:]+(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)?"), "#"),
    (re.compile(r"\S+ \(pid \d+\)|\S+ pid \d+"), "<process>"),
    (re.compile(r"\b[0-9a-f]{12}\b"), "#"),
    (re.compile(r"(?<![A-Za-z])-?\d[\d,.]*%?(?![A-Za-z])"), "#"),
    (re.compile(r"# (?:ms|s|min|h|d)\b"), "<age>"),
    (re.compile(r"[┏┓┗┛━┃┡┩│└┘┳╇┴─╸╺├]"), " "),
    (re.compile(r"\b(?:idle|copying|starting)\b"), "<at work>"),
    (re.compile(r"(?<!\S)\?(?!\S)"), " "),
    (re.compile(r"(?:#\s+)+#(?!\S)"), "#"),
    (re.compile(r"\s+"), " "),
)


def shape(text: str) -> list[str]:
    """Its lines, blank ones left out, with one sign for whatever a run decides."""
    lines = []
    for line in text.splitlines():
        for pattern, mask in _MASKS:
            line = pattern.sub(mask, line)
        if line.strip():
            lines.append(line.strip())
    return lines


def missing_lines(page: str, printed: str) -> list[str]:
    """Lines of the page that were not printed, or not in the page's order."""
    rest = shape(printed)
    wanted = [line for line in shape(page) if line != LEFT_OUT and not _BY_TIMING.search(line)]
    missing = []
    for line in wanted:
        at = next((at for at, each in enumerate(rest) if _is_same(each, line)), None)
        if at is None:
            missing.append(line)
        else:
            rest = rest[at + 1 :]
    return missing


def _is_same(printed: str, line: str) -> bool:
    # Status tells of the last drill, and the lab has made one where the page's reader has not.
    return printed == line or printed.startswith(f"{line}; last drill passed ")


@dataclass(slots=True, kw_only=True)
class Lab:
    """A folder with `mm2.properties` between real clusters, and a run of it."""

    folder: Path
    clusters: Mapping[str, LocalCluster]
    run: MirrorRun | None = None
    port: int = field(default_factory=free_port)
    printed: dict[str, tuple[int, str]] = field(default_factory=dict)
    """What was typed so far, with the exit code and the output of the last time."""

    @property
    def file(self) -> Path:
        return self.folder / FILE

    def start(self, *arguments: str) -> MirrorRun:
        """`heliograph run` of the file as it is now; it ends with `stop`."""
        self.stop()
        log = self.folder / f"run-{time.monotonic_ns()}.log"
        shown = [self.placed(word) for word in arguments]
        self.run = MirrorRun(self.file, log, *shown, program=WITHOUT_SPARK)
        self.run.await_running()
        return self.run

    def stop(self) -> None:
        if self.run is not None and self.run.exit_code is None:
            self.run.stop()
        self.run = None

    def close(self) -> None:
        if self.run is not None:
            self.run.kill()

    def placed(self, text: str) -> str:
        """The page's folder and port are those of the lab."""
        text = text.replace(_LAB, str(self.folder))
        return re.sub(r"(127\.0\.0\.1|localhost):808\d\b", f"127.0.0.1:{self.port}", text)

    def type(self, line: str) -> tuple[int, str]:
        """As a reader in the lab's folder; the exit code and all that was printed."""
        words = [self.placed(word) for word in shlex.split(line, comments=True)]
        if words[0] != "heliograph":
            return self._shell(self.placed(line))
        if words[1] == "run":
            self.start(*words[3:])
            return 0, ""
        if words[-1] == "--watch":
            return self._watched(words)
        with contextlib.chdir(self.folder):
            code, printed = _in_this_process(words[1:])
        return code, printed.replace(str(self.folder), _LAB)

    def _shell(self, line: str) -> tuple[int, str]:
        if line.startswith("curl"):
            line += " -w '\\n%{http_code}'"
        ended = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=os.environ | {"TOKEN": "of-nobody"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if line.startswith("curl") and ended.returncode == 0:
            body, _, status = ended.stdout.rpartition("\n")
            json.loads(body)
            return (0 if int(status) < 400 else int(status)), body
        return ended.returncode, ended.stdout + ended.stderr

    def _watched(self, words: Sequence[str]) -> tuple[int, str]:
        """One that goes on until Ctrl-C: what it shows first."""
        with subprocess.Popen(
            [sys.executable, "-m", *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout is not None
            first = child.stdout.readline()
            child.terminate()
        return (0 if first else 1), first


class GuidePage:
    """The blocks of one page, and which of them were played."""

    def __init__(self, page: str, lab: Lab) -> None:
        path = next(path for path in (ROOT / page, ROOT / "docs/guides" / page) if path.exists())
        self.blocks: dict[BlockName, Block] = {each.name: each for each in blocks_of(path)}
        self.played: set[BlockName] = set()
        self.problems: list[str] = []
        """What differs from the page so far: one play of a long story tells of all of it."""
        self._page, self._lab = path.name, lab

    def block(self, first: str) -> Block:
        name = BlockName(f"{self._page}: {first}")
        self.played.add(name)
        return self.blocks[name]

    def play(self, first: str, *, code: int = 0, without: Sequence[str] = ()) -> None:
        """Type the block's commands; what each prints has the shape that the page shows.

        A command that was typed before, and of which the block shows no output, is not repeated.
        Lines that begin as in `without` are of a scene that the lab has not.
        """
        for typed, page in _typed(self.block(first)):
            lines = page.splitlines(keepends=True)
            shown = "".join(line for line in lines if not line.startswith(tuple(without)))
            known = _plain(typed) in self._lab.printed
            if known and not shown.strip():
                continue
            self._play(typed, shown, code)

    def same(self, first: str) -> None:
        """The block shows what its last command has just printed, as others on the way do."""
        ((typed, shown),) = _typed(self.block(first))
        code, printed = self._lab.printed[_plain(typed)]
        self._compare(typed, shown, printed, code, code)

    def shows(self, first: str, printed: str) -> None:
        """The block is what a file or a log holds."""
        missing = missing_lines(self.block(first).body, printed)
        if missing:
            self.problems.append(f"{missing} not in\n{printed}")

    def _play(self, typed: str, shown: str, code: int) -> None:
        until_s = time.monotonic() + _SETTLE_S_MAX
        while True:
            ended, printed = self._lab.type(typed)
            settled = ended == code and not missing_lines(shown, printed)
            if settled or not _LOOKS.match(typed) or time.monotonic() > until_s:
                break
            time.sleep(_POLL_S)
        self._lab.printed[_plain(typed)] = (ended, printed)
        self._compare(typed, shown, printed, ended, code)

    def _compare(self, typed: str, shown: str, printed: str, ended: int, code: int) -> None:
        told = f"{self._page}: $ {typed}\nended with {ended}"
        if ended != code:
            self.problems.append(f"{told}, not {code}:\n{printed}")
        elif missing := missing_lines(shown, printed):
            self.problems.append(f"{told}; lines of the page not printed: {missing}\n{printed}")


def _typed(block: Block) -> list[tuple[str, str]]:
    fence = Fence(language=block.language, info="", body=block.body, body_start=0)
    found = [(each.typed, each.printed) for each in fence.commands]
    return found or [(line, "") for line in block.commands]


def _plain(typed: str) -> str:
    return shlex.join(shlex.split(typed, comments=True))


def _in_this_process(arguments: Sequence[str]) -> tuple[int, str]:
    """Both outputs in the order of writing, as on a terminal."""
    out = io.StringIO()
    before, sys.argv = sys.argv, ["heliograph", *arguments]
    width = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _WIDTH
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    finally:
        sys.argv = before
        os.environ.pop("COLUMNS") if width is None else os.environ.update(COLUMNS=width)
    return code, out.getvalue()


@contextlib.contextmanager
def lab_between(folder: Path, clusters: Mapping[str, LocalCluster]) -> Iterator[Lab]:
    lab = Lab(folder=folder, clusters=clusters)
    try:
        yield lab
    finally:
        lab.close()
