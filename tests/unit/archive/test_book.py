from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from heliograph.archive.book import ArchivedFile, Book, Commit, open_book
from heliograph.errors import ArchiveRefused
from heliograph.pipeline import staging


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A URI of a file system that is not this machine's, as far as a `Folder` can tell."""
    shared = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    reached = SimpleNamespace(from_uri=lambda uri: (shared, uri.partition("://")[2]))
    names = {name: getattr(fs, name) for name in ("LocalFileSystem", "FileType", "FileSelector")}
    monkeypatch.setattr(staging, "fs", SimpleNamespace(FileSystem=reached, **names))
    return "store://bucket/orders"


def staged(book: Book, token: str, name: str) -> Commit:
    folder = book.staged(token)
    folder.make()
    folder.write(name, [b"rows"])
    file = ArchivedFile(name=name, partition=0, start=0, end=4, records=4)
    return Commit(cluster="A", topic="orders", at_ms=1, token=token, files=(file,))


def test_an_archive_that_is_not_on_this_machine_is_written_and_read_as_one_that_is(
    remote: str,
) -> None:
    book = open_book(remote)
    book.add(staged(book, "t1", "A-0.parquet"))

    again = open_book(remote)

    assert again.positions == {0: 4}
    assert again.folder.read("A-0.parquet") == b"rows"
    assert again.staged("t1").names() == []


def test_a_run_that_committed_meanwhile_is_seen_where_no_lock_holds(remote: str) -> None:
    first, second = open_book(remote), open_book(remote)
    first.add(staged(first, "t1", "A-0.parquet"))

    with pytest.raises(ArchiveRefused, match="was written by another run"):
        second.add(staged(second, "t2", "A-0.parquet"))


def test_a_commit_whose_files_were_not_moved_yet_is_finished(remote: str) -> None:
    book = open_book(remote)
    commit = staged(book, "t1", "A-0.parquet")
    book.folder.child("_heliograph/commits").write_new("0000000001.json", _text(commit))

    open_book(remote).finish()

    assert book.folder.read("A-0.parquet") == b"rows"


def _text(commit: Commit) -> bytes:
    return json.dumps({"v": 1, **asdict(commit)}).encode()
