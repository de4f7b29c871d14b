"""The folder of a streaming query's checkpoint: read, and copied with changes. Runs on the driver.

The folder itself is never written to. The copy is made beside its place and renamed when it is
whole, so whoever finds it there finds all of it.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heliograph.errors import CheckpointError
from heliograph.spark_checkpoint.offsets_log import (
    Batches,
    BatchOffsets,
    InitialOffsets,
    choose_batches,
    read_batch,
    read_initial,
)

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
SOURCES: Final = "sources"
METADATA: Final = "metadata"
_FILE_BYTES_MAX: Final = 64 * 1024 * 1024
"""A hundred thousand partitions are 2 MB."""
_UNFINISHED: Final = (".tmp", ".tmp.crc")
_ELSEWHERE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""Spark takes URLs for checkpoints; a path object has already lost one of their slashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFolder:
    """What a checkpoint says, and which files say it."""

    directory: Path
    batches: Batches | None
    offsets: Mapping[int, BatchOffsets]
    """By batch; only those the query needs to go on."""
    initial: Mapping[str, InitialOffsets]
    """By the source's folder; only Kafka sources have one."""
    left_out: int
    """Older batches that the copy does not have."""
    seen: frozenset[str]
    """The names in `offsets` and `commits` when it was read."""


def read_folder(directory: Path) -> CheckpointFolder:
    """Raises `CheckpointError` for what is no checkpoint that a query could go on from."""
    if _ELSEWHERE.match(str(directory)) is not None:
        raise CheckpointError(
            f"{directory} is not a path on this machine: bring the checkpoint here first, and put "
            "its copy where the query will look for it"
        )
    if not directory.is_dir():
        raise CheckpointError(f"{directory} is not a folder")
    if not (directory / METADATA).is_file() or not (directory / OFFSETS).is_dir():
        raise CheckpointError(
            f"{directory} is not the checkpoint of a streaming query: it has no {METADATA} file, "
            f"or no folder {OFFSETS}"
        )
    with _of(directory):
        planned, committed = _numbers(directory / OFFSETS), _numbers(directory / COMMITS)
        batches = choose_batches(planned, committed)
    kept = () if batches is None else batches.kept
    offsets: dict[int, BatchOffsets] = {}
    for batch in kept:
        path = directory / OFFSETS / str(batch)
        with _of(path):
            offsets[batch] = read_batch(_content(path))
    return CheckpointFolder(
        directory=directory,
        batches=batches,
        offsets=offsets,
        initial=_initial(directory / SOURCES),
        left_out=len(planned) - len(kept),
        seen=_names(directory),
    )


def write_copy(folder: CheckpointFolder, out: Path, changed: Mapping[str, bytes]) -> None:
    """All that the query needs to go on, with `changed` files by path; nothing where it raises."""
    require_apart(folder.directory, out)
    place = out.resolve()
    scratch = place.with_name(f".{place.name}.{uuid.uuid4().hex[:8]}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch.mkdir()
        try:
            _copy(folder, scratch, changed)
            if _names(folder.directory) != folder.seen:
                raise CheckpointError(
                    f"{folder.directory} has changed while it was copied: stop the query first"
                )
            with suppress(FileNotFoundError):
                place.rmdir()
            scratch.rename(place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as exc:
        raise CheckpointError(f"{out}: could not be written: {exc}") from exc


def require_apart(directory: Path, out: Path) -> None:
    """The copy gets a folder of its own: one that is not there yet, or is empty."""
    here, there = directory.resolve(), out.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise CheckpointError(f"{out}: the copy cannot be in the checkpoint, nor around it")
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise CheckpointError(f"{out} is there already, and is not an empty folder")


def _copy(folder: CheckpointFolder, scratch: Path, changed: Mapping[str, bytes]) -> None:
    kept = _kept_batches(folder.batches)
    for at, folders, files in os.walk(folder.directory):
        here = Path(at)
        for name in folders:
            if (here / name).is_symlink():
                raise CheckpointError(f"{here / name} is a link to a folder; it was not followed")
        place = here.relative_to(folder.directory)
        (scratch / place).mkdir(exist_ok=True)
        for name in files:
            path = (place / name).as_posix()
            if _is_wanted(path, kept) and _main_file(path) not in changed:
                shutil.copy2(here / name, scratch / place / name)
    # Without checksum files, which would be those of what was there before: Spark and Hadoop take
    # a file that has none.
    for path, content in changed.items():
        (scratch / path).write_bytes(content)


def _is_wanted(path: str, kept: Mapping[str, frozenset[int]]) -> bool:
    folder, _, name = path.partition("/")
    if name.rpartition("/")[2].startswith(".") and name.endswith(_UNFINISHED):
        return False
    if folder not in kept:
        return True
    number = _main_file(name)
    return not number.isdigit() or int(number) in kept[folder]


def _main_file(path: str) -> str:
    """The file that a checksum file is of: Hadoop's `.7.crc` and Spark's `7.crc` are of `7`."""
    folder, slash, name = path.rpartition("/")
    if name.endswith(".crc"):
        name = name.removesuffix(".crc").removeprefix(".")
    return f"{folder}{slash}{name}"


def _kept_batches(batches: Batches | None) -> dict[str, frozenset[int]]:
    if batches is None:
        return {}
    return {OFFSETS: frozenset(batches.kept), COMMITS: frozenset(batches.commits)}


def _initial(sources: Path) -> dict[str, InitialOffsets]:
    found: dict[str, InitialOffsets] = {}
    for path in sorted(sources.glob("*/0")) if sources.is_dir() else []:
        # Other kinds of sources keep logs of their own there, of any size.
        if not path.is_file() or path.stat().st_size > _FILE_BYTES_MAX:
            continue
        with _of(path):
            content = _content(path)
            began = read_initial(content) if content[:1] == b"\0" else None
        if began is not None:
            found[path.parent.name] = began
    return found


def _names(directory: Path) -> frozenset[str]:
    return frozenset(
        f"{log}/{number}" for log in (OFFSETS, COMMITS) for number in _numbers(directory / log)
    )


def _numbers(log: Path) -> list[int]:
    if not log.is_dir():
        return []
    return [int(path.name) for path in log.iterdir() if _is_batch(path)]


def _is_batch(path: Path) -> bool:
    name = path.name
    return name.isascii() and name.isdigit() and str(int(name)) == name and path.is_file()


def _content(path: Path) -> bytes:
    if path.stat().st_size > _FILE_BYTES_MAX:
        raise CheckpointError(f"is larger than {_FILE_BYTES_MAX:,} bytes")
    return path.read_bytes()


@contextmanager
def _of(path: Path) -> Iterator[None]:
    """What goes wrong inside is told with the path before it."""
    try:
        yield
    except CheckpointError as exc:
        raise CheckpointError(f"{path}: {exc}") from exc
    except OSError as exc:
        raise CheckpointError(f"{path}: could not be read: {exc}") from exc
