"""What a pipeline's ledger says of its micro-batches, and what follows. No I/O; runs anywhere.

Two notes a batch. A *claim* names the staged rows that count, before the first of them is sent: of
two copies of a query, whose rows may differ, the first claim in the ledger wins and the other copy
is refused. *Done* says how far each target partition was then, with notes of further ends before it
where one has no room for all. Each has a key of its own, so a
process that wakes up late can take nothing back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, assert_never

from heliograph.errors import InvariantError, PipelineRefused
from heliograph.ledger.entries import MemoEntry, Tombstone
from heliograph.ledger.entry_codec import MEMO_BYTES_MAX
from heliograph.ledger.memo import Memo, forget_memo
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_CLAIM: Final = "pipeline-claim|"
_DONE: Final = "pipeline-done|"
_ENDS: Final = "pipeline-ends|"
_PRODUCERS_SUBJECT: Final = "pipeline-producers"
_KEPT_BATCHES: Final = 10
_ENDS_MAX: Final = 1_000
"""Of one memo; with the longest names they are well below what a memo may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEnd:
    """How far a pipeline has come in one target partition."""

    topic: str
    partition: int
    position: int
    """How many records it has appended there."""
    offset: int
    """Its own records that are not counted yet are at this offset or later."""
    producer: int | None = None
    """Of one task of a pipeline that is declared deterministic; None is the pipeline's own."""

    @property
    def target(self) -> TopicPartition:
        return TopicPartition(topic=TopicName(self.topic), partition=self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    batch: int
    token: str
    """Names the folder of the staged rows."""
    query: str
    """Structured Streaming's id of the query; empty where there is none."""
    staging: str
    at_ms: int
    starts: tuple[PartEnd, ...]
    """Of the partitions that the batch has records for, or may have."""
    producers: tuple[tuple[int, int], ...] = ()
    """Producer id and epoch of each task, where nothing is staged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    batch: int
    token: str
    query: str
    at_ms: int
    ends: tuple[PartEnd, ...]
    """Of all partitions that the pipeline has ever written to."""
    is_direct: bool = False
    """Whether nothing of it was staged."""
    more: int = 0
    """How many notes of further ends lie before this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreEnds:
    """Ends that `Done` has no room for: there is one for each partition and task."""

    ends: tuple[PartEnd, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Producers:
    """One for each task of a pipeline that is declared deterministic: id and epoch."""

    stamps: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """All of it is in the target's log."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Its rows were staged and claimed; what is missing of them is appended."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Begin:
    """Nothing of it was sent."""


Step = AlreadyDone | GoOn | Begin

_CLAIMS: Final = Memo[Claim](Claim)
_DONES: Final = Memo[Done](Done)
_MORE_ENDS: Final = Memo[MoreEnds](MoreEnds)
_PRODUCERS: Final = Memo[Producers](Producers)


def pipeline_flow(name: str, target: ClusterAlias) -> FlowId:
    """The flow whose ledger the pipeline has: its source is the pipeline itself."""
    if not _NAME.fullmatch(name):
        raise PipelineRefused(
            f"the pipeline's name {name!r} has other characters than letters, digits, - and _, "
            "or more than a hundred"
        )
    return FlowId(source=ClusterAlias(f"pipeline.{name}"), target=target)


def claim_entry(claim: Claim) -> MemoEntry:
    """Raises `PipelineRefused` for more than a ledger takes."""
    entry = _CLAIMS.entry(f"{_CLAIM}{claim.batch}|{claim.token}", claim)
    if len(entry.text) > MEMO_BYTES_MAX:
        raise PipelineRefused(
            f"batch {claim.batch} is for {len(claim.starts):,} target partitions and has "
            f"{len(claim.producers):,} tasks with a producer of their own, more than a claim can "
            "name: write to fewer topics, or coalesce the rows"
        )
    return entry


def done_entries(done: Done) -> list[MemoEntry]:
    """To be noted in this order: what the last one counts is there when it is read."""
    starts = range(0, max(1, len(done.ends)), _ENDS_MAX)
    first, *more = [done.ends[start : start + _ENDS_MAX] for start in starts]
    return [
        *(
            _MORE_ENDS.entry(_ends_subject(done, number), MoreEnds(ends=ends))
            for number, ends in enumerate(more)
        ),
        _DONES.entry(f"{_DONE}{done.batch}", replace(done, ends=first, more=len(more))),
    ]


def _ends_subject(done: Done, number: int) -> str:
    return f"{_ENDS}{done.batch}|{done.token}|{number}"


def producers_entry(stamps: Iterable[tuple[int, int]]) -> MemoEntry:
    return _PRODUCERS.entry(_PRODUCERS_SUBJECT, Producers(stamps=tuple(stamps)))


def producers_of(view: LedgerView) -> tuple[tuple[int, int], ...]:
    found = _PRODUCERS.read(view, _PRODUCERS_SUBJECT)
    return () if found is None else found.stamps


def forgotten(view: LedgerView, batch: int) -> list[Tombstone]:
    """Notes of batches so old that no replay asks for them."""
    return [
        forget_memo(subject)
        for subject in view.memos
        if subject.startswith((_CLAIM, _DONE, _ENDS))
        and int(subject.split("|")[1]) < batch - _KEPT_BATCHES
    ]


def withdrawn(claim: Claim) -> Tombstone:
    return forget_memo(f"{_CLAIM}{claim.batch}|{claim.token}")


def last_done(view: LedgerView) -> Done | None:
    subjects = [subject for subject in view.memos if subject.startswith(_DONE)]
    if not subjects:
        return None
    newest = max(subjects, key=lambda subject: int(subject.split("|")[1]))
    done = _DONES.decode(newest, view.memos[newest])
    ends = list(done.ends)
    for subject in (_ends_subject(done, number) for number in range(done.more)):
        if (more := _MORE_ENDS.read(view, subject)) is None:
            raise InvariantError(f"the ledger has {newest}, and not {subject}")
        ends += more.ends
    return replace(done, ends=tuple(ends), more=0)


def first_claim(view: LedgerView, batch: int) -> Claim | None:
    """The one that counts."""
    found = (s for s in view.memos if s.startswith(f"{_CLAIM}{batch}|"))
    subject = next(found, None)
    return None if subject is None else _CLAIMS.read(view, subject)


def half_written(view: LedgerView) -> Claim | None:
    """The claim of a batch that is not done: some of its rows may be in the logs."""
    done = last_done(view)
    batches = [int(s.split("|")[1]) for s in view.memos if s.startswith(_CLAIM)]
    left = [batch for batch in batches if done is None or batch > done.batch]
    return first_claim(view, min(left)) if left else None


def following(view: LedgerView) -> int:
    """The number of a batch that follows all others, for who has none of their own. Raises
    `PipelineRefused` where the last one is half written."""
    if (left := half_written(view)) is not None:
        raise PipelineRefused(_unfinished(left))
    done = last_done(view)
    return 0 if done is None else done.batch + 1


def _unfinished(claim: Claim) -> str:
    rows = "the same rows" if claim.producers else "the rows that were staged are finished then"
    return (
        f"batch {claim.batch} is half written, and no other batch can be written before it is "
        f"done: write it again by its number, {claim.batch} ({rows})"
    )


def next_step(view: LedgerView, batch: int, query: str, is_staged: Callable[[str], bool]) -> Step:
    """What to do about this batch; `is_staged` says whether a token's folder is here.

    Of a batch that is not staged every copy of the query makes the same rows: both may go on.

    Raises `PipelineRefused` where another query, another copy of this one, or a later state of it
    has written already, or where another batch is half written: the rows of both would have the
    same positions, and those of one be taken for those of the other.
    """
    done = last_done(view)
    if done is not None and query and done.query and done.query != query:
        raise PipelineRefused(
            f"batch {done.batch} was written by another query ({done.query}): a new query, or one "
            "with a new checkpoint, needs a pipeline name of its own"
        )
    if done is not None and batch < done.batch:
        raise PipelineRefused(
            f"batch {batch} comes from a checkpoint that is too old: batch {done.batch} has been "
            "written. Use the newest checkpoint, or another pipeline name to write all of it again"
        )
    if done is not None and batch == done.batch:
        if done.is_direct or is_staged(done.token):
            return AlreadyDone()
        raise PipelineRefused(
            f"batch {batch} has been written, and its staging folder is not here: this is a copy "
            "of the query that wrote it, or the folder was removed"
        )
    claim = half_written(view)
    if claim is None:
        return Begin()
    if claim.batch != batch:
        raise PipelineRefused(_unfinished(claim))
    if claim.producers or is_staged(claim.token):
        return GoOn(claim)
    raise PipelineRefused(
        f"batch {batch} was staged in {claim.staging} and is half written, and that folder is not "
        "here: another copy of the query runs, or the folder was removed"
    )


def starts_of(
    view: LedgerView, targets: Iterable[TopicPartition], ends: dict[TopicPartition, int]
) -> tuple[PartEnd, ...]:
    """Where a batch's records of each partition begin; `ends` are those of the logs now."""
    done = last_done(view)
    known = {end.target: end for end in done.ends if end.producer is None} if done else {}
    return tuple(
        known.get(target)
        or PartEnd(topic=target.topic, partition=target.partition, position=0, offset=ends[target])
        for target in sorted(targets)
    )


def task_starts(claim: Claim, done: Done | None, producer: int) -> dict[TopicPartition, PartEnd]:
    """Where a task's records begin in each partition: behind what its producer wrote in earlier
    batches, and not before the claim."""
    known = (
        {end.target: end.position for end in done.ends if end.producer == producer} if done else {}
    )
    return {
        start.target: replace(start, position=known.get(start.target, 0), producer=producer)
        for start in claim.starts
    }


def merged_ends(done: Done | None, ends: Iterable[PartEnd]) -> tuple[PartEnd, ...]:
    known = {(end.target, end.producer): end for end in done.ends} if done else {}
    known |= {(end.target, end.producer): end for end in ends}
    return tuple(known[key] for key in sorted(known, key=lambda key: (key[0], key[1] or -1)))


def said(step: Step) -> str:
    match step:
        case AlreadyDone():
            return "is written already"
        case GoOn():
            return "goes on where it was left"
        case Begin():
            return "begins"
        case _:
            assert_never(step)
