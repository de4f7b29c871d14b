"""One micro-batch, exactly once: stage, claim, append, note. Runs on the driver.

The whole protocol is `PipelineTarget.write`. It may be called again for the same batch after a
crash at any line; how rows are staged and where they are appended from is the caller's. Of a
pipeline that is declared deterministic nothing is staged: claim, append, note.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import LATEST, open_cluster
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, PipelineRefused
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.service import LedgerService
from heliograph.ledger.settings import ensure_ledger_topic
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName, TopicPartition
from heliograph.pipeline.append import PartToAppend
from heliograph.pipeline.append_task import AppendOrder
from heliograph.pipeline.notes import (
    AlreadyDone,
    Begin,
    Claim,
    Done,
    GoOn,
    PartEnd,
    Step,
    claim_entry,
    done_entries,
    first_claim,
    following,
    forgotten,
    half_written,
    last_done,
    merged_ends,
    next_step,
    pipeline_flow,
    producers_entry,
    producers_of,
    said,
    starts_of,
    task_starts,
    withdrawn,
)
from heliograph.pipeline.packing import OnError, TargetTopics
from heliograph.pipeline.staging import Folder, Piece, StagedPart
from heliograph.pipeline.target_topics import target_topics
from heliograph.probe import (
    PIPELINE_CLAIMED,
    PIPELINE_NOTED,
    PIPELINE_STAGED,
    PIPELINE_TO_NOTE,
    probe,
)
from heliograph.wire.batch import Stamp

log = logging.getLogger("heliograph")

_UNNUMBERED_MS_MAX: Final = 86_400_000
_MANIFEST: Final = "manifest.json"
_TOPICS_S: Final = 30.0
_BROKER_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    batch: int
    records: int
    """Of the rows that were staged; 0 where the batch had been written before."""
    ends: tuple[PartEnd, ...]


Stage = Callable[[Folder, TargetTopics], Sequence[StagedPart]]
"""Writes the rows into the folder; in the order in which their records will stand."""
Append = Callable[[AppendOrder, Sequence[PartToAppend]], Iterable[PartEnd]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectOrder:
    """All that tasks need to append what they compute; holds credentials."""

    id: str
    cluster: ClusterConfig = field(repr=False)
    topics: TargetTopics
    at_ms: int
    """The timestamp of rows that have none: another try must make the same records."""
    stamps: tuple[Stamp, ...]
    """By task."""
    starts: tuple[Mapping[TopicPartition, PartEnd], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectBatch:
    """A batch whose tasks append what they compute."""

    claim: Claim
    done: Done | None
    topics: TargetTopics
    is_again: bool
    """Some of it may be written."""

    def starts(self, task: int) -> dict[TopicPartition, PartEnd]:
        return task_starts(self.claim, self.done, self.claim.producers[task][0])

    def stamp(self, task: int) -> Stamp:
        return Stamp(*self.claim.producers[task])


class DirectWork(Protocol):
    """Tasks that compute rows and append them themselves."""

    def task_count(self) -> int:
        """The same for each try of a batch."""
        ...

    def run(self, order: DirectOrder) -> Iterable[tuple[PartEnd, int]]:
        """Where each partition is then, and how many of its rows are the batch's."""
        ...


def pipeline_folder(staging: str, name: str) -> Folder:
    """Where all that a pipeline stages lies."""
    return Folder(staging).child(name)


def incoming_folder(staging: str, name: str, batch: int | None) -> Folder:
    """A new one for tasks to fill. Left by a writer that died it is removed behind its batch, or
    behind any that is done a day later where its number is not known."""
    kind = f"unnumbered-{now_ms()}" if batch is None else f"incoming-{batch}"
    made = pipeline_folder(staging, name).child(f"{kind}-{uuid.uuid4().hex}")
    made.make()
    return made


class PipelineTarget:
    """A pipeline's end at its target cluster. Used by one thread; `close` when done with it."""

    def __init__(
        self,
        cluster: ClusterConfig,
        name: str,
        *,
        staging: str,
        topic: str | None = None,
        codec: int = 0,
        replication_factor: int = _BROKER_DEFAULT,
        on_error: OnError = OnError.STALL,
        dead_letter_topic: str | None = None,
    ) -> None:
        self.flow = pipeline_flow(name, cluster.alias)
        self._cluster, self._codec, self._topic = cluster, codec, topic
        self._on_error, self._dead_letter_topic = on_error, dead_letter_topic
        self._folder = pipeline_folder(staging, name)
        self._admin = ClusterAdmin(cluster)
        ensure_ledger_topic(
            self._admin, ledger_topic(self.flow.source), replication_factor=replication_factor
        )
        self._ledger = LedgerService({cluster.alias: cluster})
        producer = self._ledger.open(self.flow, None)
        self._stamp = Stamp(producer.producer_id, producer.producer_epoch)
        self._topics: TargetTopics | None = None
        self._topics_at_s = 0.0

    def close(self) -> None:
        self._ledger.close()

    def next_batch(self) -> int:
        """The number of a batch that follows all others, for who has none of their own."""
        return self._ledger.ask(self.flow, following)

    def begun_batch(self) -> int:
        """The number of the one that is half written. Raises `PipelineRefused` where none is."""
        left = self._ledger.ask(self.flow, half_written)
        if left is None:
            raise PipelineRefused(f"pipeline {self.flow}: no batch was begun")
        return left.batch

    def write(
        self,
        batch: int,
        query: str,
        stage: Stage,
        append: Append,
        direct: DirectWork | None = None,
    ) -> WrittenBatch:
        """Have all rows of the batch in the target's logs, once. Raises `MirrorError`.

        With `direct` nothing is staged, but for a batch that had begun to be.
        """
        step = self._step(batch, query)
        log.debug("pipeline %s: batch %s %s", self.flow, batch, said(step))
        match step:
            case AlreadyDone():
                return WrittenBatch(batch=batch, records=0, ends=())
            case GoOn(claim) if claim.producers:
                return self._write_direct(claim, direct)
            case GoOn(claim):
                parts = self._read_manifest(claim)
            case Begin() if direct is not None:
                claim = self._begin_direct(batch, query, direct.task_count())
                return self._write_direct(claim, direct)
            case Begin():
                claim, parts = self._begin(batch, query, stage)
        ends = self._append_all(claim, parts, append)
        records = sum(part.record_count for part in parts)
        written = self._note(claim, records, ends)
        self._remove_before(claim)
        return written

    def _step(self, batch: int, query: str) -> Step:
        return self._ledger.ask(self.flow, lambda view: self._next(view, batch, query))

    def _next(self, view: LedgerView, batch: int, query: str) -> Step:
        return next_step(view, batch, query, lambda token: self._has(batch, token))

    def is_new(self, batch: int) -> bool:
        """Whether nothing of it, nor of a later one, was begun."""
        return self._ledger.ask(
            self.flow, lambda view: last_done(view) is None and first_claim(view, batch) is None
        )

    def log_ends(self, targets: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return asyncio.run(self._log_ends(targets))

    def topics(self) -> TargetTopics:
        """What the target has; looked at again after half a minute."""
        if self._topics is None or monotonic_s() - self._topics_at_s > _TOPICS_S:
            self._topics = target_topics(
                self._admin,
                topic=self._topic,
                codec=self._codec,
                on_error=self._on_error,
                dead_letter_topic=self._dead_letter_topic,
            )
            self._topics_at_s = monotonic_s()
        return self._topics

    def _begin(self, batch: int, query: str, stage: Stage) -> tuple[Claim, list[StagedPart]]:
        token = uuid.uuid4().hex
        folder = self._folder.child(_folder_name(batch, token))
        folder.make()
        try:
            parts = list(stage(folder, self.topics()))
            folder.write(_MANIFEST, [_manifest(parts)])
            probe(PIPELINE_STAGED)
            targets = {part.target for part in parts}
            ends = self.log_ends(targets) if targets else {}
            claim = Claim(
                batch=batch,
                token=token,
                query=query,
                staging=self._folder.uri,
                at_ms=now_ms(),
                starts=self._ledger.ask(self.flow, lambda view: starts_of(view, targets, ends)),
            )
            entry = claim_entry(claim)
        except BaseException:
            # Nothing was claimed, so what was staged is worth nothing.
            folder.remove()
            raise
        # A note that fails may be written all the same: the next try goes on from the folder then.
        # Where it was not written, a later batch removes the folder.
        self._ledger.note(self.flow, [entry])
        self._require_first(claim, folder)
        probe(PIPELINE_CLAIMED)
        return claim, parts

    def _require_first(self, claim: Claim, folder: Folder) -> None:
        """Raises `PipelineRefused` where another copy has claimed the batch, or is past it."""
        counts = self._ledger.ask(self.flow, lambda view: first_claim(view, claim.batch))
        try:
            if counts is None or counts.token != claim.token:
                raise PipelineRefused(
                    f"another copy of this query has just begun batch {claim.batch}; two copies "
                    "of a query cannot run at once under one pipeline name"
                )
            # Staging takes its time. A copy that has written this batch and many more since has
            # forgotten its claim of it, and ours looks like the first.
            self._step(claim.batch, claim.query)
        except PipelineRefused:
            self._ledger.note(self.flow, [withdrawn(claim)])
            folder.remove()
            raise

    def _append_all(
        self, claim: Claim, parts: Sequence[StagedPart], append: Append
    ) -> list[PartEnd]:
        pieces: dict[TopicPartition, list[Piece]] = {}
        for part in parts:
            pieces.setdefault(part.target, []).extend(part.pieces)
        order = AppendOrder(
            id=f"{claim.batch}-{claim.token}",
            cluster=self._cluster,
            stamp=self._stamp,
            folder=self._folder.child(_folder_name(claim.batch, claim.token)).uri,
        )
        wanted = [
            PartToAppend(start=start, pieces=tuple(pieces[start.target])) for start in claim.starts
        ]
        ends = list(append(order, wanted)) if wanted else []
        missing = {part.start.target for part in wanted} - {end.target for end in ends}
        if missing:
            raise PipelineRefused(f"{len(missing)} target partitions were not written")
        return ends

    def _begin_direct(self, batch: int, query: str, count: int) -> Claim:
        if self._topic is None:
            raise PipelineRefused("a pipeline that is declared deterministic needs a topic")
        topics = self.topics()
        names = {self._topic, topics.dead_letter_topic or self._topic}
        targets = [
            TopicPartition(topic=TopicName(name), partition=number)
            for name in sorted(names)
            for number in range(topics.partition_counts[name])
        ]
        producers = self._ledger.ask(self.flow, producers_of)
        if len(producers) < count:
            producers += asyncio.run(self._new_producers(count - len(producers)))
            self._ledger.note(self.flow, [producers_entry(producers)])
        ends = self.log_ends(targets)
        claim = Claim(
            batch=batch,
            token=uuid.uuid4().hex,
            query=query,
            staging="",
            at_ms=now_ms(),
            starts=tuple(
                PartEnd(topic=at.topic, partition=at.partition, position=0, offset=ends[at])
                for at in targets
            ),
            producers=producers[:count],
        )
        self._ledger.note(self.flow, [claim_entry(claim)])
        # Of two copies that begin at once the first one's producers count, for both.
        counts = self._ledger.ask(self.flow, lambda view: first_claim(view, batch)) or claim
        probe(PIPELINE_CLAIMED)
        return counts

    def begin_direct(self, batch: int, query: str, producers_max: int) -> DirectBatch | None:
        """A batch for tasks that nobody has counted yet; None where all of it is written.

        They append, and then `finish_direct` notes it. Where `is_again` they may not: see
        `direct_writer`.
        """
        match self._step(batch, query):
            case AlreadyDone():
                return None
            case GoOn(claim) if claim.producers:
                is_again = True
            case GoOn():
                raise PipelineRefused(
                    f"batch {batch} was begun by a pipeline not declared deterministic, and is "
                    "half written: take `deterministic` back until that batch is done"
                )
            case Begin():
                claim, is_again = self._begin_direct(batch, query, producers_max), False
        return self._direct(claim, is_again=is_again)

    def finish_direct(
        self, direct: DirectBatch, written: Sequence[tuple[PartEnd, int]]
    ) -> WrittenBatch:
        records = sum(count for _, count in written)
        noted = self._note(direct.claim, records, [end for end, _ in written])
        self._remove_before(direct.claim)
        return noted

    def _write_direct(self, claim: Claim, work: DirectWork | None) -> WrittenBatch:
        if work is None:
            raise PipelineRefused(
                f"batch {claim.batch} was begun by a pipeline declared deterministic, and is half "
                "written: declare it so until that batch is done"
            )
        if work.task_count() != len(claim.producers):
            raise PipelineRefused(
                f"batch {claim.batch} was begun by {len(claim.producers)} tasks, and "
                f"{work.task_count()} would go on: declared deterministic, it must read "
                "as it did until the batch is done"
            )
        direct = self._direct(claim, is_again=True)
        if direct is None:
            return WrittenBatch(batch=claim.batch, records=0, ends=())
        order = DirectOrder(
            id=f"{claim.batch}-{claim.token}",
            cluster=self._cluster,
            topics=direct.topics,
            at_ms=claim.at_ms,
            stamps=tuple(direct.stamp(task) for task in range(len(claim.producers))),
            starts=tuple(direct.starts(task) for task in range(len(claim.producers))),
        )
        return self.finish_direct(direct, list(work.run(order)))

    def _direct(self, claim: Claim, *, is_again: bool) -> DirectBatch | None:
        step, done = self._ledger.ask(
            self.flow, lambda view: (self._next(view, claim.batch, claim.query), last_done(view))
        )
        # A copy of the query may have written it since it was looked at: its rows lie before the
        # ends of what is done, and would be written again behind them.
        if isinstance(step, AlreadyDone):
            return None
        # As many partitions as there were: with more, keys would go elsewhere at another try.
        counts = dict(Counter(start.topic for start in claim.starts))
        topics = replace(self.topics(), partition_counts=counts)
        return DirectBatch(claim=claim, done=done, topics=topics, is_again=is_again)

    async def _new_producers(self, count: int) -> tuple[tuple[int, int], ...]:
        cluster = open_cluster(self._cluster, "producer")
        try:
            return tuple([await cluster.new_producer_id() for _ in range(count)])
        finally:
            cluster.close()

    def _note(self, claim: Claim, records: int, ends: Sequence[PartEnd]) -> WrittenBatch:
        probe(PIPELINE_TO_NOTE)
        view = self._ledger.view(self.flow)
        done = Done(
            batch=claim.batch,
            token=claim.token,
            query=claim.query,
            at_ms=now_ms(),
            ends=merged_ends(last_done(view), ends),
            is_direct=bool(claim.producers),
        )
        self._ledger.note(self.flow, [*done_entries(done), *forgotten(view, claim.batch)])
        probe(PIPELINE_NOTED)
        return WrittenBatch(batch=claim.batch, records=records, ends=tuple(ends))

    def _remove_before(self, claim: Claim) -> None:
        """This batch's folder stays: by it a replay knows that it is of the same query."""
        kept, at_ms = _folder_name(claim.batch, claim.token), now_ms()
        for name in self._folder.names():
            if name != kept and _is_left(name, claim.batch, at_ms):
                self._folder.child(name).remove()

    def _has(self, batch: int, token: str) -> bool:
        return self._folder.child(_folder_name(batch, token)).exists()

    def _read_manifest(self, claim: Claim) -> list[StagedPart]:
        folder = self._folder.child(_folder_name(claim.batch, claim.token))
        return [
            StagedPart(
                target=TopicPartition(topic=TopicName(topic), partition=partition),
                pieces=tuple(Piece(*piece) for piece in pieces),
            )
            for topic, partition, pieces in json.loads(folder.read(_MANIFEST))
        ]

    async def _log_ends(self, targets: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        cluster = open_cluster(self._cluster, "producer")
        try:
            await cluster.refresh({at.topic for at in targets})
            answers = await cluster.list_offsets(targets, LATEST)
        finally:
            cluster.close()
        for answer in answers.values():
            if isinstance(answer, BrokerError):
                raise answer
        return {at: end for at, end in answers.items() if isinstance(end, int)}


def _folder_name(batch: int, token: str) -> str:
    return f"{batch}-{token}"


def _is_left(name: str, batch: int, at_ms: int) -> bool:
    """Whether a folder is of no batch that is still to be written."""
    match name.split("-"):
        case [number, _] | ["incoming", number, _] if number.isdigit():
            return int(number) <= batch
        case ["unnumbered", begun_ms, _] if begun_ms.isdigit():
            return int(begun_ms) < at_ms - _UNNUMBERED_MS_MAX
    return False


def _manifest(parts: Sequence[StagedPart]) -> bytes:
    return json.dumps(
        [[part.target.topic, part.target.partition, part.pieces] for part in parts]
    ).encode()
