"""Two clusters, what clients wrote to them, and what of that a mirror must bring over.

`Truth` looks over the brokers' shoulders: it knows each record by its number, and judges each batch
at the moment it is appended to the target.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from typing import Final

from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.wire.batch import BatchHeader, parse_header, restamp
from tests.kit.batches import Record
from tests.kit.batches import batch_of as any_batch
from tests.kit.fake_brokers import FakeBrokers
from tests.kit.fake_log import FakeLog
from tests.sim.records import KEYS, TRANSACTIONAL, Made, batch_of, marker_of, numbers_of
from tests.sim.truth import Copied, LaneTruth, Violation, Written

FLOW: Final = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
TOPIC: Final = TopicName("orders")
LEDGER: Final = ledger_topic(FLOW.source)
BROKERS: Final = (1, 2)
TRANSACTIONS: Final = (8_001, 8_002)
"""Producers that write in transactions; other numbers than brokers give away here."""


class World:
    """`random` is for what happens within a step; the schedule names the steps themselves."""

    def __init__(self, seed: str, partitions: int) -> None:
        self.random = random.Random(f"world {seed}")
        self.partitions = partitions
        self.clusters = {
            alias: FakeBrokers({number: f"{alias.lower()}{number}" for number in BROKERS})
            for alias in (FLOW.source, FLOW.target)
        }
        self.truth = {number: LaneTruth() for number in range(partitions)}
        self.now_ms = 0
        self._numbers = 0
        self._written: dict[int, Written] = {}
        self.deciding: set[int] = set()
        """Partitions of which the driver is writing a new start."""
        self._sequences: dict[tuple[int, int], int] = {}
        self._open: dict[tuple[int, int], list[str]] = {}
        self._ended: list[tuple[int, int, int, list[str]]] = []
        """Partition, which producer, offset of the marker, and the state of its records."""
        self.view = LedgerView()
        self._folded_until = 0
        self._logs: list[FakeLog] = []
        """All there ever were, so that none is taken for another."""
        self._places: dict[int, tuple[str, TopicName, int]] = {}
        self._committed: dict[int, int] = {}
        """The highest high watermark of each log: no clean election goes behind it."""
        for alias in self.clusters:
            self.create(alias, TOPIC, partitions)
        self.create(FLOW.target, LEDGER, 1, is_compacted=True)

    @property
    def source(self) -> FakeBrokers:
        return self.clusters[FLOW.source]

    @property
    def target(self) -> FakeBrokers:
        return self.clusters[FLOW.target]

    def create(
        self, alias: str, name: TopicName, partitions: int, *, is_compacted: bool = False
    ) -> None:
        brokers = self.clusters[ClusterAlias(alias)]
        topic_id = uuid.UUID(int=self.random.getrandbits(128) | 1)
        brokers.create(name, partitions, is_compacted=is_compacted, topic_id=topic_id)
        topic = brokers.topics[name]
        for number, log in topic.logs.items():
            log.lags = True
            topic.leaders[number] = BROKERS[number % len(BROKERS)]
            self._places[id(log)] = alias, name, number
            self._logs.append(log)

    def logs(self) -> Iterator[FakeLog]:
        for brokers in self.clusters.values():
            for topic in brokers.topics.values():
                yield from topic.logs.values()

    def source_log(self, partition: int) -> FakeLog:
        return self.source.topics[TOPIC].logs[partition]

    def target_log(self, partition: int) -> FakeLog:
        return self.target.topics[TOPIC].logs[partition]

    @property
    def ledger_log(self) -> FakeLog:
        return self.target.topics[LEDGER].logs[0]

    # -- clients

    def write(self, partition: int, count: int, *, age_ms: int = 0) -> None:
        made = self._made(count, age_ms)
        self._append(partition, made, batch_of(list(enumerate(made))), None)

    def write_in_transaction(self, partition: int, which: int, count: int) -> None:
        producer_id = TRANSACTIONS[which]
        state = self._open.setdefault((partition, which), ["open"])
        made, at = self._made(count, 0), (partition, producer_id)
        sequence = self._sequences.get(at, 0)
        batch = batch_of(
            list(enumerate(made)), attributes=TRANSACTIONAL, producer=(producer_id, 0, sequence)
        )
        self._sequences[at] = sequence + count
        self._append(partition, made, batch, state)

    def end_transaction(self, partition: int, which: int, *, commits: bool) -> None:
        state = self._open.pop((partition, which), None)
        if state is not None:
            state[0] = "committed" if commits else "aborted"
            marker = marker_of(TRANSACTIONS[which], 0, commits=commits, at_ms=self.now_ms)
            offset = self.source_log(partition).end_transaction(marker, commits=commits)
            self._ended.append((partition, which, offset, state))

    def end_transactions(self) -> None:
        for partition, which in tuple(self._open):
            self.end_transaction(partition, which, commits=True)

    def write_foreign(self, partition: int, count: int) -> None:
        """By somebody else, into the mirrored topic of the target."""
        made = [Made((1 << 62) + n, 0, self.now_ms) for n in range(count)]
        self.target_log(partition).append(batch_of(list(enumerate(made))))

    def _made(self, count: int, age_ms: int) -> list[Made]:
        first = self._numbers
        self._numbers += count
        at_ms = self.now_ms - age_ms
        return [Made(n, n * 7 % KEYS, at_ms) for n in range(first, first + count)]

    def _append(
        self, partition: int, made: list[Made], batch: bytes, transaction: list[str] | None
    ) -> None:
        base_offset = self.source_log(partition).append(batch)
        lane = self.truth[partition]
        for index, each in enumerate(made):
            offset = base_offset + index
            written = Written(each, partition, offset, lane.topic_number, transaction)
            lane.source[offset] = self._written[each.number] = written

    # -- what brokers do

    def replicate(self, log: FakeLog) -> None:
        log.unreplicated, log.is_settling = 0, False
        self._committed[id(log)] = log.end
        alias, name, number = self._places[id(log)]
        if alias == FLOW.source and name == TOPIC:
            lane = self.truth[number]
            lane.source_committed = max(lane.source_committed, log.high_watermark)

    def elect(self, log: FakeLog, *, keeps: int, settles: bool) -> None:
        """The other broker leads; of what was not replicated `keeps` offsets are kept."""
        alias, name, number = self._places[id(log)]
        topic = self.clusters[ClusterAlias(alias)].topics[name]
        before, high, known = topic.leaders[number], log.high_watermark, dict(log.producers)
        topic.deposed[number, before] = log.epoch, high, False
        committed = max(high, self._committed.get(id(log), 0))
        log.truncate(min(log.end, committed + keeps))
        for producer_id, producer in known.items():
            # Followers have what the log no longer tells, as long as they have the batches.
            if producer_id not in log.producers and producer.batches[-1][2] < log.end:
                log.producers[producer_id] = producer
        leader = topic.leaders[number] = BROKERS[len(BROKERS) - 1 - BROKERS.index(before)]
        topic.deposed.pop((number, leader), None)
        if not settles:
            # It learned of the high watermark with its last fetch, which is a while ago.
            headers = log.headers()
            high = min(high, headers[-1].base_offset) if headers else high
            log.is_settling = True
        log.unreplicated = max(0, log.end - max(high, log.start))
        self._cut_off(log)

    def heal(self) -> None:
        """Brokers that were deposed hear of it; no client follows them any more."""
        for brokers in self.clusters.values():
            for topic in brokers.topics.values():
                topic.deposed = {
                    at: (epoch, high, True) for at, (epoch, high, _) in topic.deposed.items()
                }

    def lose(self, log: FakeLog, count: int) -> None:
        """An unclean election: the last `count` offsets are gone, replicated or not."""
        alias, name, number = self._places[id(log)]
        end = max(log.start, log.end - count)
        log.truncate(end)
        log.unreplicated, log.is_settling = 0, False
        self._committed[id(log)] = log.end
        topic = self.clusters[ClusterAlias(alias)].topics[name]
        topic.deposed.clear()
        assert name != LEDGER
        lane = self.truth[number]
        if alias == FLOW.source:
            lane.source_committed = log.end
            lane.source_lost = True
        elif lane.copied and lane.copied[-1].target_offset >= log.end:
            lane.target_lost = True
        self._cut_off(log)

    def _cut_off(self, log: FakeLog) -> None:
        """Forget what the new leader does not have."""
        alias, name, number = self._places[id(log)]
        if name == LEDGER:
            return
        lane = self.truth[number]
        if alias == FLOW.target:
            while lane.copied and lane.copied[-1].target_offset >= log.end:
                lane.copied.pop()
            lane.note_parting()
            return
        for offset in [offset for offset in lane.source if offset >= log.end]:
            lane.source.pop(offset).is_lost = True
        lane.note_parting()
        for key in [key for key in self._open if key[0] == number]:
            if TRANSACTIONS[key[1]] not in log.transactions:
                del self._open[key]
        # The first of a producer's that is open again is the one that counts.
        for partition, which, offset, state in reversed(tuple(self._ended)):
            if partition == number and offset >= log.end:
                self._ended.remove((partition, which, offset, state))
                if TRANSACTIONS[which] in log.transactions:
                    # Whoever read it as aborted has left it out for good.
                    state.append(f"was {state[0]}")
                    state[0], self._open[partition, which] = "open", state
        self._sequences = {
            (at, producer_id): log.producers[producer_id].last_sequence + 1
            if producer_id in log.producers
            else 0
            for at, producer_id in self._sequences
            if at == number
        } | {key: last for key, last in self._sequences.items() if key[0] != number}

    def recreate_source(self) -> None:
        """Deleted and created again, under the same name."""
        self.create(FLOW.source, TOPIC, self.partitions)
        self._open.clear()
        self._ended.clear()
        self._sequences.clear()
        for lane in self.truth.values():
            lane.earlier[lane.topic_number], lane.source = lane.source, {}
            lane.topic_number += 1
            lane.source_committed, lane.parted_at, lane.source_lost = 0, None, False

    def delete_before(self, partition: int, share: float, *, of_source: bool) -> None:
        log = self.source_log(partition) if of_source else self.target_log(partition)
        until = log.last_stable_offset if of_source else log.high_watermark
        log.delete_before(log.start + int((until - log.start) * share))

    def tells_nothing_of(self, partition: int) -> bool:
        """Whether all of the lane's was deleted on the target, and its producer forgotten."""
        log, copied = self.target_log(partition), self.truth[partition].copied
        is_gone = not copied or copied[-1].target_offset < log.start
        return is_gone and log.start > 0 and self.producer_id not in log.producers

    def compact_source(self, partition: int) -> None:
        log, lane = self.source_log(partition), self.truth[partition]
        newest: dict[int, int] = {}
        for offset, written in lane.source.items():
            if written.is_committed and offset < log.last_stable_offset:
                newest[written.made.key] = offset

        def keep(header: BatchHeader, content: bytes) -> bytes | None:
            if header.is_control:
                return content
            left = [
                (offset - header.base_offset, written.made)
                for offset in range(header.base_offset, header.next_offset)
                if (written := lane.source.get(offset)) is not None
                and written.is_committed
                and newest.get(written.made.key) == offset
            ]
            for offset in range(header.base_offset, header.next_offset):
                if offset - header.base_offset not in {delta for delta, _ in left}:
                    lane.source.pop(offset, None)
            if not left:
                return None
            return batch_of(
                left,
                base_offset=header.base_offset,
                last_delta=header.last_offset_delta,
                attributes=header.attributes,
                producer=(header.producer_id, header.producer_epoch, header.base_sequence),
                leader_epoch=header.leader_epoch,
            )

        log.compact(keep)

    def compact_ledger(self) -> None:
        log = self.ledger_log
        newest: dict[bytes, int] = {}
        opened: dict[int, list[tuple[int, bytes, bytes | None, int]]] = {}
        for header, content in log.contents():
            rows = [
                (row.offset, row.key or b"", row.value, row.timestamp)
                for row in DefaultRecordBatch(content)
            ]
            opened[header.base_offset] = rows
            if header.next_offset <= log.last_stable_offset:
                # What may yet be cut off replaces nothing.
                newest.update({key: offset for offset, key, _, _ in rows})

        def keep(header: BatchHeader, content: bytes) -> bytes | None:
            rows = opened[header.base_offset]
            left = [row for row in rows if newest[row[1]] == row[0]]
            if len(left) == len(rows):
                return content
            if not left:
                return None
            made = [
                Record(offset=offset, key=key, value=value, timestamp_ms=at_ms)
                for offset, key, value, at_ms in left
            ]
            kept = any_batch(
                *made,
                base_offset=header.base_offset,
                last_offset_delta=header.last_offset_delta,
                base_timestamp_ms=made[0].timestamp_ms,
            )
            restamp(
                kept,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                sequence=header.base_sequence,
            )
            # Outside the checksum: the offset, and the epoch of the leader that took the batch.
            return content[:8] + bytes(kept[8:12]) + content[12:16] + bytes(kept[16:])

        log.compact(keep)

    # -- what the mirror does

    def produced(self, alias: str, log: FakeLog, batch: bytes, base_offset: int) -> None:
        """A batch was appended just now. Raises `Violation`."""
        place = self._places.get(id(log))
        if place is None or place[1] != TOPIC:
            return
        lane = self.truth[place[2]]
        header = parse_header(memoryview(batch))
        assert header is not None and alias == FLOW.target
        if header.producer_id != self.producer_id:
            return
        record = self.record(place[2])
        for index, made in enumerate(numbers_of(batch)):
            position = header.base_sequence + index
            self._judge(place[2], lane, made, position, base_offset + index, record)

    def record(self, partition: int) -> LaneRecord | None:
        """What a reader of the whole ledger knows of the lane at this moment."""
        self.fold()
        return self.view.begun_lane(TOPIC, partition)

    @property
    def producer_id(self) -> int | None:
        self.fold()
        return None if self.view.flow is None else self.view.flow.producer_id

    def fold(self) -> None:
        log = self.ledger_log
        # A new leader may tell less for a moment; what was committed stays.
        until = max(log.high_watermark, self._committed.get(id(log), 0))
        if self._folded_until >= until:
            return
        for header, content in log.contents(self._folded_until):
            if header.next_offset > until:
                break
            for row in DefaultRecordBatch(content):
                if row.offset >= self._folded_until:
                    self.view.apply_record(row.key or b"", row.value)
            self._folded_until = header.next_offset

    def _judge(
        self,
        partition: int,
        lane: LaneTruth,
        made: Made,
        position: int,
        target_offset: int,
        record: LaneRecord | None,
    ) -> None:
        where = f"{TOPIC}-{partition}: record {made.number} at position {position}"
        written = self._written.get(made.number)
        if written is None or written.made != made or written.partition != partition:
            raise Violation(f"{where}: not what the source has")
        offset = written.offset
        if not (written.is_committed or (lane.source_lost and written.was_committed)):
            raise Violation(f"{where}: of a transaction that is {written.transaction}")
        if record is None:
            raise Violation(f"{where}: appended before the ledger has a start of the lane")
        runs = record.runs
        mapped = runs.source_offset_at(position) if runs.explains(position) else None
        # At the offset of one that the source has lost since there is another one.
        if mapped != offset and not written.is_lost:
            raise Violation(f"{where}: is source offset {offset}, and the ledger says {mapped}")
        gap = self._judge_order(lane, written, record, where)
        lane.copied.append(Copied(target_offset, position, written, gap))

    def _judge_order(
        self, lane: LaneTruth, written: Written, record: LaneRecord, where: str
    ) -> int:
        offset, is_current = written.offset, written.topic_number == lane.topic_number
        last = lane.copied[-1].written if lane.copied else None
        if last is None:
            first = record.starts[0].source_offset
        elif last.topic_number == written.topic_number:
            first = last.offset + 1
        else:
            first = record.starts[-1].source_offset
        if offset < first or (last is not None and written.topic_number < last.topic_number):
            raise Violation(f"{where}: source offset {offset} again, or out of order")
        if written.is_lost:
            # Read before the source lost it; the lane must see that it is gone, unless the whole
            # topic is.
            if is_current:
                lane.parted_at = offset if lane.parted_at is None else min(offset, lane.parted_at)
        elif is_current and lane.parted_at is not None and offset >= lane.parted_at:
            raise Violation(
                f"{where}: behind {lane.parted_at}, where the source lost what was copied"
            )
        elif is_current and offset >= lane.source_committed:
            raise Violation(f"{where}: offset {offset} is above the source's high watermark")
        there = lane.source if is_current else lane.earlier.get(written.topic_number, {})
        # From where the source has lost records on, what is there now was not when this was read.
        until = offset
        if written.is_lost:
            until = first if lane.parted_at is None or not is_current else lane.parted_at
        missing = [
            each
            for at in range(first, until)
            if (each := there.get(at)) is not None
            and (each.is_committed or each.is_open)
            and not (each.transaction is not None and "was aborted" in each.transaction)
            and not any(loss.lost.start <= at < loss.lost.end for loss in record.losses)
        ]
        if missing and not lane.target_lost:
            raise Violation(
                f"{where}: {len(missing)} records left out, from {missing[0].offset} on"
            )
        return len(missing)
