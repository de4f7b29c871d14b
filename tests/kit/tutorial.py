"""Play a page as its reader would: write its files, type its commands, compare what they print.

The page is Markdown. A fence with a file name (```` ```properties mm2.properties ````) is a file, a
`console` fence holds commands after `$ ` and what each prints. `console second terminal` holds a
command that goes on in the background; `^C` ends it. All other fences are for the reader alone.

After a text of the program changed, `python -m tests.kit.tutorial PAGE` writes what the commands
print now into the page. Read the difference before you commit it: the sentences around it may be
wrong.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from heliograph.cache import cache_folder
from heliograph_tools.localkafka.kafka import kafka_classpath
from tests.kit.clusters import FAST_JAVA

_DOCS: Final = Path(__file__).parents[2] / "docs"
TUTORIAL: Final = _DOCS / "tutorial.md"
ROLLING_CUTOVER: Final = _DOCS / "guides" / "rolling-cutover.md"
MIRRORMAKER_1: Final = _DOCS / "guides" / "from-mirrormaker-1.md"
COMMAND_S_MAX: Final = 180.0
SETTLE_S_MAX: Final = 40.0
"""A mirror may need a moment until `status` says what the page says; a reader would look twice."""
_POLL_S: Final = 0.5
_FENCE: Final = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ADDRESS: Final = re.compile(r"127\.0\.0\.1:\d+")
_TERMINAL: Final = "second terminal"
_INTERRUPT: Final = "^C"
_MASKS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T][\d:]+(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)?"), "<time>"),
    (_ADDRESS, "<address>"),
    (re.compile(r"\S+ \(pid \d+\)|\S+ pid \d+|pid \d+"), "<pid>"),
    (re.compile(r"\S+/(?:client|mm2)\.properties"), "<path>"),
    (re.compile(r"\b\d+(?:\.\d+)? (?:s|min)\b"), "<age>"),
    (re.compile(r"(?<=source cluster )[\w-]+"), "<id>"),
    # A fresh cluster may have to be asked twice for a producer id.
    (re.compile(r"(?<=producer )\d+(?= epoch)"), "<id>"),
    # One more once the driver has watched the flow for a while.
    (re.compile(r"(?<=memos: )\d+"), "<count>"),
    (re.compile(r"[┏┓┗┛━┃┡┩│└┘┳╇┴─]"), " "),
    (re.compile(r"\s+"), " "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """One fenced block of the page."""

    language: str
    info: str
    body: str
    body_start: int

    @property
    def file_name(self) -> str:
        return "" if self.language == "console" else self.info

    @property
    def commands(self) -> list[Command]:
        """What is typed in it, each with the lines printed until the next."""
        parts = re.split(r"^(?:\$ (.*)|(\^C))\n", self.body, flags=re.MULTILINE)
        return [
            Command(typed=dollar or interrupt, printed=printed)
            for dollar, interrupt, printed in zip(
                parts[1::3], parts[2::3], parts[3::3], strict=True
            )
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    typed: str
    printed: str


def fences(text: str) -> list[Fence]:
    return [
        Fence(
            language=found.group(1),
            info=found.group(2).strip(),
            body=found.group(3),
            body_start=found.start(3),
        )
        for found in _FENCE.finditer(text)
    ]


def masked(text: str) -> list[str]:
    """The lines without what differs from run to run, blank ones left out."""
    lines = []
    for line in text.splitlines():
        for pattern, mask in _MASKS:
            line = pattern.sub(mask, line)
        if line.strip():
            lines.append(line.strip())
    return lines


class Player:
    """Plays one page in one folder; use it as a context, so that nothing is left running."""

    def __init__(self, text: str, folder: Path) -> None:
        self._text = text
        self._folder = folder
        self._environment = _environment(folder)
        self._addresses: dict[str, str] = {}
        self._background: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self.actual: list[tuple[Fence, str]] = []
        """Each console fence with the body it would have if the page were written now."""

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        if self._background is not None and self._background.poll() is None:
            os.killpg(self._background.pid, signal.SIGKILL)
            self._background.wait()
        if self._log is not None:
            self._log.close()
        self._shell("heliograph local down")

    def play(self) -> None:
        for fence in fences(self._text):
            if fence.file_name:
                (self._folder / fence.file_name).write_text(self._with_addresses(fence.body))
            elif fence.language == "console":
                played = [self._played(fence, command) for command in fence.commands]
                self.actual.append((fence, "".join(played)))

    def differences(self) -> list[str]:
        """Every console fence whose lines differ from the page's, both sides masked."""
        return [
            f"the page has\n{fence.body}\nprinted was\n{body}"
            for fence, body in self.actual
            if not _same(fence, masked(fence.body), masked(body))
        ]

    def rewritten(self) -> str:
        """The page with what was really printed, and the addresses that were really there."""
        text = self._text
        for fence, body in reversed(self.actual):
            end = fence.body_start + len(fence.body)
            text = text[: fence.body_start] + _shown(fence, body) + text[end:]
        return _replaced(text, self._addresses)

    def _played(self, fence: Fence, command: Command) -> str:
        typed = self._with_addresses(command.typed)
        if fence.info == _TERMINAL:
            printed = self._second_terminal(typed, command)
        else:
            printed = self._settled(typed, command)
        if not self._addresses and "local up" in typed:
            self._addresses = dict(
                zip(_ADDRESS.findall(command.printed), _ADDRESS.findall(printed), strict=True)
            )
        prompt = command.typed if command.typed == _INTERRUPT else f"$ {command.typed}"
        lines = [prompt, *printed.rstrip().splitlines()]
        return "".join(f"{line.rstrip()}\n" for line in lines)

    def _settled(self, typed: str, command: Command) -> str:
        """What the command prints; one that only looks is asked again until the mirror is there."""
        looks = bool(re.match(r"heliograph (status|ledger|groups|failover .*--dry-run)", typed))
        deadline_s = time.monotonic() + SETTLE_S_MAX
        while True:
            printed = self._shell(typed)
            same = masked(printed) == masked(command.printed)
            if same or not looks or time.monotonic() > deadline_s:
                return printed
            time.sleep(_POLL_S)

    def _shell(self, typed: str) -> str:
        done = subprocess.run(
            ["bash", "-c", typed],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_S_MAX,
            check=False,
        )
        return done.stdout

    def _second_terminal(self, typed: str, command: Command) -> str:
        path = self._folder / "second-terminal.log"
        if typed != _INTERRUPT:
            self._log = path.open("w")
            self._background = subprocess.Popen(
                typed.split(),
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            return self._awaited(path, 0, masked(command.printed))
        assert self._background is not None
        seen = path.stat().st_size
        os.kill(self._background.pid, signal.SIGINT)
        self._background.wait(COMMAND_S_MAX)
        return path.read_bytes()[seen:].decode()

    def _awaited(self, path: Path, since: int, wanted: Sequence[str]) -> str:
        deadline_s = time.monotonic() + COMMAND_S_MAX
        while True:
            printed = path.read_bytes()[since:].decode()
            if _in_order(wanted, masked(printed)) or time.monotonic() > deadline_s:
                return printed
            time.sleep(_POLL_S)

    def _with_addresses(self, text: str) -> str:
        return _replaced(text, self._addresses)


def _same(fence: Fence, wanted: Sequence[str], printed: Sequence[str]) -> bool:
    # The mirror goes on talking while the reader reads: its lines may have others between them.
    return _in_order(wanted, printed) if fence.info == _TERMINAL else wanted == printed


def _shown(fence: Fence, body: str) -> str:
    """Of a long log only the lines that the page chose, if they are all still there."""
    chosen, rest = masked(fence.body), body.splitlines(keepends=True)
    if fence.info != _TERMINAL or len(chosen) < 2 or not _in_order(chosen, masked(body)):
        return body
    kept = []
    for wanted in chosen:
        while masked(line := rest.pop(0)) != [wanted]:
            pass
        kept.append(line)
    return "".join(kept)


def _in_order(wanted: Sequence[str], printed: Sequence[str]) -> bool:
    rest = iter(printed)
    return all(line in rest for line in wanted)


def _replaced(text: str, addresses: Mapping[str, str]) -> str:
    return _ADDRESS.sub(lambda found: addresses.get(found.group(), found.group()), text)


def _environment(folder: Path) -> dict[str, str]:
    """With this Python first on the PATH, and background clusters that no other run shares."""
    kafka_classpath()  # fetched into the real cache, not into the one that goes with the folder
    private = folder / ".cache"
    private.mkdir()
    for shared in cache_folder().iterdir():
        if shared.name != "background":
            (private / shared.name).symlink_to(shared)
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HELIOGRAPH_CACHE": str(private),
        "COLUMNS": "250",  # the folder of a test has a long name, which would fold a table
        # As on a terminal: what goes to stdout and what goes to stderr in the order of writing.
        "PYTHONUNBUFFERED": "1",
        **dict([FAST_JAVA]),
    }


def main() -> None:
    page = Path(sys.argv[1])
    with (
        tempfile.TemporaryDirectory(prefix="tutorial-") as folder,
        Player(page.read_text(), Path(folder)) as player,
    ):
        player.play()
        page.write_text(player.rewritten())


if __name__ == "__main__":
    main()
