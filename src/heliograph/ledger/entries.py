"""What the ledger's records say. No I/O; runs anywhere; `entry_codec` has their bytes.

    key                                   value
    flow|<producer id>                    JSON    which producer id stands for the flow
    lease|<author>                        JSON    which driver carries the flow
    head|<topic>|<partition>              JSON    how far a lane had come, and how it was
    run|<topic>|<partition>|<position>|<author>
                                          binary  runs, from that position on: of a chunk (see
                                                  `runs_codec`), or settled (see `packed_runs`)
    loss|<topic>|<partition>|<position>|<first lost offset>
                                          JSON    source offsets that are gone
    start|<topic>|<partition>|<position>|<author>
                                          JSON    where a lane starts; the first counts
    acl|<pattern>|<name>|<principal>|<host>|<operation>|<permission>
                                          JSON    an ACL that the flow created on the target
    memo|<subject>                        JSON    what a command notes for whoever comes after it

The topic's name carries the source and its cluster is the target, so keys name neither. Topics
are named as on the source. `docs/reference/ledger.md` has the bytes; a test holds it to the code.

Records are folded in log order, of each key the last one only; so a log and what compaction leaves
of it are the same to everybody (see `view`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from heliograph.acl import AclBinding
from heliograph.errors import InvariantError
from heliograph.ledger.packed_runs import PackedRuns, pack_anchors, pack_runs
from heliograph.ledger.runs import Run
from heliograph.model import (
    ClusterAlias,
    FlowId,
    OffsetRange,
    StallReason,
    TopicId,
    TopicName,
)

RUNS_PER_ENTRY_MAX: Final = 16_384
"""A run takes 30 bytes at most, so an entry stays under half of a broker's default record limit."""

TEXT_CHARS_MAX: Final = 255
"""Of a text in a JSON value; longer ones are cut by whoever writes them."""

_SIGN_AT: Final = 12
"""Where a UUID has its version: 4 in what `new_author` makes, 8 in one that says something."""
_PREDICTS: Final = "80"
_CORRECTS: Final = "81"

ADOPTED: Final = "adopted"
"""State of a head whose lane was taken over from a MirrorMaker 2 and not carried since."""
RELEASED: Final = "released"
"""State of a head whose lane was handed to a MirrorMaker 2: it must be adopted to go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEntry:
    """Written once per producer id. The first in the log that was not removed is the flow's own.

    Two drivers that start a new flow at the same moment each write one and then read: both see the
    same first one, and the other's producer id is never used. Last-one-wins would move the flow to
    another producer id after its first batches, and the broker could not tell repeats any more.
    """

    flow: FlowId
    producer_id: int
    producer_epoch: int
    source_cluster_id: str
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadEntry:
    """Where a lane was at `at_ms`; refreshed now and then, so the log itself may be ahead."""

    topic: TopicName
    partition: int
    position: int
    source_next_offset: int
    source_end_offset: int
    target_next_offset: int
    source_topic_id: TopicId | None
    target_topic_id: TopicId | None
    at_ms: int
    state: str
    """The lane's badge, such as `copying` or `stalled: corrupt batch`."""
    detail: str
    """A sentence about the state, or nothing."""
    source_leader_epoch: int | None = None
    """Of the source's batch that ends at `source_next_offset`; None where that is not known. A
    source that was cut off and has grown again since has another epoch there."""
    begun_at: int | None = None
    """Where nothing was mirrored since the lane's last start: that start's source offset, and the
    head says how far the lane has read since. None for every other head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsEntry:
    """Replaces the runs in `[runs[0].position, end_position)`, without end where that is None.

    A chunk's entry ends where the chunk does. The source fixes its source offsets, so one that a
    mirror presumed dead still gets through repeats what is there and leaves its successor's later
    runs. Its target offsets are predictions: records of others only ever move a batch further on.
    So what a mirror writes while it copies never lowers a target offset (`only_raises`), and what a
    resume corrects by the log also leaves source offsets alone (`keeps_sources`), see `raised`.
    An entry without end begins a lane's map, or is an earlier version's correction; it has an
    author of its own, so that no entry at that position takes its key.
    """

    topic: TopicName
    partition: int
    author: str
    runs: tuple[Run, ...]
    end_position: int | None

    @property
    def key(self) -> RunsKey:
        if not self.runs:
            raise InvariantError(f"{self.topic}-{self.partition}: an entry without runs")
        return RunsKey(
            topic=self.topic,
            partition=self.partition,
            position=self.runs[0].position,
            author=self.author,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEntry:
    """Replaces the runs in `[packed.first.position, packed.end_position)`, all of them settled.

    Whoever carries the lane puts it in the place of many entries of chunks, see `segments`. It has
    the key of a `RunsEntry`: where the two have one key, the later one counts.
    """

    topic: TopicName
    partition: int
    author: str
    packed: PackedRuns

    @property
    def key(self) -> RunsKey:
        return RunsKey(
            topic=self.topic,
            partition=self.partition,
            position=self.packed.first.position,
            author=self.author,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossEntry:
    """Source offsets gone before they could be read; `position` is the lane's when it was seen."""

    topic: TopicName
    partition: int
    position: int
    lost: OffsetRange
    reason: StallReason
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEntry:
    """Where a lane starts, or starts again, by choice: at birth, past a loss, on a new topic.

    Nothing in the source fixes these, so two mirrors may decide differently. For each position the
    first entry in the log counts, for everybody: each writes its own, reads to the end, and follows
    the first. The author in the key keeps compaction from removing the one that counts, as long as
    no author writes one key twice.
    """

    topic: TopicName
    partition: int
    position: int
    author: str
    source_offset: int
    target_offset: int
    source_topic_id: TopicId | None
    target_topic_id: TopicId | None
    at_ms: int
    adopted: bool = False
    """Whether another mirror has put what came before on the target, at offsets not known here."""

    @property
    def key(self) -> StartKey:
        return StartKey(
            topic=self.topic,
            partition=self.partition,
            position=self.position,
            author=self.author,
        )

    @property
    def run(self) -> Run:
        return Run(
            position=self.position,
            source_offset=self.source_offset,
            target_offset=self.target_offset,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseEntry:
    """A driver says that it carries the flow until `at_ms + lease_ms`; with 0 it lets go.

    The view has who holds it. Only whoever holds the lease, or sees that nobody does, writes one;
    and whoever reads that another was first lets go at once.
    """

    author: str
    host: str
    pid: int
    at_ms: int
    lease_ms: int
    slot_count: int

    @property
    def until_ms(self) -> int:
        return self.at_ms + self.lease_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class AclEntry:
    """The flow creates this ACL on the target, which did not have it.

    Written before the ACL is created and removed after the ACL is. A crash in between leaves an
    entry for an ACL that is not there, which costs nothing; the other order would leave an ACL
    behind that is nobody's, and that nobody ever takes back.
    """

    binding: AclBinding
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoEntry:
    """What a failover, failback, drill or audit notes for whoever goes on with it.

    The ledger does not look inside: the module that owns the subject reads and writes the text.
    """

    subject: str
    text: str
    """JSON, an object."""


Entry = (
    FlowEntry
    | LeaseEntry
    | HeadEntry
    | RunsEntry
    | SegmentEntry
    | LossEntry
    | StartEntry
    | AclEntry
    | MemoEntry
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowKey:
    producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseKey:
    author: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadKey:
    topic: TopicName
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsKey:
    topic: TopicName
    partition: int
    position: int
    author: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LossKey:
    topic: TopicName
    partition: int
    position: int
    lost_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StartKey:
    topic: TopicName
    partition: int
    position: int
    author: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclKey:
    binding: AclBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoKey:
    subject: str


EntryKey = FlowKey | LeaseKey | HeadKey | RunsKey | LossKey | StartKey | AclKey | MemoKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What is written to have a key forgotten."""

    key: EntryKey


def ledger_topic(source_alias: ClusterAlias) -> TopicName:
    """The topic on the target that remembers the flow from this source."""
    return TopicName(f"heliograph-ledger.{source_alias}.internal")


def new_author() -> str:
    """Tells what one process writes from what others do."""
    return uuid.uuid4().hex


def new_predictor() -> str:
    """Signs runs whose target offsets are the least that they can be: no such entry lowers one."""
    return _signed(_PREDICTS)


def new_corrector() -> str:
    """Signs corrections that only raise target offsets, and say nothing of source offsets."""
    return _signed(_CORRECTS)


def only_raises(author: str) -> bool:
    """Whether what the author signs lowers no target offset."""
    return _sign_of(author) in (_PREDICTS, _CORRECTS)


def keeps_sources(author: str) -> bool:
    """Whether what the author signs changes no source offset."""
    return _sign_of(author) == _CORRECTS


def _signed(sign: str) -> str:
    author = new_author()
    return author[:_SIGN_AT] + sign + author[_SIGN_AT + len(sign) :]


def _sign_of(author: str) -> str:
    return author[_SIGN_AT : _SIGN_AT + len(_PREDICTS)]


def runs_entries(
    topic: TopicName,
    partition: int,
    runs: Sequence[Run],
    *,
    author: str,
    end_position: int | None,
) -> list[RunsEntry]:
    """Entries small enough to write, in the order in which they must be written."""
    entries: list[RunsEntry] = []
    for start in range(0, len(runs), RUNS_PER_ENTRY_MAX):
        end = start + RUNS_PER_ENTRY_MAX
        is_last = end_position is None or end >= len(runs)
        entries.append(
            RunsEntry(
                topic=topic,
                partition=partition,
                author=author,
                runs=tuple(runs[start:end]),
                end_position=end_position if is_last else runs[end].position,
            )
        )
    return entries


def in_halves(entry: Entry) -> tuple[Entry, ...] | None:
    """Smaller entries that say the same one after the other; None where that cannot be.

    Of anchors, of which the last entry counts, every second one says it less exactly.
    """
    if isinstance(entry, RunsEntry) and len(entry.runs) > 1:
        half = len(entry.runs) // 2
        middle = None if entry.end_position is None else entry.runs[half].position
        return (
            replace(entry, runs=entry.runs[:half], end_position=middle),
            replace(entry, runs=entry.runs[half:]),
        )
    if isinstance(entry, SegmentEntry) and entry.packed.count > 1:
        packed, runs = entry.packed, entry.packed.runs()
        if packed.is_coarse:
            fewer = pack_anchors(runs[::2], packed.end_position, is_identical=packed.is_identical)
            return (replace(entry, packed=fewer),)
        half = packed.count // 2
        lower = pack_runs(runs[:half], runs[half].position)
        upper = pack_runs(runs[half:], packed.end_position)
        return replace(entry, packed=lower), replace(entry, packed=upper)
    return None


def key_of(entry: Entry) -> EntryKey:
    match entry:
        case FlowEntry():
            return FlowKey(producer_id=entry.producer_id)
        case LeaseEntry():
            return LeaseKey(author=entry.author)
        case HeadEntry():
            return HeadKey(topic=entry.topic, partition=entry.partition)
        case RunsEntry() | SegmentEntry():
            return entry.key
        case LossEntry():
            # More can be lost while a lane waits at one position, so the position is not enough.
            return LossKey(
                topic=entry.topic,
                partition=entry.partition,
                position=entry.position,
                lost_start=entry.lost.start,
            )
        case StartEntry():
            return entry.key
        case AclEntry():
            return AclKey(binding=entry.binding)
        case MemoEntry():
            return MemoKey(subject=entry.subject)
        case _:
            assert_never(entry)


LEDGER_PARTITIONS: Final = 1
"""One, so that reading to its end gives every entry in the order in which it was written."""
