"""Notice that a configuration file, or a file it names, is another than when it was read. Driver.

Keystores, PEM files and what `${file:...}` refers to count as much as the file itself: all that was
read for the configuration is watched. Looked at and not listened for: that also sees a Kubernetes
ConfigMap, whose files are links that are swapped, editors that write another file and rename it,
and file systems of other machines.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from heliograph.config.load import real_environment
from heliograph.config.secrets import Environment

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Stamp:
    """What tells one version of a file from another without reading it."""

    modified_ns: int
    inode: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Seen:
    stamp: _Stamp | None
    """None where there was no file."""
    digest: bytes


class FileWatch(Generic[T]):
    """What `load` read when it was last called. Used by one thread at a time."""

    def __init__(self, load: Callable[[Environment], T], around: Environment | None = None) -> None:
        """`load` reads through the environment it is given and raises `ConfigError`."""
        self._load, self._around = load, around or real_environment()
        self._seen: dict[Path, _Seen] = {}

    def load(self) -> T:
        """Read again; what this reads is watched from here on."""
        before, self._seen = self._seen, {}
        try:
            return self._load(replace(self._around, read_bytes=self._read, names_in=self._names))
        except BaseException:
            # It may not have come to all that it names; a file among them may be what mends it.
            self._seen = {**{path: _look(path) for path in before}, **self._seen}
            raise

    def is_changed(self) -> bool:
        """Whether something of it has other contents by now."""
        return any(self._differs(path, seen) for path, seen in tuple(self._seen.items()))

    def stamps(self) -> tuple[object, ...]:
        """Another value while somebody still writes."""
        return tuple(_stamp(path) for path in self._seen)

    def _differs(self, path: Path, seen: _Seen) -> bool:
        stamp = _stamp(path)
        if stamp == seen.stamp:
            return False
        if _digest(path) != seen.digest:
            return True
        # Touched, or written again with the same contents.
        self._seen[path] = _Seen(stamp, seen.digest)
        return False

    def _read(self, path: Path) -> bytes:
        # The stamp first: what is written while it is read must look changed afterwards.
        self._seen[path] = _Seen(_stamp(path), b"")
        content = self._around.read_bytes(path)
        self._seen[path] = _Seen(self._seen[path].stamp, hashlib.sha256(content).digest())
        return content

    def _names(self, folder: Path) -> list[str]:
        self._seen[folder] = _look(folder)
        return list(self._around.names_in(folder))


def _look(path: Path) -> _Seen:
    return _Seen(_stamp(path), _digest(path))


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _Stamp(found.st_mtime_ns, found.st_ino, found.st_size)


def _digest(path: Path) -> bytes:
    """Of a folder, of the names in it; nothing where it cannot be read."""
    try:
        if path.is_dir():
            content = "\0".join(sorted(found.name for found in path.iterdir())).encode()
        else:
            content = path.read_bytes()
    except OSError:
        return b""
    return hashlib.sha256(content).digest()
