"""A cluster as a slot sees it: who leads which partition, and a connection to each leader.

Runs on driver and executors, in one event loop. Leader moves, broker restarts and timeouts are
ordinary here: whoever gets `LeaderMoved` or `BrokerUnreachable` refreshes and tries again.
"""

from __future__ import annotations

import asyncio
import datetime
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from aiokafka.errors import KafkaError
from kio.schema.describe_producers.v0 import request as producers_request
from kio.schema.describe_producers.v0 import response as producers_response
from kio.schema.init_producer_id.v4 import request as init_request
from kio.schema.init_producer_id.v4 import response as init_response
from kio.schema.list_offsets.v7 import request as offsets_request
from kio.schema.list_offsets.v7 import response as offsets_response
from kio.schema.metadata.v12 import request as metadata_request
from kio.schema.metadata.v12 import response as metadata_response
from kio.schema.offset_for_leader_epoch.v4 import request as epochs_request
from kio.schema.offset_for_leader_epoch.v4 import response as epochs_response

from heliograph.broker.codes import NONE, broker_error
from heliograph.broker.connection import Connection, open_connection
from heliograph.broker.round_trip import RoundTrip
from heliograph.broker.tls_probe import missing_tls
from heliograph.broker.traffic import Traffic
from heliograph.config.clients import aiokafka_settings, without_listeners
from heliograph.config.registry import RegistryConfig
from heliograph.config.schema import ClientRole, ClusterConfig
from heliograph.errors import (
    BrokerError,
    BrokerUnreachable,
    LeaderMoved,
    MirrorError,
    NotAuthorised,
    WireError,
)
from heliograph.model import ClusterAlias, TopicId, TopicName, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
NO_OFFSET: Final = -1
"""The answer where a partition has no record of a time or later."""
_NEEDS: Final[Mapping[ClientRole, str]] = {
    "consumer": "READ",
    "producer": "READ and WRITE",
    "admin": "DESCRIBE",
}
"""What a role does to topics: a broker that hides one says only that it is hidden."""
_RETRY_PAUSE_S: Final = 0.2

V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    broker: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    id: TopicId
    leaders: Mapping[int, Leader]
    """By partition; a partition without a leader is missing."""
    partition_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """Of the newest epoch up to the one asked for, the offset behind its last record."""

    epoch: int
    """-1 where the leader's log does not reach back, or on, to the one asked for."""
    end_offset: int


def open_cluster(config: ClusterConfig, role: ClientRole, *, only_reads: bool = False) -> Cluster:
    """The cluster as a client of this role reaches it; connects when first asked.

    `only_reads` is for those who look with a producer's credentials, and so need no more than READ.
    """
    cluster = Cluster(
        config.alias,
        config.bootstrap_servers,
        aiokafka_settings(config, role),
        needs="READ" if only_reads else _NEEDS[role],
    )
    cluster.registry = config.registry
    return cluster


class Cluster:
    """Metadata and connections of one cluster. Owned by one event loop; `close` ends every
    connection."""

    def __init__(
        self,
        alias: ClusterAlias,
        bootstrap: Iterable[str],
        settings: dict[str, Any],
        *,
        needs: str = "DESCRIBE",
    ) -> None:
        self.alias = alias
        self.registry = RegistryConfig()
        """How the schema registry beside it is reached; asked by transforms alone."""
        self._needs = needs
        """What is done to topics here: a broker that hides one says only that it is hidden."""
        self._bootstrap = without_listeners(bootstrap)
        self._settings = settings
        self._brokers: dict[int, tuple[str, int]] = {}
        self.racks: frozenset[str] = frozenset()
        """That brokers are in, as the last answer about metadata said."""
        self._topics: dict[TopicName, Topic] = {}
        self._hidden: dict[TopicName, BrokerError] = {}
        self._closings = 0
        self._answered_last: int | None = None
        self._connections: dict[tuple[int, str], Connection] = {}
        self._locks: defaultdict[tuple[int, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._round_trips: defaultdict[int, RoundTrip] = defaultdict(RoundTrip)
        self.traffic = Traffic()
        """Of what carries records; other questions are not counted."""

    def round_trip(self, broker: int) -> RoundTrip:
        """As all connections to the broker have heard it."""
        return self._round_trips[broker]

    @property
    def brokers(self) -> tuple[int, ...]:
        """As the last answer about metadata named them."""
        return tuple(self._brokers)

    def leader(self, partition: TopicPartition) -> Leader | None:
        topic = self._topics.get(partition.topic)
        return None if topic is None else topic.leaders.get(partition.partition)

    def topic(self, name: TopicName) -> Topic | None:
        return self._topics.get(name)

    def no_leader_error(self, partition: TopicPartition) -> BrokerError:
        """Why no leader is known: a broker hides the topic from us, or there is none now."""
        gone = LeaderMoved(f"cluster {self.alias}: {partition} has no leader now")
        return self._hidden.get(partition.topic, gone)

    async def refresh(self, names: Iterable[TopicName]) -> None:
        """Learn leaders and topic ids anew; a topic that is gone is forgotten."""
        await self._refresh(tuple(sorted(set(names))))

    async def refresh_all(self) -> Mapping[TopicName, Topic]:
        """Learn about every topic; brokers hide those we may not describe."""
        await self._refresh(None)
        return dict(self._topics)

    async def _refresh(self, wanted: tuple[TopicName, ...] | None) -> None:
        asked = None if wanted is None else tuple(map(_metadata_topic, wanted))
        message = metadata_request.MetadataRequest(
            topics=asked,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        answer = await self._ask_any(message, metadata_response.MetadataResponse)
        self._brokers = {int(b.node_id): (b.host, int(b.port)) for b in answer.brokers}
        self.racks = frozenset(b.rack for b in answer.brokers if b.rack)
        for name in tuple(self._topics) if wanted is None else wanted:
            self._topics.pop(name, None)
            self._hidden.pop(name, None)
        for row in answer.topics:
            if row.name is None:
                continue
            if row.error_code != NONE:
                self._record_unauthorized(TopicName(row.name), int(row.error_code))
                continue
            self._topics[TopicName(row.name)] = Topic(
                id=TopicId(str(row.topic_id)),
                leaders={
                    int(p.partition_index): Leader(
                        broker=int(p.leader_id), epoch=int(p.leader_epoch)
                    )
                    for p in row.partitions
                    if int(p.leader_id) >= 0
                },
                partition_count=len(row.partitions),
            )

    def _record_unauthorized(self, name: TopicName, code: int) -> None:
        error = broker_error(
            f"cluster {self.alias}", code, permission=f"{self._needs} on topic {name}"
        )
        if isinstance(error, NotAuthorised):
            self._hidden[name] = error

    async def connection(self, broker: int, purpose: str) -> Connection:
        """The connection to `broker` kept for `purpose`, opened when needed."""
        key = (broker, purpose)
        async with self._locks[key]:
            found = self._connections.get(key)
            if found is not None and not found.closed and not found.is_due:
                return found
            address = self._brokers.get(broker)
            if address is None:
                raise LeaderMoved(f"cluster {self.alias}: broker {broker} is not known")
            closings, settings = self._closings, self._settings
            opened = await open_connection(
                *address,
                settings,
                cluster=self.alias,
                on_round_trip=self.round_trip(broker).heard,
            )
            if closings != self._closings:
                # Who closed the cluster meanwhile did not see this one, and nobody would close it.
                opened.close()
                raise BrokerUnreachable(f"cluster {self.alias}: closed while it was connected to")
            if found is not None:
                found.retire()
            if settings is not self._settings:
                opened.expire()
            self._connections[key] = opened
            return opened

    async def list_offsets(
        self, partitions: Iterable[TopicPartition], at: int, *, read_committed: bool = False
    ) -> dict[TopicPartition, int | BrokerError]:
        """Offsets at `EARLIEST`, `LATEST` or a time in ms; what failed is an error value, not an
        exception."""

        def message(rows: Mapping[TopicName, list[int]]) -> Any:
            return offsets_request.ListOffsetsRequest(
                replica_id=-1,  # type: ignore[arg-type]
                isolation_level=int(read_committed),  # type: ignore[arg-type]
                topics=tuple(
                    offsets_request.ListOffsetsTopic(
                        name=name,  # type: ignore[arg-type]
                        partitions=tuple(
                            offsets_request.ListOffsetsPartition(
                                partition_index=index,  # type: ignore[arg-type]
                                timestamp=at,  # type: ignore[arg-type]
                            )
                            for index in indexes
                        ),
                    )
                    for name, indexes in rows.items()
                ),
            )

        return await self._ask_leaders(
            partitions,
            message,
            offsets_response.ListOffsetsResponse,
            lambda row: int(row.offset),
            "DESCRIBE",
        )

    async def last_sequences(
        self, partitions: Iterable[TopicPartition], producer_id: int
    ) -> dict[TopicPartition, int | BrokerError]:
        """The last sequence the leader has of `producer_id`; -1 where it remembers none."""

        def sequence(row: Any) -> int:
            found = [p.last_sequence for p in row.active_producers if p.producer_id == producer_id]
            return int(found[0]) if found else -1

        return await self._ask_of_producers(partitions, sequence)

    async def has_producer_of_epoch(
        self, partitions: Iterable[TopicPartition], epoch: int
    ) -> dict[TopicPartition, bool | BrokerError]:
        """Whether the leader remembers a producer with this epoch that has no transactions."""

        def is_there(row: Any) -> bool:
            return any(
                p.producer_epoch == epoch
                and p.coordinator_epoch == p.current_txn_start_offset == -1
                for p in row.active_producers
            )

        return await self._ask_of_producers(partitions, is_there)

    async def producer_ids(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, frozenset[int] | BrokerError]:
        """Of the producers that the leader remembers: a broker keeps no names of clients."""
        return await self._ask_of_producers(
            partitions, lambda row: frozenset(int(p.producer_id) for p in row.active_producers)
        )

    async def _ask_of_producers(
        self, partitions: Iterable[TopicPartition], value: Callable[[Any], V]
    ) -> dict[TopicPartition, V | BrokerError]:
        def message(rows: Mapping[TopicName, list[int]]) -> Any:
            return producers_request.DescribeProducersRequest(
                topics=tuple(
                    producers_request.TopicRequest(
                        name=name,  # type: ignore[arg-type]
                        partition_indexes=tuple(indexes),  # type: ignore[arg-type]
                    )
                    for name, indexes in rows.items()
                )
            )

        return await self._ask_leaders(
            partitions, message, producers_response.DescribeProducersResponse, value, "READ"
        )

    async def epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | BrokerError]:
        """Where the log's records of each epoch end, as the leader has it now (KIP-320)."""

        def partition(name: TopicName, index: int) -> epochs_request.OffsetForLeaderPartition:
            place = TopicPartition(topic=name, partition=index)
            leader = self.leader(place)
            return epochs_request.OffsetForLeaderPartition(
                partition=index,  # type: ignore[arg-type]
                current_leader_epoch=-1 if leader is None else leader.epoch,  # type: ignore[arg-type]
                leader_epoch=epochs[place],  # type: ignore[arg-type]
            )

        def message(rows: Mapping[TopicName, list[int]]) -> Any:
            return epochs_request.OffsetForLeaderEpochRequest(
                replica_id=-1,  # type: ignore[arg-type]
                topics=tuple(
                    epochs_request.OffsetForLeaderTopic(
                        topic=name,  # type: ignore[arg-type]
                        partitions=tuple(partition(name, index) for index in indexes),
                    )
                    for name, indexes in rows.items()
                ),
            )

        return await self._ask_leaders(
            epochs,
            message,
            epochs_response.OffsetForLeaderEpochResponse,
            lambda row: EpochEnd(epoch=int(row.leader_epoch), end_offset=int(row.end_offset)),
            "DESCRIBE",
        )

    async def new_producer_id(self, attempts: int = 50) -> tuple[int, int]:
        """A producer id nobody else has, and its epoch."""
        message = init_request.InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout=datetime.timedelta(milliseconds=60_000),  # type: ignore[arg-type]
        )
        for _ in range(attempts):
            answer = await self._ask_any(message, init_response.InitProducerIdResponse)
            if answer.error_code == NONE:
                return int(answer.producer_id), int(answer.producer_epoch)
            error = broker_error(
                f"cluster {self.alias}: producer id",
                int(answer.error_code),
                permission="WRITE on a topic, or IDEMPOTENT_WRITE on the cluster",
            )
            if not error.retriable:
                raise error
            # A fresh cluster answers COORDINATOR_LOAD_IN_PROGRESS until it has settled.
            await asyncio.sleep(_RETRY_PAUSE_S)
        raise BrokerUnreachable(f"cluster {self.alias}: no producer id after {attempts} tries")

    async def ask_any(self, message: Any, answer_type: type[Any]) -> Any:
        """One exchange of kio's typed messages with whichever broker answers."""
        return await self._ask_any(message, answer_type)

    async def reconnect(self, bootstrap: Iterable[str], settings: dict[str, Any]) -> None:
        """Connect so from here on; connections there are end once all they carry is answered.

        Brokers may have other addresses for these settings, so they are asked for first. Where
        nobody answers, the ones that are known are tried: whoever needs them says what fails.
        """
        self._bootstrap, self._settings = without_listeners(bootstrap), settings
        asked = Cluster(self.alias, self._bootstrap, settings)
        try:
            await asked.refresh(())
        except MirrorError:
            asked._brokers = self._brokers
        finally:
            asked.close()
        if settings is self._settings:
            self._brokers = asked._brokers
            for connection in self._connections.values():
                connection.expire()

    def close(self) -> None:
        self._closings += 1
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _ask_any(self, message: Any, answer_type: type[Any]) -> Any:
        """Ask whichever broker answers first in turn: known ones, then the bootstrap list.

        The one that answered last comes first, so that a silent one costs its time-out once.
        """
        problems: list[BrokerUnreachable] = []
        for broker in sorted(self._brokers, key=lambda known: known != self._answered_last):
            try:
                connection = await self.connection(broker, "control")
                answer = await connection.call(message, answer_type)
            except BrokerUnreachable as exc:
                problems.append(exc)
            else:
                self._answered_last = broker
                return answer
        for server in self._bootstrap:
            host, _, port = server.rpartition(":")
            try:
                connection = await open_connection(
                    host.strip("[]"), int(port), self._settings, cluster=self.alias
                )
            except BrokerUnreachable as exc:
                problems.append(exc)
                continue
            try:
                return await connection.call(message, answer_type)
            except BrokerUnreachable as exc:
                problems.append(exc)
            finally:
                connection.close()
        if not self._brokers and isinstance(problems[-1].__cause__, KafkaError):
            # Connected to, and turned away.
            protocol = self._settings.get("security_protocol", "PLAINTEXT")
            why = await asyncio.to_thread(missing_tls, self.alias, self._bootstrap, protocol)
            if why is not None:
                raise BrokerUnreachable(why)
        raise BrokerUnreachable(f"cluster {self.alias}: no broker answers: {problems[-1]}")

    async def _ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        message: Any,
        answer_type: type[Any],
        value: Callable[[Any], V],
        operation: str,
    ) -> dict[TopicPartition, V | BrokerError]:
        """One request to each leader for all of its partitions; it needs `operation` on each."""
        found: dict[TopicPartition, V | BrokerError] = {}
        by_broker: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for partition in partitions:
            leader = self.leader(partition)
            if leader is None:
                found[partition] = self.no_leader_error(partition)
            else:
                by_broker[leader.broker].append(partition)

        async def ask(broker: int, asked: list[TopicPartition]) -> None:
            rows: defaultdict[TopicName, list[int]] = defaultdict(list)
            for partition in asked:
                rows[partition.topic].append(partition.partition)
            try:
                connection = await self.connection(broker, "control")
                answer = await connection.call(message(rows), answer_type)
            except BrokerError as exc:
                found.update(dict.fromkeys(asked, exc))
                return
            except WireError as exc:
                found.update(dict.fromkeys(asked, BrokerError(str(exc))))
                return
            for topic in answer.topics:
                for row in topic.partitions:
                    partition = _answered_for(topic, row)
                    if row.error_code == NONE:
                        found[partition] = value(row)
                        continue
                    found[partition] = broker_error(
                        f"cluster {self.alias}: {partition}",
                        int(row.error_code),
                        permission=f"{operation} on topic {partition.topic}",
                    )

        await asyncio.gather(*(ask(broker, asked) for broker, asked in by_broker.items()))
        return found


def _answered_for(topic: Any, row: Any) -> TopicPartition:
    # OffsetForLeaderEpoch has other names for the two than all the others.
    if isinstance(topic, epochs_response.OffsetForLeaderTopicResult):
        return TopicPartition(topic=TopicName(topic.topic), partition=int(row.partition))
    return TopicPartition(topic=TopicName(topic.name), partition=int(row.partition_index))


def _metadata_topic(name: TopicName) -> metadata_request.MetadataRequestTopic:
    return metadata_request.MetadataRequestTopic(topic_id=None, name=name)  # type: ignore[arg-type]
