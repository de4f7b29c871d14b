"""A topic into an archive, as far as it goes now. Runs on the driver; blocks."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from heliograph.archive.book import ArchivedFile, Book, Commit, alone, open_book
from heliograph.archive.moving import moved
from heliograph.archive.task import ArchiveOrder, archive_stretch
from heliograph.broker.admin import ClusterAdmin
from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.engine.unit_job import run_units
from heliograph.errors import ArchiveRefused, MirrorError
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.pipeline.ends import SourceEnds
from heliograph.pipeline.offsets import Stretch, lost, stretches
from heliograph.pipeline.source_options import AtWord, SourceOptions

log = logging.getLogger("heliograph")

RECORDS_PER_FILE: Final = 1_000_000
_FILES_PER_TASK: Final = 4
"""In one commit: what a run that dies has to read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveWish:
    config: MirrorConfig = field(repr=False)
    cluster: ClusterAlias
    topic: TopicName
    folder: str
    read_committed: bool = True
    records_per_file: int = RECORDS_PER_FILE
    skip_lost: bool = False
    """Go on behind records that the cluster has deleted before they were archived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """What one run has done."""

    files: tuple[ArchivedFile, ...]
    positions: dict[int, int]
    lost: tuple[tuple[int, int, int], ...]
    moved_from: str | None
    notes: tuple[str, ...]

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)


def archive_topic(
    context: Any, wish: ArchiveWish, on_commit: Callable[[Commit], None] = lambda _: None
) -> Archived:
    """Have all that is there now in the archive. Safe to repeat after a crash at any line.

    Raises `MirrorError`; what was committed until then stays.
    """
    book = open_book(wish.folder)
    with alone(book):
        book.finish()
        before = len(book.commits)
        moved_from = _moved(book, wish, on_commit)
        topic_id = _topic_id(wish, book)
        ends = SourceEnds(_options(wish))
        try:
            _copy(context, wish, book, ends, topic_id, on_commit)
        finally:
            ends.close()
        new = book.commits[before:]
        return Archived(
            files=tuple(file for commit in new for file in commit.files),
            positions=book.positions,
            lost=tuple(each for commit in new for each in commit.lost),
            moved_from=moved_from,
            notes=tuple(note for commit in new for note in commit.notes),
        )


def _moved(book: Book, wish: ArchiveWish, on_commit: Callable[[Commit], None]) -> str | None:
    """Where the archive stood before, if that was another cluster."""
    if book.cluster is None:
        return None
    if book.cluster == wish.cluster:
        if book.topic != wish.topic:
            raise ArchiveRefused(f"{wish.folder} is the archive of topic {book.topic}")
        return None
    whence = book.cluster
    commit = moved(wish.config, book, wish.cluster, wish.topic)
    book.add(commit)
    on_commit(commit)
    return whence


def _topic_id(wish: ArchiveWish, book: Book) -> str:
    """Raises `ArchiveRefused` for a topic that is not the one that was archived until now."""
    admin = ClusterAdmin(wish.config.clusters[wish.cluster])
    view = admin.describe_topics([wish.topic]).get(wish.topic)
    found = "" if view is None or view.id is None else str(view.id)
    if book.topic_id and found and book.topic_id != found:
        raise ArchiveRefused(
            f"cluster {wish.cluster}: topic {wish.topic} was deleted and created again: its "
            "offsets mean other records now; archive it into a folder of its own"
        )
    return found


def _copy(
    context: Any,
    wish: ArchiveWish,
    book: Book,
    ends: SourceEnds,
    topic_id: str,
    on_commit: Callable[[Commit], None],
) -> None:
    def at(partition: int) -> TopicPartition:
        return TopicPartition(topic=wish.topic, partition=partition)

    last, earliest = ends.latest(), ends.earliest_of_all()
    start = {**earliest, **{at(each): offset for each, offset in book.positions.items()}}
    gone = lost(start, earliest)
    if gone and not wish.skip_lost:
        first = min(gone)
        raise ArchiveRefused(
            f"cluster {wish.cluster}: {first}: {gone[first]:,} offsets from {start[first]:,} on "
            "were deleted before they were archived; --skip-lost goes on behind them, and the "
            "archive says so"
        )
    if beyond := sorted(each for each in start if start[each] > last.get(each, start[each])):
        raise ArchiveRefused(
            f"cluster {wish.cluster}: {beyond[0]} ends at {last[beyond[0]]:,}, and the archive is "
            f"at {start[beyond[0]]:,}: is it another topic of that name?"
        )
    losses = tuple((each.partition, start[each], earliest[each]) for each in sorted(gone))
    start |= {each: earliest[each] for each in gone}
    parts = stretches(start, last, wish.records_per_file)
    wave = max(1, int(context.defaultParallelism)) * _FILES_PER_TASK
    waves = [parts[index : index + wave] for index in range(0, len(parts), wave)]
    for some in waves or ([[]] if losses else []):
        commit = replace(_commit_of(context, wish, book, some, losses), topic_id=topic_id)
        book.add(commit)
        on_commit(commit)
        losses = ()


def _commit_of(
    context: Any,
    wish: ArchiveWish,
    book: Book,
    parts: Sequence[Stretch],
    losses: tuple[tuple[int, int, int], ...],
) -> Commit:
    token = uuid.uuid4().hex
    staged = book.staged(token)
    staged.make()
    order = ArchiveOrder(
        cluster=wish.config.clusters[wish.cluster],
        staged=staged.uri,
        read_committed=wish.read_committed,
    )
    files: list[ArchivedFile] = []
    problems: list[MirrorError] = []

    def heard(answer: ArchivedFile | MirrorError) -> None:
        if isinstance(answer, MirrorError):
            problems.append(answer)
        else:
            files.append(answer)

    try:
        if parts:
            name = f"heliograph-archive-{token}"
            run_units(context, name, parts, partial(archive_stretch, order), heard)
        if problems:
            raise problems[0]
    except BaseException:
        staged.remove()
        raise
    by_range = {(file.partition, file.start): file for file in files}
    return Commit(
        cluster=wish.cluster,
        topic=wish.topic,
        at_ms=now_ms(),
        token=token,
        # A task that was tried again has answered twice; either file is whole.
        files=tuple(by_range[key] for key in sorted(by_range)),
        lost=losses,
    )


def _options(wish: ArchiveWish) -> SourceOptions:
    return SourceOptions(
        cluster=wish.config.clusters[wish.cluster],
        topics=frozenset({wish.topic}),
        start=AtWord(word="earliest"),
        end=AtWord(word="latest"),
        read_committed=wish.read_committed,
        fails_on_loss=True,
        with_headers=True,
        records_max=None,
        bytes_max=None,
        records_per_partition=wish.records_per_file,
    )
