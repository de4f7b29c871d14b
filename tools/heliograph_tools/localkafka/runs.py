"""Folders of running clusters in the cache; dead ones are swept. Runs on the driver."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from pathlib import Path
from typing import Final

from heliograph.cache import cache_folder
from heliograph_tools.localkafka.kafka import file_lock

_LOCK_SUFFIX: Final = ".lock"


class RunFolder:
    """A folder that is known to be in use as long as this process lives and someone is in it."""

    def __init__(self, cache: Path | None = None) -> None:
        runs = (cache_folder() if cache is None else cache) / "clusters"
        # Under one lock, or a sweep could meet a folder whose own lock is not taken yet.
        with file_lock(runs.with_name("clusters.lock")):
            _sweep(runs)
            self.path = runs / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
            self.path.mkdir(mode=0o700, parents=True)
            self._lock_path = runs / (self.path.name + _LOCK_SUFFIX)
            self._lock = self._lock_path.open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._inside = 0

    def enter(self) -> None:
        self._inside += 1

    def leave(self) -> None:
        """The last one out removes the folder."""
        self._inside -= 1
        if self._inside == 0:
            shutil.rmtree(self.path, ignore_errors=True)
            self._lock_path.unlink(missing_ok=True)
            self._lock.close()


def _sweep(runs: Path) -> None:
    for lock_path in runs.glob(f"*{_LOCK_SUFFIX}"):
        with lock_path.open("r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
            lock_path.unlink(missing_ok=True)
