"""The slow questions and orders to one cluster: topics, offsets, configs. Runs on the driver.

A typed layer over confluent_kafka's admin client. Every call is bounded in time, and what
librdkafka raises leaves here as an error of ours that names the cluster.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from enum import StrEnum
from itertools import islice
from typing import Any, Final, Literal, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from heliograph.broker.admin_client import admin_client
from heliograph.broker.admin_errors import ErrorLog, is_one_of
from heliograph.broker.tls_probe import if_turned_away
from heliograph.broker.topic_changes import PartitionsToGrow, TopicConfigChanges, TopicToCreate
from heliograph.broker.view import (
    TOPIC_DEFAULT_NAMES,
    ClusterView,
    ConfigOrigin,
    PartitionView,
    TopicSetting,
    TopicView,
)
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable, NotAuthorised
from heliograph.model import TopicId, TopicName, TopicPartition

TIMEOUT_S_DEFAULT: Final = 30.0
_ANSWER_GRACE_S: Final = 5.0
_TOPICS_PER_REQUEST_MAX: Final = 1_000
_CONFIGS_PER_REQUEST_MAX: Final = 250
_PARTITIONS_PER_REQUEST_MAX: Final = 2_000
"""Controllers refuse a request that would write more than 10,000 records to their log at once."""
_FIRST_TRY_S: Final = 1.0
_REACH_S_MAX: Final = 10.0
"""A cluster that does not answer at all keeps the flows of the others waiting no longer than this,
however long its requests may take once it does."""

_ORIGINS: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: ConfigOrigin.TOPIC,
    ConfigSource.DYNAMIC_BROKER_CONFIG: ConfigOrigin.BROKER,
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: ConfigOrigin.BROKER_DEFAULT,
    ConfigSource.STATIC_BROKER_CONFIG: ConfigOrigin.STATIC_BROKER,
    ConfigSource.DEFAULT_CONFIG: ConfigOrigin.DEFAULT,
    ConfigSource.GROUP_CONFIG: ConfigOrigin.GROUP,
}
_GONE: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_LEADERLESS: Final = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError._NOENT,
    *_GONE,
)

T = TypeVar("T")
Order = TypeVar("Order", TopicToCreate, PartitionsToGrow)


class Change(StrEnum):
    """How an order ended that was not refused."""

    DONE = "done"
    ALREADY = "already"
    """Somebody else was there first; the outcome is the same."""


Outcome = Change | BrokerError


class ClusterAdmin:
    """Questions and orders to one cluster; safe to share between threads."""

    def __init__(self, cluster: ClusterConfig, *, timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
        self.alias: Final = cluster.alias
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._errors = ErrorLog(alias=cluster.alias)
        self._client = admin_client(cluster, self._errors)
        self._was_reached = False

    def describe(self) -> ClusterView:
        """Every topic, internal ones too; brokers hide those we may not describe."""
        metadata = self._metadata()
        names = [TopicName(name) for name in metadata.topics]
        return ClusterView(
            alias=self.alias,
            cluster_id=metadata.cluster_id,
            broker_count=len(metadata.brokers),
            topics=self.describe_topics(names),
        )

    def topic_names(self) -> frozenset[TopicName]:
        """Every topic, internal ones too; brokers hide those we may not describe."""
        return frozenset(TopicName(name) for name in self._metadata().topics)

    def describe_topics(self, names: Iterable[TopicName]) -> Mapping[TopicName, TopicView]:
        """Partitions, leaders and ids; topics that are not there are left out."""
        described: dict[TopicName, TopicView] = {}
        for name, found in self.describe_each(names).items():
            if isinstance(found, NotAuthorised):
                raise found
            described[name] = found
        return described

    def describe_each(
        self, names: Iterable[TopicName]
    ) -> Mapping[TopicName, TopicView | NotAuthorised]:
        """As `describe_topics`, where a topic that is not shown to us keeps no other from it."""
        described: dict[TopicName, TopicView | NotAuthorised] = {}
        for some in _in_chunks(names, _TOPICS_PER_REQUEST_MAX):
            answers = self._ask(self._client.describe_topics, TopicCollection(some))
            for name, answer in answers.items():
                try:
                    topic = self._answer(answer, f"DESCRIBE on topic {name}", left_out=_GONE)
                except NotAuthorised as error:
                    described[TopicName(name)] = error
                    continue
                if topic is not None:
                    described[TopicName(name)] = _topic_view(topic)
        return described

    def topic_configs(
        self, names: Iterable[TopicName]
    ) -> Mapping[TopicName, Mapping[str, TopicSetting] | NotAuthorised]:
        """Every setting in force per topic, or why not; topics that are not there are left out."""
        found: dict[TopicName, Mapping[str, TopicSetting] | NotAuthorised] = {}
        for some in _in_chunks(names, _CONFIGS_PER_REQUEST_MAX):
            answers = self._describe_configs([ConfigResource(ResourceType.TOPIC, n) for n in some])
            for resource, answer in answers.items():
                name, permission = resource.name, f"DESCRIBE_CONFIGS on topic {resource.name}"
                try:
                    entries = self._answer(answer, permission, left_out=_GONE)
                except NotAuthorised as error:
                    found[TopicName(name)] = error
                    continue
                if entries is not None:
                    found[TopicName(name)] = {k: _topic_setting(e) for k, e in entries.items()}
        return found

    def topic_defaults(self) -> Mapping[str, str]:
        """What a new topic gets where its creator says nothing, as one of the brokers has it."""
        broker = min(self._metadata().brokers)
        answers = self._describe_configs([ConfigResource(ResourceType.BROKER, str(broker))])
        (answer,) = answers.values()
        entries = self._answer(answer, "DESCRIBE_CONFIGS on the cluster")
        return {
            topic_name: entries[broker_name].value
            for topic_name, broker_name in TOPIC_DEFAULT_NAMES.items()
            if broker_name in entries and entries[broker_name].value is not None
        }

    def list_offsets(
        self,
        partitions: Iterable[TopicPartition],
        at: Literal["earliest", "latest"],
        *,
        read_committed: bool = False,
    ) -> Mapping[TopicPartition, int]:
        """First offset, or the first not yet readable; partitions without a leader are left out."""
        spec = OffsetSpec.earliest() if at == "earliest" else OffsetSpec.latest()
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {ClientPartition(p.topic, p.partition): spec for p in partitions}
        if not wanted:
            return {}
        answers = self._ask(self._client.list_offsets, wanted, isolation_level=level)
        found: dict[TopicPartition, int] = {}
        for partition, answer in answers.items():
            permission = f"DESCRIBE on topic {partition.topic}"
            result = self._answer(answer, permission, left_out=_LEADERLESS)
            if result is not None:
                found[_topic_partition(partition)] = result.offset
        return found

    def create_topics(self, topics: Sequence[TopicToCreate]) -> Mapping[TopicName, Outcome]:
        """Create each; a topic that cannot be created does not keep the others from it."""
        outcomes: dict[TopicName, Outcome] = {}
        for some in _within_partitions(topics):
            new = [
                NewTopic(
                    topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    config=dict(topic.configs),
                )
                for topic in some
            ]
            answers = self._ask(self._client.create_topics, new, operation_timeout=self._timeout_s)
            already = (KafkaError.TOPIC_ALREADY_EXISTS,)
            outcomes |= self._outcomes(answers, "CREATE", already)
            if len(some) < len(topics):
                # Asked for all at once, a broker makes logs for minutes and answers nobody.
                made = [topic for topic in some if outcomes.get(topic.name) is Change.DONE]
                self.await_partitions({topic.name: topic.partitions for topic in made})
        return {
            topic.name: self._told(topic, outcomes[topic.name])
            for topic in topics
            if topic.name in outcomes
        }

    def grow_partitions(self, topics: Sequence[PartitionsToGrow]) -> Mapping[TopicName, Outcome]:
        """Grow each to its count; one that has as many by now is `ALREADY`."""
        outcomes: dict[TopicName, Outcome] = {}
        for some in _within_partitions(topics):
            new = [NewPartitions(topic.name, topic.partitions) for topic in some]
            answers = self._ask(
                self._client.create_partitions, new, operation_timeout=self._timeout_s
            )
            # Brokers say INVALID_PARTITIONS when the count is not above the present one, which is
            # what the loser of a race between two drivers hears.
            already = (KafkaError.INVALID_PARTITIONS,)
            outcomes |= self._outcomes(answers, "ALTER", already)
        return outcomes

    def alter_topic_configs(
        self, topics: Sequence[TopicConfigChanges]
    ) -> Mapping[TopicName, Outcome]:
        """Change what is named and nothing else; a topic gets all of its changes or none."""
        outcomes: dict[TopicName, Outcome] = {}
        for some in _in_chunks(topics, _CONFIGS_PER_REQUEST_MAX):
            answers = self._ask(
                self._client.incremental_alter_configs, [_config_order(topic) for topic in some]
            )
            by_name = {resource.name: answer for resource, answer in answers.items()}
            outcomes |= self._outcomes(by_name, "ALTER_CONFIGS", ())
        return outcomes

    def delete_topics(self, names: Iterable[TopicName]) -> Mapping[TopicName, Outcome]:
        """Delete each, with all it holds; one that is not there is `ALREADY`."""
        outcomes: dict[TopicName, Outcome] = {}
        for some in _in_chunks(names, _TOPICS_PER_REQUEST_MAX):
            answers = self._ask(self._client.delete_topics, some, operation_timeout=self._timeout_s)
            outcomes |= self._outcomes(answers, "DELETE", _GONE)
        return outcomes

    def ensure_compacted_topic(
        self,
        name: TopicName,
        *,
        partitions: int,
        replication_factor: int,
        factor_key: str = "replication.factor",
        configs: Mapping[str, str] | None = None,
    ) -> Change:
        """Create a topic for our own state, or make sure that the one there is compacted."""
        wanted = TopicToCreate(
            source=name,
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs={"cleanup.policy": "compact", **(configs or {})},
            factor_key=factor_key,
        )
        present = name in self.describe_topics([name])
        outcome = Change.ALREADY if present else self.create_topics([wanted])[name]
        if isinstance(outcome, BrokerError):
            raise outcome
        if outcome is Change.ALREADY:
            self._require_compacted(name)
        return outcome

    def await_partitions(self, counts: Mapping[TopicName, int]) -> Mapping[TopicName, Outcome]:
        """Wait until the cluster shows each topic with so many led partitions.

        Creation is acknowledged by the controller; brokers learn of it a moment later, and whoever
        plans from metadata read in between finds nothing to do.
        """
        deadline = monotonic_s() + self._timeout_s
        waiting = dict(counts)
        outcomes: dict[TopicName, Outcome] = {}
        while waiting:
            for name, topic in self.describe_each(waiting).items():
                if isinstance(topic, NotAuthorised):
                    outcomes[name] = topic
                elif topic.led_partition_count >= waiting[name]:
                    outcomes[name] = Change.DONE
            waiting = {name: count for name, count in waiting.items() if name not in outcomes}
            if waiting and monotonic_s() >= deadline:
                break
            if waiting:
                self._client.poll(0.1)
        for name, count in waiting.items():
            outcomes[name] = BrokerUnreachable(
                f"cluster {self.alias}: topic {name} has fewer than {count} partitions with a "
                f"leader {self._timeout_s:g} s after they were created"
            )
        return outcomes

    def delete_records(self, before: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Delete what lies before each offset; the answer is the first offset left."""
        if not before:
            return {}
        wanted = [ClientPartition(p.topic, p.partition, offset) for p, offset in before.items()]
        answers = self._ask(self._client.delete_records, wanted, operation_timeout=self._timeout_s)
        return {
            _topic_partition(partition): self._answer(
                answer, f"DELETE on topic {partition.topic}"
            ).low_watermark
            for partition, answer in answers.items()
        }

    def _metadata(self) -> Any:
        """Ask in growing steps, so that refused credentials are told before the deadline.

        Servers that are not there are asked twice: no patience makes a wrong port right.
        """
        began_s = monotonic_s()
        deadline = began_s + min(self._timeout_s, _REACH_S_MAX)
        step_s = _FIRST_TRY_S
        while True:
            left_s = deadline - monotonic_s()
            try:
                metadata = self._client.list_topics(timeout=max(0.1, min(step_s, left_s)))
            except KafkaException as exc:
                self._client.poll(0)
                error = self._errors.translated(exc, "DESCRIBE on the cluster")
                if not self._was_reached:
                    error = if_turned_away(error, self._cluster, "admin")
                if not error.retriable or monotonic_s() >= deadline:
                    raise error from exc
                is_absent = self._errors.says_nothing_is_there
                if is_absent and monotonic_s() - began_s >= 2 * _FIRST_TRY_S:
                    raise error from exc
                step_s = _FIRST_TRY_S if is_absent else 2 * step_s
            else:
                self._client.poll(0)
                self._errors.forget()
                self._was_reached = True
                return metadata

    def _describe_configs(self, resources: list[ConfigResource]) -> Mapping[Any, Future[Any]]:
        return self._ask(self._client.describe_configs, resources)

    def _require_compacted(self, name: TopicName) -> None:
        settings = self.topic_configs([name]).get(name, {})
        if isinstance(settings, NotAuthorised):
            raise settings
        setting = settings.get("cleanup.policy")
        if setting is not None and setting.value != "compact":
            raise BrokerError(
                f"cluster {self.alias}: topic {name} has cleanup.policy={setting.value}, "
                "it must be compact or its entries expire"
            )

    def _outcomes(
        self,
        answers: Mapping[str, Future[Any]],
        operation: str,
        already: tuple[int, ...],
    ) -> dict[TopicName, Outcome]:
        outcomes: dict[TopicName, Outcome] = {}
        for name, answer in answers.items():
            try:
                self._answer(answer, f"{operation} on topic {name}")
                outcomes[TopicName(name)] = Change.DONE
            except BrokerUnreachable:
                raise
            except BrokerError as error:
                known = is_one_of(error.__cause__, already)
                outcomes[TopicName(name)] = Change.ALREADY if known else error
        return outcomes

    def _told(self, topic: TopicToCreate, outcome: Outcome) -> Outcome:
        """The outcome; a refusal names the topic, and the key to change where that helps."""
        if not isinstance(outcome, BrokerError) or topic.name in str(outcome):
            return outcome
        key = ""
        if is_one_of(outcome.__cause__, (KafkaError.INVALID_REPLICATION_FACTOR,)):
            key = f" with {topic.factor_key} = {topic.replication_factor}"
        why = str(outcome).removeprefix(f"cluster {self.alias}: ")
        text = f"cluster {self.alias}: topic {topic.name} cannot be created{key}: {why}"
        told = type(outcome)(text)
        told.__cause__ = outcome.__cause__
        return told

    def _ask(
        self, call: Callable[..., Mapping[Any, Future[Any]]], what: object, **options: object
    ) -> Mapping[Any, Future[Any]]:
        if not self._was_reached:
            # A request waits for a cluster as long as it may take; whether there is one is known
            # sooner, and why there is none.
            self._metadata()
        # Callbacks wait in a queue until somebody polls; a client nobody polls keeps them all.
        self._client.poll(0)
        try:
            return call(what, request_timeout=self._timeout_s, **options)
        except KafkaException as exc:
            raise self._errors.translated(exc, "for the request") from exc

    def _answer(
        self, answer: Future[Any], permission: str, *, left_out: tuple[int, ...] = ()
    ) -> Any:
        """The result; None for an error in `left_out`."""
        try:
            return answer.result(self._timeout_s + _ANSWER_GRACE_S)
        except KafkaException as exc:
            if is_one_of(exc, left_out):
                return None
            self._client.poll(0)
            raise self._errors.translated(exc, permission) from exc
        except TimeoutError as exc:
            raise BrokerUnreachable(
                f"cluster {self.alias}: no answer within {self._timeout_s:g} s"
            ) from exc


def _config_order(topic: TopicConfigChanges) -> ConfigResource:
    entries = [
        ConfigEntry(
            change.name,
            "" if change.value is None else change.value,
            incremental_operation=AlterConfigOpType.DELETE
            if change.value is None
            else AlterConfigOpType.SET,
        )
        for change in topic.changes
    ]
    return ConfigResource(ResourceType.TOPIC, topic.topic, incremental_configs=entries)


def _topic_view(topic: Any) -> TopicView:
    partitions = sorted(topic.partitions, key=lambda partition: partition.id)
    return TopicView(
        name=TopicName(topic.name),
        id=_topic_id(topic.topic_id),
        partitions=tuple(
            PartitionView(
                partition=partition.id,
                leader=None if partition.leader is None else partition.leader.id,
                replica_count=len(partition.replicas),
            )
            for partition in partitions
        ),
    )


def _topic_id(found: Any) -> TopicId | None:
    """Clusters older than Kafka 2.8 answer with a zero."""
    if found is None:
        return None
    mask = (1 << 64) - 1
    high, low = found.get_most_significant_bits(), found.get_least_significant_bits()
    value = (high & mask) << 64 | (low & mask)
    return TopicId(str(uuid.UUID(int=value))) if value else None


def _topic_setting(entry: Any) -> TopicSetting:
    try:
        origin = _ORIGINS.get(ConfigSource(entry.source), ConfigOrigin.UNKNOWN)
    except ValueError:
        origin = ConfigOrigin.UNKNOWN
    return TopicSetting(
        name=entry.name,
        value=None if entry.is_sensitive else entry.value,
        origin=origin,
        read_only=entry.is_read_only,
        sensitive=entry.is_sensitive,
    )


def _topic_partition(partition: ClientPartition) -> TopicPartition:
    return TopicPartition(topic=TopicName(partition.topic), partition=partition.partition)


def _in_chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _within_partitions(topics: Sequence[Order]) -> Iterator[list[Order]]:
    chunk: list[Order] = []
    partitions = 0
    for topic in topics:
        if chunk and partitions + topic.partitions > _PARTITIONS_PER_REQUEST_MAX:
            yield chunk
            chunk, partitions = [], 0
        chunk.append(topic)
        partitions += topic.partitions
    if chunk:
        yield chunk
