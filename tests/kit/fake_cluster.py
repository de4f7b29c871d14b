"""A cluster of one broker in memory: `Cluster` itself, over a connection that answers the protocol.

Requests and answers are Kafka's bytes, so that all of `broker` and `ledger.store` runs as it is.
"""

from __future__ import annotations

import importlib
import io
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.connection import Answer, Connection, OnAnswer
from heliograph.errors import BrokerError
from heliograph.model import ClusterAlias, TopicId, TopicName, TopicPartition
from tests.kit.fake_log import FakeLog, Refusal

_APIS: Final = {
    0: "produce.v12",
    1: "fetch.v13",
    2: "list_offsets.v7",
    3: "metadata.v12",
    21: "delete_records.v2",
    22: "init_producer_id.v4",
    23: "offset_for_leader_epoch.v4",
    61: "describe_producers.v0",
}
_BROKER: Final = 1
_NO_TIME: Final = timedelta(0)


def _messages(api_key: int, side: str) -> Any:
    return importlib.import_module(f"kio.schema.{_APIS[api_key]}.{side}")


@dataclass(slots=True)
class FakeTopic:
    logs: dict[int, FakeLog]
    id: uuid.UUID = field(default_factory=uuid.uuid4)
    leaderless: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and the topics it names."""

    name: str
    topics: frozenset[str]


class FakeCluster(Cluster):
    """`before` is called with every request, before it is answered: a race is a function that
    changes the cluster there, and a broken link one that raises `BrokerError`."""

    def __init__(self, alias: str = "B") -> None:
        super().__init__(ClusterAlias(alias), ["fake:9092"], {})
        self.topics: dict[TopicName, FakeTopic] = {}
        self.asked: list[Asked] = []
        self.before: Callable[[Asked], None] = lambda _: None
        self._brokers = {_BROKER: ("fake", 9092)}
        self._next_producer_id = 1_000

    def create(self, name: str, partitions: int = 1, *, is_compacted: bool = False) -> FakeLog:
        """A new topic, also where there was one of that name; its first partition."""
        logs = {number: FakeLog(is_compacted=is_compacted) for number in range(partitions)}
        self.topics[TopicName(name)] = FakeTopic(logs)
        return logs[0]

    def log(self, partition: TopicPartition) -> FakeLog:
        return self.topics[partition.topic].logs[partition.partition]

    def id_of(self, name: str) -> TopicId:
        return TopicId(str(self.topics[TopicName(name)].id))

    async def connection(self, broker: int, purpose: str) -> Connection:
        return _FakeConnection(self)

    def answer(self, api_key: int, body: bytes) -> bytes:
        name = _APIS[api_key].partition(".")[0]
        message = "".join(word.capitalize() for word in name.split("_"))
        asked_type = getattr(_messages(api_key, "request"), f"{message}Request")
        request = entity_reader(asked_type)(body, 0)[0]
        self.asked.append(Asked(name, self._topics_of(request)))
        self.before(self.asked[-1])
        answer = getattr(self, f"_{name}")(request, _messages(api_key, "response"))
        out = io.BytesIO()
        entity_writer(type(answer))(out, answer)
        return out.getvalue()

    def _topics_of(self, request: Any) -> frozenset[str]:
        names: dict[Any, str] = {topic.id: name for name, topic in self.topics.items()}
        rows: Any = getattr(request, "topics", None) or getattr(request, "topic_data", ())
        by_name = (getattr(row, "name", None) or getattr(row, "topic", None) for row in rows)
        by_id = (names.get(getattr(row, "topic_id", None)) for row in rows)
        return frozenset(str(name) for name in (*by_name, *by_id) if name)

    def _found(self, name: str, number: int) -> FakeLog:
        topic = self.topics.get(TopicName(name))
        if topic is None or number not in topic.logs:
            raise Refusal(ErrorCode.unknown_topic_or_partition)
        if number in topic.leaderless:
            raise Refusal(ErrorCode.not_leader_or_follower)
        return topic.logs[number]

    def _metadata(self, request: Any, reply: Any) -> Any:
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
                            leader_id=-1 if number in topic.leaderless else _BROKER,
                            leader_epoch=topic.logs[number].epoch,
                            replica_nodes=(_BROKER,),
                            isr_nodes=(_BROKER,),
                            offline_replicas=(),
                        )
                        for number in topic.logs
                    )
                    if topic
                    else (),
                )
            )
        broker = reply.MetadataResponseBroker(node_id=_BROKER, host="fake", port=9092)
        return reply.MetadataResponse(throttle_time=_NO_TIME, brokers=(broker,), topics=tuple(rows))

    def _list_offsets(self, request: Any, reply: Any) -> Any:
        def row(log: FakeLog, asked: Any) -> Mapping[str, Any]:
            if asked.timestamp == EARLIEST:
                return {"offset": log.start}
            at_end = asked.timestamp == LATEST
            return {"offset": log.high_watermark if at_end else log.offset_at(asked.timestamp)}

        topics = tuple(
            reply.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    reply.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        **self._or_error(topic.name, each.partition_index, row, each),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return reply.ListOffsetsResponse(throttle_time=_NO_TIME, topics=topics)

    def _offset_for_leader_epoch(self, request: Any, reply: Any) -> Any:
        def row(log: FakeLog, asked: Any) -> Mapping[str, Any]:
            epoch, end = log.epoch_end(asked.leader_epoch)
            return {"leader_epoch": epoch, "end_offset": end}

        topics = tuple(
            reply.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    reply.EpochEndOffset(
                        partition=each.partition,
                        **self._or_error(topic.topic, each.partition, row, each),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return reply.OffsetForLeaderEpochResponse(throttle_time=_NO_TIME, topics=topics)

    def _describe_producers(self, request: Any, reply: Any) -> Any:
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
                            **self._or_error(topic.name, number, row, None),
                        },
                    )
                    for number in topic.partition_indexes
                ),
            )
            for topic in request.topics
        )
        return reply.DescribeProducersResponse(throttle_time=_NO_TIME, topics=topics)

    def _init_producer_id(self, _: Any, reply: Any) -> Any:
        self._next_producer_id += 1
        return reply.InitProducerIdResponse(
            throttle_time=_NO_TIME,
            error_code=ErrorCode.none,
            producer_id=self._next_producer_id,
            producer_epoch=0,
        )

    def _produce(self, request: Any, reply: Any) -> Any:
        def row(log: FakeLog, asked: Any) -> Mapping[str, Any]:
            return {"base_offset": log.append(bytes(asked.records)), "log_start_offset": log.start}

        topics = tuple(
            reply.TopicProduceResponse(
                name=topic.name,
                partition_responses=tuple(
                    reply.PartitionProduceResponse(
                        index=each.index,
                        record_errors=(),
                        **{"base_offset": -1, **self._or_error(topic.name, each.index, row, each)},
                    )
                    for each in topic.partition_data
                ),
            )
            for topic in request.topic_data
        )
        return reply.ProduceResponse(responses=topics, throttle_time=_NO_TIME)

    def _fetch(self, request: Any, reply: Any) -> Any:
        names = {topic.id: name for name, topic in self.topics.items()}

        def row(log: FakeLog, asked: Any) -> Mapping[str, Any]:
            return {
                "records": log.read(asked.fetch_offset, asked.partition_max_bytes),
                "high_watermark": log.high_watermark,
                "last_stable_offset": log.high_watermark,
                "log_start_offset": log.start,
                "aborted_transactions": tuple(
                    reply.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                    for producer_id, first_offset in log.aborted
                    if request.isolation_level
                ),
            }

        topics = tuple(
            reply.FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=tuple(
                    reply.PartitionData(
                        partition_index=each.partition,
                        **{
                            "aborted_transactions": (),
                            "records": None,
                            "high_watermark": -1,
                            **self._or_error(
                                names.get(topic.topic_id, ""), each.partition, row, each
                            ),
                        },
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return reply.FetchResponse(
            throttle_time=_NO_TIME, error_code=ErrorCode.none, session_id=0, responses=topics
        )

    def _delete_records(self, request: Any, reply: Any) -> Any:
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
                            **self._or_error(topic.name, each.partition_index, row, each),
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
        row: Callable[[FakeLog, Any], Mapping[str, Any]],
        asked: Any,
    ) -> dict[str, Any]:
        try:
            return {"error_code": ErrorCode.none, **row(self._found(name, number), asked)}
        except Refusal as refusal:
            return {"error_code": refusal.code}


class _FakeConnection(Connection):
    """Answers at once, in the order of the requests."""

    def __init__(self, cluster: FakeCluster) -> None:
        versions = {key: int(api.rpartition(".v")[2]) for key, api in _APIS.items()}
        super().__init__("fake", {key: (newest, newest) for key, newest in versions.items()})
        self._cluster = cluster

    def send(
        self,
        api_key: int,
        version: int,
        parts: Sequence[bytes | bytearray | memoryview],
        on_answer: OnAnswer,
    ) -> None:
        answer: Answer
        try:
            answer = memoryview(self._cluster.answer(api_key, b"".join(parts)))
        except BrokerError as exc:
            answer = exc
        on_answer(answer)
