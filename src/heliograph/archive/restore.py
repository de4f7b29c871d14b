"""A topic out of an archive, each record once. Runs on the driver; blocks.

As a batch of a deterministic pipeline: each partition has a task and a producer of its own, a run
that is repeated finds in the logs what is there, compares it with the archive, and appends the
rest. To keep offsets, an empty partition is first filled up to the first of them and emptied
(`broker.seed`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from heliograph.archive.book import Book, open_book
from heliograph.archive.reading import ArchivedPartition, offsets_of, partitions_of
from heliograph.archive.restore_task import Restored, RestoreOrder, RestorePart, restore_part
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.topic_changes import TopicToCreate
from heliograph.config.schema import ClusterConfig
from heliograph.engine.unit_job import run_units
from heliograph.errors import ArchiveRefused, BrokerError, MirrorError, PipelineRefused
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline.batches import DirectOrder, PipelineTarget
from heliograph.pipeline.notes import PartEnd
from heliograph.wire.compression import Codec

_BATCH: Final = 0
_NAME_CHARS_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreWish:
    cluster: ClusterConfig = field(repr=False)
    folder: str
    topic: TopicName
    same_offsets: bool = True
    codec: Codec = Codec.ZSTD
    replication_factor: int = -1
    name: str | None = None
    """Of the ledger; by the topic's unless given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    partitions: tuple[Restored, ...]
    was_done: bool
    """Whether an earlier run had restored all of it."""

    @property
    def records(self) -> int:
        return sum(each.records for each in self.partitions)


def restore_topic(context: Any, wish: RestoreWish) -> RestoreResult:
    """Raises `MirrorError`; run again, it goes on where it was left."""
    book = open_book(wish.folder)
    parts = partitions_of(book.files())
    if not parts:
        raise ArchiveRefused(f"archive {wish.folder} holds nothing")
    firsts = _firsts(book, parts) if wish.same_offsets else {}
    _ensure_topic(wish, max(part.partition for part in parts) + 1)
    target = PipelineTarget(
        wish.cluster,
        (wish.name or f"restore-{wish.topic}".replace(".", "_"))[:_NAME_CHARS_MAX],
        staging=wish.folder,
        topic=wish.topic,
        codec=wish.codec,
        replication_factor=wish.replication_factor,
    )
    work = _Work(context, wish, parts, firsts)
    try:
        if target.is_new(_BATCH):
            _require_room(target, wish.topic, firsts)
        target.write(_BATCH, book.id, _never, _never, work)
    finally:
        target.close()
    return RestoreResult(partitions=tuple(work.restored), was_done=not work.has_run)


def _firsts(book: Book, parts: Sequence[ArchivedPartition]) -> dict[int, int]:
    """Each partition's first offset. Raises `ArchiveRefused` where offsets cannot be kept."""
    found: dict[int, int] = {}
    for part in parts:
        first, _, gap = offsets_of(book.folder, part)
        if gap is not None:
            raise ArchiveRefused(
                f"partition {part.partition}: behind offset {gap:,} the archive has a gap "
                "(compaction, a transaction's end, or another cluster), and a broker gives offsets "
                "without gaps: --offsets new restores records without their offsets"
            )
        found[part.partition] = first
    return found


def _require_room(target: PipelineTarget, topic: TopicName, firsts: dict[int, int]) -> None:
    """Raises `ArchiveRefused` where records lie where archived ones are to be."""
    at = {number: TopicPartition(topic=topic, partition=number) for number in firsts}
    ends = target.log_ends(at.values()) if at else {}
    for number, first in firsts.items():
        if ends[at[number]] > first:
            raise ArchiveRefused(
                f"{at[number]} has records up to offset {ends[at[number]]:,}, and the archive "
                f"begins at {first:,}: restore into a topic of its own, or say --offsets new to "
                "append behind them"
            )


def _ensure_topic(wish: RestoreWish, partitions: int) -> None:
    admin = ClusterAdmin(wish.cluster)
    view = admin.describe_topics([wish.topic]).get(wish.topic)
    if view is None:
        new = TopicToCreate(
            source=wish.topic,
            name=wish.topic,
            partitions=partitions,
            replication_factor=wish.replication_factor,
            # Old records must not be deleted before somebody has read them.
            configs={"retention.ms": "-1", "retention.bytes": "-1"},
        )
        outcome = admin.create_topics([new])[wish.topic]
        if isinstance(outcome, BrokerError):
            raise outcome
        admin.await_partitions({wish.topic: partitions})
    elif len(view.partitions) < partitions:
        raise ArchiveRefused(
            f"topic {wish.topic} has {len(view.partitions)} partitions, and the archive "
            f"{partitions}"
        )


class _Work:
    """`DirectWork` of an archive: one task for each partition."""

    def __init__(
        self,
        context: Any,
        wish: RestoreWish,
        parts: Sequence[ArchivedPartition],
        firsts: dict[int, int],
    ) -> None:
        self._context, self._wish, self._parts, self._firsts = context, wish, parts, firsts
        self.restored: list[Restored] = []
        self.has_run = False

    def task_count(self) -> int:
        return len(self._parts)

    def run(self, order: DirectOrder) -> Iterable[tuple[PartEnd, int]]:
        self.has_run = True
        units = [
            RestorePart(
                part=part,
                stamp=stamp,
                start=starts[self._at(part)],
                first_offset=self._firsts.get(part.partition),
            )
            for part, stamp, starts in zip(self._parts, order.stamps, order.starts, strict=True)
        ]
        restoring = RestoreOrder(
            cluster=order.cluster, topics=order.topics, folder=self._wish.folder
        )
        problems: list[MirrorError] = []

        def heard(answer: Restored | MirrorError) -> None:
            if isinstance(answer, MirrorError):
                problems.append(answer)
            else:
                self.restored.append(answer)

        work = partial(restore_part, restoring)
        run_units(self._context, f"heliograph-restore-{order.id}", units, work, heard)
        if problems:
            raise problems[0]
        self.restored.sort(key=lambda each: each.end.partition)
        return [(each.end, each.records) for each in self.restored]

    def _at(self, part: ArchivedPartition) -> TopicPartition:
        return TopicPartition(topic=self._wish.topic, partition=part.partition)


def _never(*_: Any) -> Any:
    raise PipelineRefused("a pipeline has this name: restore under another --name")
