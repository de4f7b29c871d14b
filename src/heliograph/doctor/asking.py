"""Ask a cluster for all that the checks look at. Does I/O; runs on the driver.

Each question has its own time limit, and what is refused or not answered is `Untold`: a broker
that is gone keeps nothing from being learnt from the others. Nothing is written.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from kio.schema.api_versions.v3 import request as versions_request
from kio.schema.api_versions.v3 import response as versions_response
from kio.schema.describe_client_quotas.v1 import request as quotas_request
from kio.schema.describe_client_quotas.v1 import response as quotas_response
from kio.schema.describe_log_dirs.v4 import request as dirs_request
from kio.schema.describe_log_dirs.v4 import response as dirs_response
from kio.schema.metadata.v12 import request as metadata_request
from kio.schema.metadata.v12 import response as metadata_response
from kio.serial import entity_reader, entity_writer

from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.broker.described import (
    BROKER_RESOURCE,
    CONFIGS_ANSWER,
    TOPIC_RESOURCE,
    configs_question,
    configs_told,
)
from heliograph.broker.quorum import quorum_state
from heliograph.config.schema import ClusterConfig
from heliograph.doctor.facts import (
    BROKER_KEYS,
    TOPIC_KEYS,
    BrokerFacts,
    ClusterFacts,
    PartitionFacts,
    QuorumFacts,
    Quota,
    TopicFacts,
    Untold,
)
from heliograph.errors import BrokerUnreachable, MirrorError
from heliograph.model import TopicName, TopicPartition

_TOPICS_AT_ONCE: Final = 250
_API_VERSIONS_KEY: Final = 18

T = TypeVar("T")


async def read_facts(config: ClusterConfig, *, answer_s_max: float) -> ClusterFacts:
    """As the admin client of the configuration sees it; raises `BrokerError`."""
    cluster = open_cluster(config, "admin")
    try:
        return await _Asker(cluster, answer_s_max).facts()
    finally:
        cluster.close()


async def read_sizes(
    config: ClusterConfig, *, answer_s_max: float
) -> Mapping[TopicPartition, int] | Untold:
    """Bytes of the largest replica of each partition, which is the leader's or soon is."""
    cluster = open_cluster(config, "admin")
    asker = _Asker(cluster, answer_s_max)
    try:
        await cluster.refresh([])
        found = await asyncio.gather(*(asker.sizes(broker) for broker in cluster.brokers))
    except MirrorError as exc:
        return Untold(why=str(exc))
    finally:
        cluster.close()
    sizes: dict[TopicPartition, int] = {}
    for each in found:
        if isinstance(each, Untold):
            return each
        for at, size in each.items():
            sizes[at] = max(size, sizes.get(at, 0))
    return sizes


class _Asker:
    def __init__(self, cluster: Cluster, answer_s_max: float) -> None:
        self._cluster, self._answer_s_max = cluster, answer_s_max

    async def facts(self) -> ClusterFacts:
        metadata = await self._metadata()
        await self._cluster.refresh([])
        topics = {TopicName(row.name): row for row in metadata.topics if row.name}
        leaders = {
            TopicPartition(topic=name, partition=int(p.partition_index)): int(p.leader_id)
            for name, row in topics.items()
            for p in row.partitions
        }
        brokers, settings, quorum, features, quotas = await asyncio.gather(
            asyncio.gather(*(self._broker(row, leaders) for row in metadata.brokers)),
            self._told(self._topic_settings(list(topics))),
            self._told(self.quorum()),
            self._told(self._features()),
            self._told(self._quotas()),
        )
        sizes: dict[TopicPartition, int] = {}
        refused = [found for _, found in brokers if isinstance(found, Untold)]
        for _, found in brokers:
            sizes |= found if not isinstance(found, Untold) else {}
        return ClusterFacts(
            alias=self._cluster.alias,
            cluster_id=metadata.cluster_id,
            brokers={facts.id: facts for facts, _ in brokers},
            topics={name: _topic(name, row, settings) for name, row in topics.items()},
            quorum=quorum,
            features=features,
            sizes=refused[0] if refused else sizes,
            quotas=quotas,
            partitions_total=sum(
                len(p.replica_nodes) for row in topics.values() for p in row.partitions
            ),
        )

    async def _metadata(self) -> Any:
        message = metadata_request.MetadataRequest(
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        try:
            async with asyncio.timeout(self._answer_s_max):
                return await self._cluster.ask_any(message, metadata_response.MetadataResponse)
        except TimeoutError as exc:
            raise BrokerUnreachable(
                f"cluster {self._cluster.alias}: no answer within {self._answer_s_max:g} s"
            ) from exc

    async def _told(self, question: Awaitable[T]) -> T | Untold:
        """The answer within the time there is, or why there is none."""
        try:
            async with asyncio.timeout(self._answer_s_max):
                return await question
        except TimeoutError:
            return Untold(why=f"no answer within {self._answer_s_max:g} s")
        except MirrorError as exc:
            return Untold(why=str(exc))

    async def _broker(
        self, row: Any, leaders: Mapping[TopicPartition, int]
    ) -> tuple[BrokerFacts, Mapping[TopicPartition, int] | Untold]:
        """One broker, and the sizes of the partitions it leads."""
        id_ = int(row.node_id)
        versions, settings, dirs = await asyncio.gather(
            self._told(self._versions(id_)),
            self._told(self._broker_settings(id_)),
            self._told(self._log_dirs(id_)),
        )
        total = usable = None
        sizes: Mapping[TopicPartition, int] | Untold
        if isinstance(dirs, Untold):
            sizes = dirs
        else:
            total, usable, held = dirs
            sizes = {at: size for at, size in held.items() if leaders.get(at) == id_}
        facts = BrokerFacts(
            id=id_,
            host=row.host,
            port=int(row.port),
            rack=row.rack or None,
            versions=None if isinstance(versions, Untold) else versions,
            settings=settings,
            total_bytes=total,
            usable_bytes=usable,
        )
        return facts, sizes

    async def _versions(self, broker: int) -> Mapping[int, tuple[int, int]]:
        return (await self._cluster.connection(broker, "control")).versions

    async def _broker_settings(self, broker: int) -> Mapping[str, str]:
        connection = await self._cluster.connection(broker, "control")
        message = configs_question(BROKER_RESOURCE, [str(broker)], BROKER_KEYS)
        answer = await connection.call(message, CONFIGS_ANSWER)
        (found,) = answer.results
        self._require(found, "settings", "DESCRIBE_CONFIGS on the cluster")
        return configs_told(found)

    async def _topic_settings(self, names: list[TopicName]) -> Mapping[str, Mapping[str, str]]:
        settings: dict[str, Mapping[str, str]] = {}
        rest = iter(names)
        while some := list(islice(rest, _TOPICS_AT_ONCE)):
            message = configs_question(TOPIC_RESOURCE, some, TOPIC_KEYS)
            answer = await self._cluster.ask_any(message, CONFIGS_ANSWER)
            # A topic that may not be looked at, or is gone by now, is left out.
            settings |= {
                r.resource_name: configs_told(r) for r in answer.results if not r.error_code
            }
        return settings

    async def _log_dirs(self, broker: int) -> tuple[int | None, int | None, dict[Any, int]]:
        connection = await self._cluster.connection(broker, "control")
        answer = await connection.call(
            dirs_request.DescribeLogDirsRequest(topics=None), dirs_response.DescribeLogDirsResponse
        )
        self._require(answer, "log directories", "DESCRIBE on the cluster")
        # Directories on one volume tell the same figures, and it is there once.
        volumes = {
            (int(d.total_bytes), int(d.usable_bytes)) for d in answer.results if d.total_bytes >= 0
        }
        sizes = {
            TopicPartition(topic=TopicName(t.name), partition=int(p.partition_index)): int(
                p.partition_size
            )
            for each in answer.results
            for t in each.topics
            for p in t.partitions
            if not p.is_future_key
        }
        if not volumes:
            return None, None, sizes
        return sum(total for total, _ in volumes), sum(free for _, free in volumes), sizes

    async def sizes(self, broker: int) -> Mapping[TopicPartition, int] | Untold:
        found = await self._told(self._log_dirs(broker))
        return found if isinstance(found, Untold) else found[2]

    async def quorum(self) -> QuorumFacts:
        partition, _ = await quorum_state(self._cluster)
        return QuorumFacts(
            leader=int(partition.leader_id),
            voters=tuple(sorted(int(v.replica_id) for v in partition.current_voters)),
        )

    async def _features(self) -> Mapping[str, int]:
        broker = self._cluster.brokers[0]
        connection = await self._cluster.connection(broker, "control")
        message = versions_request.ApiVersionsRequest(
            client_software_name="heliograph", client_software_version="1"
        )
        out = io.BytesIO()
        entity_writer(type(message))(out, message)
        body = await connection.request(_API_VERSIONS_KEY, 3, [out.getvalue()])
        # The header of this answer has no tagged fields (KIP-511): the byte that was taken for them
        # is the first of the error code.
        answer = entity_reader(versions_response.ApiVersionsResponse)(b"\0" + bytes(body), 0)[0]
        self._require(answer, "versions", "")
        return {row.name: int(row.max_version_level) for row in answer.finalized_features}

    async def _quotas(self) -> tuple[Quota, ...]:
        message = quotas_request.DescribeClientQuotasRequest(components=(), strict=False)
        answer = await self._cluster.ask_any(message, quotas_response.DescribeClientQuotasResponse)
        self._require(answer, "quotas", "DESCRIBE_CONFIGS on the cluster")
        return tuple(map(_quota, answer.entries or ()))

    def _require(self, answer: Any, what: str, permission: str) -> None:
        if answer.error_code != NONE:
            where = f"cluster {self._cluster.alias}: {what}"
            raise broker_error(where, int(answer.error_code), permission=permission)


def _topic(name: TopicName, row: Any, settings: Any) -> TopicFacts:
    if isinstance(settings, Untold):
        own: Mapping[str, str] | Untold = settings
    else:
        own = settings.get(name) or Untold(why=f"missing permission DESCRIBE_CONFIGS on {name}")
    return TopicFacts(
        name=name,
        partitions={
            int(p.partition_index): PartitionFacts(
                leader=int(p.leader_id) if int(p.leader_id) >= 0 else None,
                replicas=tuple(map(int, p.replica_nodes)),
                in_sync=tuple(map(int, p.isr_nodes)),
            )
            for p in row.partitions
        },
        settings=own,
    )


def _quota(row: Any) -> Quota:
    named = {each.entity_type: each.entity_name or "" for each in row.entity}
    return Quota(
        user=named.get("user"),
        client_id=named.get("client-id"),
        values={value.key: float(value.value) for value in row.values},
    )
