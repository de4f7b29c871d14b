"""What an archive holds, commit by commit. Runs on the driver.

    FOLDER/A-00000-00000000000000000000-00000000000000012345.parquet
    FOLDER/_heliograph/commits/0000000001.json
    FOLDER/_heliograph/staged/<token>/…

A file's name has its cluster, its partition and its offsets `[start, end)`.

A commit names the files that belong to it while they are still staged; then they are moved to where
readers of the folder see them. So a reader sees a file whole or not at all, and a run that dies
between the two is finished by the next one. Names beginning with `_` are passed over by readers of
Parquet folders.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from heliograph.errors import ArchiveRefused
from heliograph.pipeline.staging import Folder

_VERSION: Final = 1
_OWN: Final = "_heliograph"
_COMMITS: Final = f"{_OWN}/commits"
_STAGED: Final = f"{_OWN}/staged"
_LOCK: Final = "lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """A stretch of one partition; without a name where it held no record."""

    name: str
    partition: int
    start: int
    end: int
    records: int
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One step of an archive: files that were added, or a move to another cluster."""

    cluster: str
    topic: str
    at_ms: int
    token: str = ""
    """The staged folder of its files."""
    files: tuple[ArchivedFile, ...] = ()
    is_move: bool = False
    moved_to: Mapping[int, int] = field(default_factory=dict)
    """Where each partition goes on, after a move to this cluster."""
    notes: tuple[str, ...] = ()
    lost: tuple[tuple[int, int, int], ...] = ()
    """Partition, and the offsets `[start, end)` that the cluster no longer had."""
    topic_id: str = ""
    """By which a topic that was deleted and created again is told from the one archived."""


_COMMIT: Final[TypeAdapter[Commit]] = TypeAdapter(Commit)


@dataclass(slots=True)
class Book:
    """All commits of an archive, and where it stands."""

    folder: Folder
    commits: list[Commit]

    @property
    def cluster(self) -> str | None:
        return self.commits[-1].cluster if self.commits else None

    @property
    def topic(self) -> str | None:
        return self.commits[-1].topic if self.commits else None

    @property
    def topic_id(self) -> str:
        """Of the topic on the present cluster; empty where nothing of it is archived."""
        return self.commits[-1].topic_id if self.commits else ""

    @property
    def id(self) -> str:
        """Tells this archive from others."""
        return f"archive-{self.commits[0].at_ms}" if self.commits else ""

    @property
    def positions(self) -> dict[int, int]:
        """By partition, the first offset of the present cluster that is not archived."""
        found: dict[int, int] = {}
        for commit in self.commits:
            if commit.is_move:
                found = dict(commit.moved_to)
            for partition, _, end in commit.lost:
                found[partition] = max(found.get(partition, 0), end)
            for file in commit.files:
                found[file.partition] = max(found.get(file.partition, 0), file.end)
        return found

    def files(self) -> dict[int, list[ArchivedFile]]:
        """By partition, in the order in which they were archived."""
        found: dict[int, list[ArchivedFile]] = {}
        for commit in self.commits:
            for file in sorted(commit.files, key=lambda file: (file.partition, file.start)):
                found.setdefault(file.partition, []).append(file)
        return found

    def staged(self, token: str) -> Folder:
        return self.folder.child(f"{_STAGED}/{token}")

    def add(self, commit: Commit) -> None:
        """Raises `ArchiveRefused` where another run has written meanwhile."""
        number = len(self.commits) + 1
        text = json.dumps({"v": _VERSION, **asdict(commit)}).encode()
        if not self.folder.child(_COMMITS).write_new(_name(number), text):
            raise ArchiveRefused(
                f"archive {self.folder.uri}: commit {number} was written by another run meanwhile; "
                "one run at a time may write to an archive"
            )
        self.commits.append(commit)
        self.finish()

    def finish(self) -> None:
        """Move what the last commit names to where readers see it; safe to repeat."""
        if not self.commits or not self.commits[-1].token:
            return
        commit = self.commits[-1]
        staged = self.staged(commit.token)
        waiting, present = set(staged.names()), set(self.folder.names())
        for file in commit.files:
            if file.name and file.name in waiting:
                self.folder.take(staged, file.name)
            elif file.name and file.name not in present:
                raise ArchiveRefused(
                    f"archive {self.folder.uri}: {file.name} is missing, which commit "
                    f"{len(self.commits)} names"
                )
        staged.remove()


def open_book(uri: str) -> Book:
    """Raises `ArchiveRefused` where the folder holds something else."""
    folder = Folder(uri)
    commits = folder.child(_COMMITS)
    names = [name for name in commits.names() if name.endswith(".json")]
    if not names and any(not name.startswith((".", "_")) for name in folder.names()):
        raise ArchiveRefused(f"{uri} is no archive, and not empty: name a folder of its own")
    if names != [_name(number) for number in range(1, len(names) + 1)]:
        raise ArchiveRefused(f"archive {uri}: commits are missing in {_COMMITS}")
    return Book(folder, [_read(uri, name, commits.read(name)) for name in names])


@contextmanager
def alone(book: Book) -> Iterator[None]:
    """Keeps a second run on this machine out; on other file systems the next commit does."""
    root = book.folder.local_path
    if root is None:
        yield
        return
    path = Path(root) / _OWN
    path.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveRefused(
                f"another run of `heliograph archive` works on {book.folder.uri}; wait for it"
            ) from None
        known = book.commits[-1].token if book.commits else ""
        for token in book.folder.child(_STAGED).names():
            if token != known:
                book.staged(token).remove()
        yield
    finally:
        os.close(descriptor)


def file_name(cluster: str, partition: int, start: int, end: int) -> str:
    return f"{cluster}-{partition:05d}-{start:020d}-{end:020d}.parquet"


def _name(number: int) -> str:
    return f"{number:010d}.json"


def _read(uri: str, name: str, content: bytes) -> Commit:
    try:
        return _COMMIT.validate_json(content)
    except ValidationError as exc:
        raise ArchiveRefused(f"archive {uri}: {_COMMITS}/{name} cannot be read") from exc
