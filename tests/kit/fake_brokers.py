"""The brokers of a cluster in memory: what is in them, and what they answer to each request.

No I/O and no clock: whoever asks decides when a request arrives, and what becomes of the answer.
`fake_cluster` asks them as a client does, `tests.sim` over a network of its own. What is claimed of
real brokers here is played against one by `tests/cluster/test_fake_cluster.py`.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from heliograph.broker.cluster import EARLIEST, LATEST
from heliograph.model import TopicId, TopicName, TopicPartition
from heliograph.wire.fetch import FetchFrom, PartitionKey
from heliograph.wire.produce import TopicKey
from tests.kit.fake_frames import FetchAsked, Fetched, Produced, ProduceRow
from tests.kit.fake_log import FakeLog, Refusal

APIS: Final = {
    0: "produce.v12",
    1: "fetch.v13",
    2: "list_offsets.v7",
    3: "metadata.v12",
    21: "delete_records.v2",
    22: "init_producer_id.v4",
    23: "offset_for_leader_epoch.v4",
    61: "describe_producers.v0",
}
FIRST_BROKER: Final = 1
_NO_TIME: Final = timedelta(0)
_NO_LEADER: Final = -1


@dataclass(slots=True)
class FakeTopic:
    logs: dict[int, FakeLog]
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    leaderless: set[int] = field(default_factory=set)
    leaders: dict[int, int] = field(default_factory=dict)
    """By partition, where it is not the first broker."""
    deposed: dict[tuple[int, int], tuple[int, int, bool]] = field(default_factory=dict)
    """By partition and broker: one that led, the epoch and the high watermark it stopped at, and
    whether it knows that it leads no more."""

    def leader(self, number: int) -> int:
        return _NO_LEADER if number in self.leaderless else self.leaders.get(number, FIRST_BROKER)


class FakeBrokers:
    def __init__(self, hosts: Mapping[int, str] | None = None) -> None:
        self.topics: dict[TopicName, FakeTopic] = {}
        self.hosts: dict[int, str] = dict(hosts or {FIRST_BROKER: "fake"})
        self._names: dict[bytes, str] = {}
        self._next_producer_id = 1_000

    def create(
        self,
        name: str,
        partitions: int = 1,
        *,
        is_compacted: bool = False,
        topic_id: uuid.UUID | None = None,
    ) -> FakeLog:
        """A new topic, also where there was one of that name; its first partition."""
        logs = {number: FakeLog(is_compacted=is_compacted) for number in range(partitions)}
        self.delete(name)
        topic = self.topics[TopicName(name)] = FakeTopic(logs, topic_id or uuid.uuid4())
        self._names[topic.id.bytes] = name
        return logs[0]

    def delete(self, name: str) -> None:
        before = self.topics.pop(TopicName(name), None)
        if before is not None:
            del self._names[before.id.bytes]

    def log(self, partition: TopicPartition) -> FakeLog:
        return self.topics[partition.topic].logs[partition.partition]

    def id_of(self, name: str) -> TopicId:
        return TopicId(str(self.topics[TopicName(name)].id))

    # -- Produce and Fetch

    def produce(self, rows: list[ProduceRow], broker: int = FIRST_BROKER) -> list[Produced]:
        """Append; when that is replicated is not looked at here."""
        answers: list[Produced] = []
        for topic, partition, batch in rows:
            row = Produced(topic, partition)
            try:
                log = self._found(self._name(topic), partition, broker)
                row.base_offset = log.append(batch)
                row.log_start_offset = log.start
            except Refusal as refusal:
                row.error_code = int(refusal.code)
            answers.append(row)
        return answers

    def log_of(self, topic: TopicKey, partition: int) -> FakeLog | None:
        """By the topic's name or id; None where there is none."""
        name = topic if isinstance(topic, str) else self._names.get(topic)
        found = None if name is None else self.topics.get(TopicName(name))
        return None if found is None else found.logs.get(partition)

    def _name(self, topic: TopicKey) -> str:
        if isinstance(topic, str):
            return topic
        name = self._names.get(topic)
        if name is None:
            raise Refusal(ErrorCode.unknown_topic_id)
        return name

    def fetch(
        self,
        asked: FetchAsked,
        wanted: Mapping[PartitionKey, FetchFrom],
        broker: int = FIRST_BROKER,
    ) -> dict[PartitionKey, Fetched]:
        """What there is now of each partition that is wanted."""
        rows: dict[PartitionKey, Fetched] = {}
        left = asked.bytes_max
        for key, start in wanted.items():
            try:
                row = self._fetched(key, start, asked.read_committed, left, broker)
            except Refusal as refusal:
                row = Fetched(error_code=int(refusal.code))
            left -= len(row.records)
            rows[key] = row
        return rows

    def _fetched(
        self, key: PartitionKey, start: FetchFrom, committed: bool, left: int, broker: int
    ) -> Fetched:
        name, number = self._name(key[0]), key[1]
        topic = self.topics[TopicName(name)]
        if number not in topic.logs:
            raise Refusal(ErrorCode.unknown_topic_or_partition)
        log, told = topic.logs[number], start.leader_epoch
        is_leader = topic.leader(number) == broker
        deposed = topic.deposed.get((number, broker))
        if (
            not is_leader
            and deposed is not None
            and (told < 0 or (told == deposed[0] and not deposed[2]))
        ):
            # A replica that follows nobody looks like a quiet leader: see KAFKA-14255.
            if start.next_offset < log.start:
                raise Refusal(ErrorCode.offset_out_of_range)
            high = max(min(deposed[1], log.high_watermark), log.start)
            until = min(high, log.last_stable_offset) if committed else high
            row = Fetched(0, high, until, log.start)
            if start.next_offset < until and left > 0:
                row.records = log.read(start.next_offset, start.bytes_max, until)
                row.aborted = log.aborted_between(start.next_offset, until) if committed else []
            return row
        if 0 <= told < log.epoch:
            raise Refusal(ErrorCode.fenced_leader_epoch)
        if told > log.epoch:
            raise Refusal(ErrorCode.unknown_leader_epoch)
        if not is_leader:
            raise Refusal(ErrorCode.not_leader_or_follower)
        stable = log.last_stable_offset
        row = Fetched(0, log.high_watermark, stable, log.start)
        if start.last_epoch >= 0:
            epoch, end = log.epoch_end(start.last_epoch)
            if epoch < 0 or end < 0:
                raise Refusal(ErrorCode.offset_out_of_range)
            if epoch < start.last_epoch or end < start.next_offset:
                row.diverging = epoch, end
                return row
        until = stable if committed else log.high_watermark
        bytes_max = min(start.bytes_max, left)
        records = log.read(start.next_offset, bytes_max, until)
        if left > 0 and records:
            row.records = records
            if committed:
                row.aborted = log.aborted_between(start.next_offset, until)
        return row

    # -- all others, by kio's messages

    def respond(self, api_key: int, request: Any, broker: int = FIRST_BROKER) -> Any:
        name = APIS[api_key].partition(".")[0]
        return getattr(self, f"_{name}")(request, messages(api_key, "response"), broker)

    def _found(self, name: str, number: int, broker: int) -> FakeLog:
        """As its leader has it."""
        topic = self.topics.get(TopicName(name))
        if topic is None or number not in topic.logs:
            raise Refusal(ErrorCode.unknown_topic_or_partition)
        if number in topic.leaderless or topic.leaders.get(number, FIRST_BROKER) != broker:
            raise Refusal(ErrorCode.not_leader_or_follower)
        return topic.logs[number]

    def _metadata(self, request: Any, reply: Any, _: int) -> Any:
        rows = []
        every = [SimpleNamespace(name=name) for name in self.topics]
        for asked in every if request.topics is None else request.topics:
            topic = self.topics.get(TopicName(asked.name))
            rows.append(
                reply.MetadataResponseTopic(
                    error_code=ErrorCode.none if topic else ErrorCode.unknown_topic_or_partition,
                    name=asked.name,
                    topic_id=topic.id if topic else None,
                    partitions=tuple(
                        reply.MetadataResponsePartition(
                            error_code=ErrorCode.none,
                            partition_index=number,
                            leader_id=topic.leader(number),
                            leader_epoch=topic.logs[number].epoch,
                            replica_nodes=tuple(self.hosts),
                            isr_nodes=tuple(self.hosts),
                            offline_replicas=(),
                        )
                        for number in topic.logs
                    )
                    if topic
                    else (),
                )
            )
        brokers = tuple(
            reply.MetadataResponseBroker(node_id=broker, host=host, port=9092)
            for broker, host in self.hosts.items()
        )
        return reply.MetadataResponse(throttle_time=_NO_TIME, brokers=brokers, topics=tuple(rows))

    def _list_offsets(self, request: Any, reply: Any, broker: int) -> Any:
        def row(log: FakeLog, asked: Any) -> Mapping[str, Any]:
            if asked.timestamp == EARLIEST:
                return {"offset": log.start}
            if asked.timestamp != LATEST:
                return {"offset": log.offset_at(asked.timestamp)}
            if log.is_settling:
                raise Refusal(ErrorCode.offset_not_available)
            is_committed = request.isolation_level
            return {"offset": log.last_stable_offset if is_committed else log.high_watermark}

        topics = tuple(
            reply.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    reply.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        **self._or_error(topic.name, each.partition_index, broker, row, each),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return reply.ListOffsetsResponse(throttle_time=_NO_TIME, topics=topics)

    def _offset_for_leader_epoch(self, request: Any, reply: Any, broker: int) -> Any:
        def row(log: FakeLog, asked: Any) -> Mapping[str, Any]:
            epoch, end = log.epoch_end(asked.leader_epoch)
            return {"leader_epoch": epoch, "end_offset": end}

        topics = tuple(
            reply.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    reply.EpochEndOffset(
                        partition=each.partition,
                        **self._or_error(topic.topic, each.partition, broker, row, each),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return reply.OffsetForLeaderEpochResponse(throttle_time=_NO_TIME, topics=topics)

    def _describe_producers(self, request: Any, reply: Any, broker: int) -> Any:
        def row(log: FakeLog, _: Any) -> Mapping[str, Any]:
            return {
                "active_producers": tuple(
                    reply.ProducerState(
                        producer_id=producer_id,
                        producer_epoch=epoch,
                        last_sequence=last,
                        last_timestamp=-1,
                        coordinator_epoch=-1,
                        current_txn_start_offset=-1,
                    )
                    for producer_id, (epoch, last) in log.last_sequences().items()
                )
            }

        topics = tuple(
            reply.TopicResponse(
                name=topic.name,
                partitions=tuple(
                    reply.PartitionResponse(
                        partition_index=number,
                        **{
                            "active_producers": (),
                            **self._or_error(topic.name, number, broker, row, None),
                        },
                    )
                    for number in topic.partition_indexes
                ),
            )
            for topic in request.topics
        )
        return reply.DescribeProducersResponse(throttle_time=_NO_TIME, topics=topics)

    def _init_producer_id(self, _request: Any, reply: Any, _broker: int) -> Any:
        self._next_producer_id += 1
        return reply.InitProducerIdResponse(
            throttle_time=_NO_TIME,
            error_code=ErrorCode.none,
            producer_id=self._next_producer_id,
            producer_epoch=0,
        )

    def _delete_records(self, request: Any, reply: Any, broker: int) -> Any:
        def row(log: FakeLog, asked: Any) -> Mapping[str, Any]:
            return {"low_watermark": log.delete_before(asked.offset)}

        topics = tuple(
            reply.DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    reply.DeleteRecordsPartitionResult(
                        partition_index=each.partition_index,
                        **{
                            "low_watermark": -1,
                            **self._or_error(topic.name, each.partition_index, broker, row, each),
                        },
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return reply.DeleteRecordsResponse(throttle_time=_NO_TIME, topics=topics)

    def _or_error(
        self,
        name: str,
        number: int,
        broker: int,
        row: Callable[[FakeLog, Any], Mapping[str, Any]],
        asked: Any,
    ) -> dict[str, Any]:
        try:
            log = self._found(name, number, broker)
            told = getattr(asked, "current_leader_epoch", -1)
            if 0 <= told < log.epoch:
                raise Refusal(ErrorCode.fenced_leader_epoch)
            if told > log.epoch:
                raise Refusal(ErrorCode.unknown_leader_epoch)
            return {"error_code": ErrorCode.none, **row(log, asked)}
        except Refusal as refusal:
            return {"error_code": refusal.code}


def messages(api_key: int, side: str) -> Any:
    return importlib.import_module(f"kio.schema.{APIS[api_key]}.{side}")
