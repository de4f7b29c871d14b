"""What a campaign did and saw, line by line as it happens: one that was killed can be read."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Journal:
    """JSON lines, each with the seconds since the campaign began; written through at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="utf-8")

    def note(self, what: str, /, **more: object) -> None:
        line = {"s": round(time.monotonic() - self._began_s, 3), "what": what, **more}
        with self._lock:
            if not self._file.closed:
                self._file.write(json.dumps(line, default=str) + "\n")
                self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()


def read_journal(path: Path) -> list[Mapping[str, Any]]:
    """Every whole line; the last one of a campaign that was killed may be cut."""
    found: list[Mapping[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found
