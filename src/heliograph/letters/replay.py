"""Put records behind the target partition they belong to, each once. Runs on the driver.

For letters that can be mirrored by now, and for ranges of the source that are wanted again. As for
letters, the ledger names the records before they are sent, so a replay that is killed and begun
again appends what is missing. Each has a header that says which record of the source it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from heliograph.broker.cluster import Cluster
from heliograph.clock import now_ms
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.ledger.entries import MemoEntry
from heliograph.ledger.listed import list_producer
from heliograph.ledger.memo import Memo
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.letters.append import append_records, end_of, settled_records
from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.probe import LETTERS_NOTED, probe
from heliograph.transform.lane import LaneTransform
from heliograph.transform.record import Failure, Record, checked_content
from heliograph.wire.batch import Stamp
from heliograph.wire.opened import Content

REPLAYED_HEADER: Final = "heliograph.replayed"
SUBJECT: Final = "replays"
_AT_ONCE: Final = 256
Repair = Callable[[Record], Record | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One record of the source, as it came."""

    source: TopicPartition
    offset: int
    content: Content


class Outcome(StrEnum):
    REPLAYED = "replayed"
    ALREADY = "replayed before"
    DROPPED = "dropped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of one record."""

    replay: Replay
    outcome: Outcome
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    topic: TopicName
    partition: int
    offset: int

    @property
    def source(self) -> TopicPartition:
        return TopicPartition(topic=self.topic, partition=self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayNote:
    """Records that go, or went, behind one target partition together."""

    topic: TopicName
    partition: int
    """The target's."""
    from_offset: int
    producer_id: int
    producer_epoch: int
    sequence: int
    at_ms: int
    is_done: bool
    records: tuple[Named, ...]

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(topic=self.topic, partition=self.partition)

    @property
    def subject(self) -> str:
        return f"{SUBJECT}/{self.topic}/{self.partition}/{self.producer_id}/{self.sequence}"


_NOTES: Final[Memo[ReplayNote]] = Memo(ReplayNote)


def replay_notes(view: LedgerView) -> list[ReplayNote]:
    """Oldest first; raises `WireError`."""
    found = [
        _NOTES.decode(subject, text)
        for subject, text in view.memos.items()
        if subject.startswith(f"{SUBJECT}/")
    ]
    return sorted(found, key=lambda note: (note.at_ms, note.sequence))


def replayed_of(view: LedgerView) -> set[tuple[TopicPartition, int]]:
    """Source records that were put behind their target partitions."""
    return {
        (each.source, each.offset)
        for note in replay_notes(view)
        if note.is_done
        for each in note.records
    }


def replayed_header(flow: FlowId, source: TopicPartition, offset: int) -> tuple[str, bytes]:
    text = f"{flow.source}/{source.topic}/{source.partition}/{offset}"
    return REPLAYED_HEADER, text.encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayer:
    """What a replay of a flow needs."""

    flow: FlowId
    target: Cluster
    ledger: LedgerStore
    target_of: Callable[[TopicPartition], TopicPartition]
    transform_of: Callable[[TopicPartition], LaneTransform | None]
    """What the flow does to records of a lane: they may only go where it lets them."""
    repair: Repair | None = None

    async def replay(
        self, records: Sequence[Replay], *, again: bool = False, writes: bool = True
    ) -> list[Replayed]:
        """In the order given. Raises `MirrorError`; begun anew it goes on where it was."""
        await self.ledger.catch_up()
        if writes:
            await self._settle()
        done = set() if again else replayed_of(self.ledger.view)
        outcomes: dict[int, Replayed] = {}
        ready: defaultdict[TopicPartition, list[tuple[int, Content]]] = defaultdict(list)
        for row, each in enumerate(records):
            if (each.source, each.offset) in done:
                outcomes[row] = Replayed(each, Outcome.ALREADY)
                continue
            done.add((each.source, each.offset))
            made = self._made(each)
            if isinstance(made, Failure):
                outcomes[row] = Replayed(each, Outcome.FAILED, str(made))
            elif made is None:
                outcomes[row] = Replayed(each, Outcome.DROPPED)
            else:
                outcomes[row] = Replayed(each, Outcome.REPLAYED)
                ready[self.target_of(each.source)].append((row, made))
        if writes:
            for at, some in ready.items():
                for start in range(0, len(some), _AT_ONCE):
                    rows = some[start : start + _AT_ONCE]
                    for row, why in (await self._append_some(at, records, rows)).items():
                        outcomes[row] = Replayed(records[row], Outcome.FAILED, why)
        return [outcomes[row] for row in range(len(records))]

    def _made(self, each: Replay) -> Content | Failure | None:
        """The record repaired, and then through the flow's transforms as any other."""
        content = each.content
        if self.repair is not None:
            given = Record(each.source.topic, each.source.partition, each.offset, *content)
            try:
                found = self.repair(given)
                if found is None:
                    return None
                content = checked_content(found, given)
            except Exception as exc:  # noqa: BLE001 - the operator's function may raise anything
                return Failure("repair", type(exc).__name__, str(exc))
        transform = self.transform_of(each.source)
        if transform is None:
            return content
        done = transform.apply_patiently([each.offset], [content])
        return done.failed.get(0) or done.contents[0]

    async def _append_some(
        self, at: TopicPartition, records: Sequence[Replay], rows: Sequence[tuple[int, Content]]
    ) -> dict[int, str]:
        """By halves where the target refuses, so that a record it does not take is alone; why, of
        each such record."""
        try:
            await self._append(at, records, rows)
        except BrokerError as exc:
            if exc.retriable or isinstance(exc, NotAuthorised):
                raise
            await self.ledger.catch_up()
            there = await self._settle()
            if len(rows) == 1:
                return {rows[0][0]: str(exc)}
            left = [
                each
                for each in rows
                if (records[each[0]].source, records[each[0]].offset) not in there
            ]
            half = (len(left) + 1) // 2
            refused: dict[int, str] = {}
            for some in (left[:half], left[half:]):
                if some:
                    refused |= await self._append_some(at, records, some)
            return refused
        return {}

    async def _append(
        self, at: TopicPartition, records: Sequence[Replay], rows: Sequence[tuple[int, Content]]
    ) -> None:
        stamp, sequence = await self._place(at)
        note = ReplayNote(
            topic=at.topic,
            partition=at.partition,
            from_offset=await end_of(self.target, at),
            producer_id=stamp.producer_id,
            producer_epoch=stamp.producer_epoch,
            sequence=sequence,
            at_ms=now_ms(),
            is_done=False,
            records=tuple(
                Named(
                    topic=records[row].source.topic,
                    partition=records[row].source.partition,
                    offset=records[row].offset,
                )
                for row, _ in rows
            ),
        )
        contents = [
            (at_ms, key, value, (*headers, self._header(records[row])))
            for row, (at_ms, key, value, headers) in rows
        ]
        await self.ledger.write_or_refuse([_entry(note)])
        probe(LETTERS_NOTED)
        await append_records(self.target, at, stamp, sequence, contents)
        await self.ledger.write_or_refuse([_entry(replace(note, is_done=True))])
        await self.ledger.catch_up()

    def _header(self, each: Replay) -> tuple[str, bytes]:
        return replayed_header(self.flow, each.source, each.offset)

    async def _place(self, at: TopicPartition) -> tuple[Stamp, int]:
        """Who appends there, and at which sequence."""
        notes = [note for note in replay_notes(self.ledger.view) if note.at == at]
        if not notes:
            if self.ledger.view.flow is None:
                # Nothing was ever mirrored, and the first producer in a ledger is the flow's own.
                return Stamp(*await self.target.new_producer_id()), 0
            # A flow the other way under the same names must not send these back.
            return await list_producer(self.target, self.ledger, self.flow), 0
        last = notes[-1]
        _, sequence = await settled_records(
            self.target, at, last.from_offset, last.producer_id, last.sequence
        )
        return Stamp(last.producer_id, last.producer_epoch), sequence

    async def _settle(self) -> set[tuple[TopicPartition, int]]:
        """See what became of a replay that did not come to its end; what is there of it."""
        found: set[tuple[TopicPartition, int]] = set()
        for note in replay_notes(self.ledger.view):
            if note.is_done:
                continue
            there, _ = await settled_records(
                self.target, note.at, note.from_offset, note.producer_id, note.sequence
            )
            said = {
                value
                for _, content in there
                for name, value in content[3]
                if name == REPLAYED_HEADER
            }
            present = tuple(
                each
                for each in note.records
                if replayed_header(self.flow, each.source, each.offset)[1] in said
            )
            found |= {(each.source, each.offset) for each in present}
            await self.ledger.write_or_refuse(
                [_entry(replace(note, is_done=True, records=present))]
            )
        await self.ledger.catch_up()
        return found


def _entry(note: ReplayNote) -> MemoEntry:
    return _NOTES.entry(note.subject, note)
