"""Where the command line writes: results to stdout, the rest to stderr. Runs on the driver."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime
from typing import IO, Final

from rich.console import Console

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_STALLED: Final = 3
EXIT_REFUSED: Final = 3
"""The tool worked; what it was asked for was refused, or did not hold."""
_WIDTH_WITHOUT_TERMINAL: Final = 200
"""Tables that go to a file or a pipe are not folded to 80 columns."""


def results() -> Console:
    """For what was asked for: tables."""
    return _console(stderr=False)


def remarks() -> Console:
    """For everything else."""
    return _console(stderr=True)


def print_json(document: object, *, indent: int | None = 2) -> None:
    sys.stdout.write(json.dumps(document, indent=indent) + "\n")


def flowed(text: str) -> str:
    """One line a paragraph, so that help is folded to the terminal and not to this source."""
    return "\n\n".join(
        part if part.startswith(" ") else " ".join(part.split()) for part in text.split("\n\n")
    )


def start_logging(line: str = "%(asctime)s %(levelname)s %(message)s") -> None:
    handler = _PresentStderr()
    handler.setFormatter(_Zoned(line))
    handler.addFilter(_is_not_py4j)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # It tells of every connection to the JVM that it closes.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # It tells of every connection that it authenticates, and how.
    logging.getLogger("aiokafka").setLevel(logging.ERROR)


class _Zoned(logging.Formatter):
    """Times with their zone, since logs of several machines are read side by side."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        at = datetime.fromtimestamp(record.created).astimezone()
        return at.isoformat(timespec="milliseconds")


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """py4j writes a traceback to the root logger when a JVM ends, and raises the error as well."""
    return not (record.name == "root" and record.module == "java_gateway")


class _PresentStderr(logging.StreamHandler[IO[str]]):
    """Asks for stderr at every line: a live table stands in for it, and prints lines above."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> IO[str]:
        return sys.stderr

    @stream.setter
    def stream(self, _: IO[str]) -> None:
        raise NotImplementedError("stderr is whatever it is when a line is written")


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console
