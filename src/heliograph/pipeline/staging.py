"""Rows become sealed record batches in files, before any of them is sent. Runs on executors.

Each task writes one file. A batch in it is as the target's log will hold it, but for the producer
that `append` stamps on it: what was computed once is never computed again, so a query may be as
random as it likes, and no shuffle is needed: a target partition's records are the pieces of all
files, in the order of the tasks.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyarrow import fs

from heliograph.clock import now_ms
from heliograph.errors import PipelineRefused
from heliograph.model import TopicPartition
from heliograph.pipeline.packing import Packer, Sealed, TargetTopics


class Piece(NamedTuple):
    """One batch of a file."""

    file: str
    at: int
    size_bytes: int
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """What one task has staged for one target partition, in order."""

    target: TopicPartition
    pieces: tuple[Piece, ...]

    @property
    def record_count(self) -> int:
        return sum(piece.record_count for piece in self.pieces)


class Folder:
    """A folder of files, on whatever `pyarrow.fs` reaches."""

    def __init__(self, uri: str) -> None:
        self.uri = uri.rstrip("/")
        self._fs: Any
        self._root: str
        if "://" in self.uri:
            self._fs, self._root = fs.FileSystem.from_uri(self.uri)
        else:
            self._fs, self._root = fs.LocalFileSystem(), str(Path(self.uri).absolute())

    def child(self, name: str) -> Folder:
        return Folder(f"{self.uri}/{name}")

    def make(self) -> None:
        self._translated(lambda: self._fs.create_dir(self._root, recursive=True))

    def exists(self) -> bool:
        info = self._translated(lambda: self._fs.get_file_info(self._root))
        return bool(info.type == fs.FileType.Directory)

    def names(self) -> list[str]:
        """Of what lies in it; nothing where there is no such folder."""
        selector = fs.FileSelector(self._root, allow_not_found=True)
        return sorted(
            info.base_name for info in self._translated(lambda: self._fs.get_file_info(selector))
        )

    def write(self, name: str, parts: Iterable[bytes | bytearray]) -> None:
        """Durable when this returns, as far as the file system goes."""
        path = f"{self._root}/{name}"

        def write() -> None:
            with self._fs.open_output_stream(path) as stream:
                for part in parts:
                    stream.write(part)
            if isinstance(self._fs, fs.LocalFileSystem):
                _sync(path)
                _sync(self._root)

        self._translated(write)

    def read(self, name: str) -> bytes:
        def read() -> bytes:
            with self._fs.open_input_stream(f"{self._root}/{name}") as stream:
                return bytes(stream.read())

        return self._translated(read)  # type: ignore[no-any-return]

    def write_new(self, name: str, content: bytes) -> bool:
        """Write a file that is not there; False where it is. On a local file system of two that
        write at once one is told so; elsewhere the file is looked for first."""
        self.make()
        if name in self.names():
            return False
        if self.local_path is None:
            self.write(name, [content])
            return True
        draft = f".{name}.{uuid.uuid4().hex}"
        self.write(draft, [content])

        def link() -> bool:
            try:
                os.link(f"{self._root}/{draft}", f"{self._root}/{name}")
            except FileExistsError:
                return False
            finally:
                Path(f"{self._root}/{draft}").unlink()
            _sync(self._root)
            return True

        return bool(self._translated(link))

    @property
    def local_path(self) -> str | None:
        return self._root if isinstance(self._fs, fs.LocalFileSystem) else None

    def create(self, name: str) -> Any:
        """A stream to write a file by; to be closed, and then settled."""
        return self._translated(lambda: self._fs.open_output_stream(f"{self._root}/{name}"))

    def append(self, stream: Any, part: bytes | bytearray) -> None:
        self._translated(lambda: stream.write(part))

    def close(self, stream: Any) -> None:
        self._translated(stream.close)

    def settle(self, name: str) -> int:
        """Make a file durable, as far as the file system goes; its size."""

        def settle() -> int:
            if self.local_path is not None:
                _sync(f"{self._root}/{name}")
                _sync(self._root)
            return int(self._fs.get_file_info(f"{self._root}/{name}").size)

        return self._translated(settle)  # type: ignore[no-any-return]

    def open(self, name: str) -> Any:
        """With `read_at(size, at)`; to be closed."""
        return self._translated(lambda: self._fs.open_input_file(f"{self._root}/{name}"))

    def take(self, other: Folder, name: str) -> None:
        """Move a file of another folder of the same file system into this one."""

        def move() -> None:
            self._fs.move(f"{other._root}/{name}", f"{self._root}/{name}")
            if isinstance(self._fs, fs.LocalFileSystem):
                _sync(self._root)

        self._translated(move)

    def remove(self) -> None:
        if self.exists():
            self._translated(lambda: self._fs.delete_dir(self._root))

    def _translated(self, work: Any) -> Any:
        try:
            return work()
        except (OSError, ValueError) as exc:
            why = getattr(exc, "strerror", None) or str(exc).splitlines()[0]
            raise PipelineRefused(f"folder {self.uri}: {why}") from exc


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Stager(Packer):
    """The rows of one task in a file of the batch's folder."""

    def __init__(
        self, folder: Folder, topics: TargetTopics, task: int, *, at_ms: int | None = None
    ) -> None:
        """Rows without a timestamp have the present moment unless `at_ms` is given."""
        super().__init__(topics, task, at_ms=now_ms() if at_ms is None else at_ms)
        self._folder = folder
        self._name = f"{task:06d}-{uuid.uuid4().hex[:12]}.batches"
        self._pieces: dict[TopicPartition, list[Piece]] = {}
        self._stream: Any = None
        self._size_bytes = 0

    def finish(self) -> list[StagedPart]:
        """Durable when this returns, as far as the file system goes."""
        self.seal_all()
        if self._stream is not None:
            self._folder.close(self._stream)
            self._folder.settle(self._name)
        return [
            StagedPart(target=target, pieces=tuple(pieces))
            for target, pieces in sorted(self._pieces.items())
        ]

    def sealed(self, target: TopicPartition, batch: Sealed) -> None:
        piece = Piece(self._name, self._size_bytes, len(batch.batch), batch.record_count)
        self._pieces.setdefault(target, []).append(piece)
        # At once: a task may have more rows than memory.
        if self._stream is None:
            self._stream = self._folder.create(self._name)
        self._folder.append(self._stream, batch.batch)
        self._size_bytes += len(batch.batch)
