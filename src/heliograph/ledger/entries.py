"""What the ledger's records say, and their bytes. Pure; runs anywhere.

    key                                   value
    flow|<producer id>                    JSON    which producer id stands for the flow
    head|<topic>|<partition>              JSON    how far a lane had come
    run|<topic>|<partition>|<position>    binary  runs, from that position on (see `runs_codec`)
    loss|<topic>|<partition>|<position>|<first lost offset>
                                          JSON    source offsets that are gone
    start|<topic>|<partition>|<position>|<author>
                                          JSON    where a lane starts by decision; the first counts

The topic's name carries the source and its cluster is the target, so keys name neither. Topics
are named as on the source. `docs/reference/ledger.md` has the bytes; a test holds it to the code.

Records are replayed in log order. A `RunsEntry` replaces every run at or after its first position.
The topic is compacted, and replaying what compaction left gives the same runs: a record goes only
once a later one has its key, hence its first position P. All that the earlier one did was to
replace runs at or after P, and the later one replaces all of those again; runs before P were
touched by neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from heliograph.errors import InvariantError, WireError
from heliograph.ledger.json_value import Fields, to_json
from heliograph.ledger.runs import OFFSET_MAX, Run
from heliograph.ledger.runs_codec import decode_runs, encode_runs
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
PARTITION_MAX: Final = 2**31 - 1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_AUTHOR: Final = re.compile(r"[0-9a-f]{32}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_FLOW_FIELDS: Final = frozenset(
    {"source", "target", "producer_epoch", "source_cluster_id", "created_ms"}
)
_HEAD_FIELDS: Final = frozenset(
    {
        "position",
        "source_next_offset",
        "source_end_offset",
        "target_next_offset",
        "source_topic_id",
        "target_topic_id",
        "at_ms",
    }
)
_START_FIELDS: Final = frozenset(
    {"source_offset", "target_offset", "source_topic_id", "target_topic_id", "at_ms"}
)
_LOSS_FIELDS: Final = frozenset({"lost_end", "reason", "at_ms"})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsEntry:
    """Replaces every run of the lane at or after `runs[0].position`; never empty."""

    topic: TopicName
    partition: int
    runs: tuple[Run, ...]


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
    """Where a lane starts, or starts again, by decision: at birth, past a loss, on a new topic.

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


Entry = FlowEntry | HeadEntry | RunsEntry | LossEntry | StartEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowKey:
    producer_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadKey:
    topic: TopicName
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsKey:
    topic: TopicName
    partition: int
    position: int


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


EntryKey = FlowKey | HeadKey | RunsKey | LossKey | StartKey


def ledger_topic(source_alias: ClusterAlias) -> TopicName:
    """The topic on the target that remembers the flow from this source."""
    return TopicName(f"heliograph-ledger.{source_alias}.internal")


def runs_entries(topic: TopicName, partition: int, runs: Sequence[Run]) -> list[RunsEntry]:
    """Entries small enough to write, in the order in which they must be written."""
    return [
        RunsEntry(
            topic=topic, partition=partition, runs=tuple(runs[start : start + RUNS_PER_ENTRY_MAX])
        )
        for start in range(0, len(runs), RUNS_PER_ENTRY_MAX)
    ]


def key_of(entry: Entry) -> EntryKey:
    match entry:
        case FlowEntry():
            return FlowKey(producer_id=entry.producer_id)
        case HeadEntry():
            return HeadKey(topic=entry.topic, partition=entry.partition)
        case RunsEntry():
            if not entry.runs:
                raise InvariantError(f"{entry.topic}-{entry.partition}: an entry without runs")
            return RunsKey(
                topic=entry.topic, partition=entry.partition, position=entry.runs[0].position
            )
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
        case _:
            assert_never(entry)


def encode(entry: Entry) -> tuple[bytes, bytes]:
    """Key and value; `decode` gives back an equal entry. What it would refuse is never written."""
    key = encode_key(key_of(entry))
    match entry:
        case FlowEntry():
            value = _flow_value(entry)
        case HeadEntry():
            value = _head_value(entry)
        case RunsEntry():
            # Checked by its codec; reading thousands of runs back for each write would show.
            return key, encode_runs(entry.runs)
        case LossEntry():
            value = _loss_value(entry)
        case StartEntry():
            value = _start_value(entry)
        case _:
            assert_never(entry)
    try:
        decode(key, value)
    except WireError as exc:
        # A record nobody can read would stop every reader of the topic, for good.
        raise InvariantError(f"not fit for the ledger: {entry}") from exc
    return key, value


def decode(key: bytes, value: bytes | None) -> Entry | None:
    """The entry, or None for a tombstone; bytes that mean nothing raise `WireError`."""
    parsed = decode_key(key)
    if value is None:
        return None
    match parsed:
        case FlowKey():
            return _decode_flow(parsed, value)
        case HeadKey():
            return _decode_head(parsed, value)
        case RunsKey():
            runs = decode_runs(parsed.position, value)
            return RunsEntry(topic=parsed.topic, partition=parsed.partition, runs=runs)
        case LossKey():
            return _decode_loss(parsed, value)
        case StartKey():
            return _decode_start(parsed, value)
        case _:
            assert_never(parsed)


def encode_key(key: EntryKey) -> bytes:
    match key:
        case FlowKey():
            parts: tuple[str | int, ...] = ("flow", key.producer_id)
        case HeadKey():
            parts = ("head", key.topic, key.partition)
        case RunsKey():
            parts = ("run", key.topic, key.partition, key.position)
        case LossKey():
            parts = ("loss", key.topic, key.partition, key.position, key.lost_start)
        case StartKey():
            parts = ("start", key.topic, key.partition, key.position, key.author)
        case _:
            assert_never(key)
    encoded = "|".join(str(part) for part in parts).encode()
    try:
        decode_key(encoded)
    except WireError as exc:
        raise InvariantError(f"not fit for the ledger: {key}") from exc
    return encoded


def decode_key(key: bytes) -> EntryKey:
    try:
        parts = key.decode("ascii").split("|")
    except UnicodeDecodeError as exc:
        raise WireError("ledger key is not ASCII") from exc
    match parts:
        case ["flow", producer_id]:
            return FlowKey(producer_id=_number(producer_id))
        case ["head", topic, partition]:
            return HeadKey(topic=_topic(topic), partition=_number(partition, PARTITION_MAX))
        case ["run", topic, partition, position]:
            return RunsKey(
                topic=_topic(topic),
                partition=_number(partition, PARTITION_MAX),
                position=_number(position),
            )
        case ["loss", topic, partition, position, lost_start]:
            return LossKey(
                topic=_topic(topic),
                partition=_number(partition, PARTITION_MAX),
                position=_number(position),
                lost_start=_number(lost_start),
            )
        case ["start", topic, partition, position, author] if _AUTHOR.fullmatch(author):
            return StartKey(
                topic=_topic(topic),
                partition=_number(partition, PARTITION_MAX),
                position=_number(position),
                author=author,
            )
    raise WireError(f"ledger key of no known kind: {key[:80]!r}")


def _topic(text: str) -> TopicName:
    if _TOPIC.fullmatch(text) is None:
        raise WireError(f"ledger key: not a topic name: {text[:80]!r}")
    return TopicName(text)


def _number(text: str, most: int = OFFSET_MAX) -> int:
    # One spelling per number: two keys for one thing would survive compaction side by side.
    if _NUMBER.fullmatch(text) is None or int(text) > most:
        raise WireError(f"ledger key: not a number up to {most}: {text[:80]!r}")
    return int(text)


def _flow_value(entry: FlowEntry) -> bytes:
    return to_json(
        {
            "source": entry.flow.source,
            "target": entry.flow.target,
            "producer_epoch": entry.producer_epoch,
            "source_cluster_id": entry.source_cluster_id,
            "created_ms": entry.created_ms,
        }
    )


def _decode_flow(key: FlowKey, value: bytes) -> FlowEntry:
    fields = Fields(value, _FLOW_FIELDS)
    return FlowEntry(
        flow=FlowId(
            source=ClusterAlias(fields.text("source")), target=ClusterAlias(fields.text("target"))
        ),
        producer_id=key.producer_id,
        producer_epoch=fields.number("producer_epoch", PRODUCER_EPOCH_MAX),
        source_cluster_id=fields.text("source_cluster_id"),
        created_ms=fields.number("created_ms"),
    )


def _head_value(entry: HeadEntry) -> bytes:
    return to_json(
        {
            "position": entry.position,
            "source_next_offset": entry.source_next_offset,
            "source_end_offset": entry.source_end_offset,
            "target_next_offset": entry.target_next_offset,
            "source_topic_id": entry.source_topic_id,
            "target_topic_id": entry.target_topic_id,
            "at_ms": entry.at_ms,
        }
    )


def _decode_head(key: HeadKey, value: bytes) -> HeadEntry:
    fields = Fields(value, _HEAD_FIELDS)
    return HeadEntry(
        topic=key.topic,
        partition=key.partition,
        position=fields.number("position"),
        source_next_offset=fields.number("source_next_offset"),
        source_end_offset=fields.number("source_end_offset"),
        target_next_offset=fields.number("target_next_offset"),
        source_topic_id=_topic_id(fields, "source_topic_id"),
        target_topic_id=_topic_id(fields, "target_topic_id"),
        at_ms=fields.number("at_ms"),
    )


def _topic_id(fields: Fields, name: str) -> TopicId | None:
    text = fields.topic_id(name)
    return None if text is None else TopicId(text)


def _loss_value(entry: LossEntry) -> bytes:
    return to_json({"lost_end": entry.lost.end, "reason": entry.reason.value, "at_ms": entry.at_ms})


def _decode_loss(key: LossKey, value: bytes) -> LossEntry:
    fields = Fields(value, _LOSS_FIELDS)
    lost_end = fields.number("lost_end")
    if lost_end < key.lost_start:
        raise WireError(f"ledger loss ends at {lost_end}, before it starts at {key.lost_start}")
    reason = fields.text("reason")
    if reason not in {known.value for known in StallReason}:
        raise WireError(f"ledger loss for no known reason: {reason[:80]!r}")
    return LossEntry(
        topic=key.topic,
        partition=key.partition,
        position=key.position,
        lost=OffsetRange(start=key.lost_start, end=lost_end),
        reason=StallReason(reason),
        at_ms=fields.number("at_ms"),
    )


def _start_value(entry: StartEntry) -> bytes:
    return to_json(
        {
            "source_offset": entry.source_offset,
            "target_offset": entry.target_offset,
            "source_topic_id": entry.source_topic_id,
            "target_topic_id": entry.target_topic_id,
            "at_ms": entry.at_ms,
        }
    )


def _decode_start(key: StartKey, value: bytes) -> StartEntry:
    fields = Fields(value, _START_FIELDS)
    return StartEntry(
        topic=key.topic,
        partition=key.partition,
        position=key.position,
        author=key.author,
        source_offset=fields.number("source_offset"),
        target_offset=fields.number("target_offset"),
        source_topic_id=_topic_id(fields, "source_topic_id"),
        target_topic_id=_topic_id(fields, "target_topic_id"),
        at_ms=fields.number("at_ms"),
    )
