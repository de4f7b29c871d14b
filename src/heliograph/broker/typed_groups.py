"""Streams groups (KIP-1071) and share groups (KIP-932), of which librdkafka shows nothing.

Runs on the driver. Streams groups commit offsets as consumer groups do, so only their states are
asked here. A share group commits nothing: for each partition its broker keeps a start offset,
before which every record is done, and takes another one while the group has no members.

Each call opens its own connections and closes them; every call is bounded in time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, TypeVar

from kio.schema.alter_share_group_offsets.v0 import request as alter_request
from kio.schema.alter_share_group_offsets.v0 import response as alter_response
from kio.schema.describe_share_group_offsets.v0 import request as offsets_request
from kio.schema.describe_share_group_offsets.v0 import response as offsets_response
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import request as coordinator_request
from kio.schema.find_coordinator.v4 import response as coordinator_response
from kio.schema.list_groups.v5 import request as list_request
from kio.schema.list_groups.v5 import response as list_response

from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.broker.connection import Connection
from heliograph.broker.group_view import (
    SHARE_METADATA,
    CommitOutcome,
    GroupOffset,
    GroupState,
    GroupType,
    GroupView,
)
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable, GroupActive, WireError
from heliograph.model import TopicName, TopicPartition

Offsets = Mapping[TopicPartition, GroupOffset]

_LIST_KEY: Final = 16
_SHARE_OFFSETS_KEY: Final = 90
_GROUP_COORDINATOR: Final = 0
_ASKED_AT_ONCE_MAX: Final = 500
_PAUSE_S: Final = 0.1
_TYPES: Final[Mapping[str, GroupType]] = {"share": "share", "streams": "streams"}
# Members that wait for partitions or tasks make a group Assigning, Reconciling or NotReady.
_STATES: Final = {
    "empty": GroupState.EMPTY,
    "dead": GroupState.DEAD,
    "stable": GroupState.STABLE,
    "assigning": GroupState.REBALANCING,
    "reconciling": GroupState.REBALANCING,
    "notready": GroupState.REBALANCING,
}
_COORDINATOR_MOVES: Final = frozenset(
    {
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    }
)
_NONE_THERE: Final = frozenset({ErrorCode.group_id_not_found, ErrorCode.unsupported_version})
"""The group is of another type, or the cluster has share groups switched off."""

T = TypeVar("T")


class TypedGroups:
    """Blocking calls for threads without an event loop of their own."""

    def __init__(self, cluster: ClusterConfig, *, timeout_s: float) -> None:
        self._config = cluster
        self._timeout_s = timeout_s

    def views(self) -> dict[str, GroupView]:
        """Every streams and share group that brokers show; none where they know no such types.

        A broker that does not answer keeps only its own groups from the list.
        """
        return self._run(_Asker.views)

    def start_offsets_each(self, ids: Iterable[str]) -> dict[str, Offsets | BrokerError]:
        """Where each share group begins to read; nothing for a group of another type or none."""
        wanted = list(dict.fromkeys(ids))
        return self._run(lambda asker: asker.start_offsets(wanted)) if wanted else {}

    def alter_each(self, wanted: Mapping[str, Offsets]) -> dict[str, CommitOutcome | BrokerError]:
        """Put share groups there; a group that is not there is made by it.

        A group with members is refused as `GroupActive`. Nothing is tried twice.
        """
        return self._run(lambda asker: asker.alter(wanted)) if wanted else {}

    def _run(self, ask: Callable[[_Asker], Awaitable[T]]) -> T:
        return asyncio.run(self._asked(ask))

    async def _asked(self, ask: Callable[[_Asker], Awaitable[T]]) -> T:
        alias = self._config.alias
        cluster = open_cluster(self._config, "admin")
        try:
            async with asyncio.timeout(self._timeout_s):
                await cluster.refresh([])
                return await ask(_Asker(cluster, monotonic_s() + self._timeout_s))
        except TimeoutError as exc:
            raise BrokerUnreachable(
                f"cluster {alias}: no answer within {self._timeout_s:g} s"
            ) from exc
        except WireError as exc:
            raise BrokerError(f"cluster {alias}: {exc}") from exc
        finally:
            cluster.close()


class _Asker:
    """One look at a cluster whose brokers are known."""

    def __init__(self, cluster: Cluster, deadline_s: float) -> None:
        self._cluster = cluster
        self._deadline_s = deadline_s

    async def views(self) -> dict[str, GroupView]:
        brokers = self._cluster.brokers
        answers = await asyncio.gather(
            *(self._listed(broker) for broker in brokers), return_exceptions=True
        )
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        for problem in refused:
            if len(refused) == len(answers) or not isinstance(problem, BrokerError):
                raise problem
        return {
            view.id: view
            for answer in answers
            if not isinstance(answer, BaseException)
            for view in answer
        }

    async def start_offsets(self, ids: list[str]) -> dict[str, Offsets | BrokerError]:
        found: dict[str, Offsets | BrokerError] = {}
        waiting = ids
        while waiting:
            moving: list[str] = []
            for some in _in_chunks(waiting):
                by_broker, refused, unknown = await self._coordinators(some, "DESCRIBE")
                found |= refused
                moving += unknown
                for broker, asked in by_broker.items():
                    moving += await self._start_offsets_of(broker, asked, found)
            waiting = moving
            if waiting:
                await self._pause(f"group {waiting[0]}")
        return found

    async def alter(self, wanted: Mapping[str, Offsets]) -> dict[str, CommitOutcome | BrokerError]:
        done: dict[str, CommitOutcome | BrokerError] = {}
        waiting = list(wanted)
        while waiting:
            by_broker, refused, waiting = await self._coordinators(waiting, "READ")
            done |= refused
            for broker, ids in by_broker.items():
                connection = await self._cluster.connection(broker, "control")
                for group in ids:
                    done[group] = await self._altered(connection, group, wanted[group])
            if waiting:
                await self._pause(f"group {waiting[0]}")
        return done

    async def _listed(self, broker: int) -> list[GroupView]:
        connection = await self._cluster.connection(broker, "control")
        if not connection.knows(_LIST_KEY, list_request.ListGroupsRequest.__version__):
            return []
        message = list_request.ListGroupsRequest(types_filter=tuple(_TYPES))
        while True:
            answer = await connection.call(message, list_response.ListGroupsResponse)
            if answer.error_code not in _COORDINATOR_MOVES:
                break
            await self._pause("groups")
        if answer.error_code != NONE:
            raise broker_error(
                f"cluster {self._cluster.alias}: groups",
                int(answer.error_code),
                permission="DESCRIBE on groups",
            )
        return [
            GroupView(
                id=row.group_id,
                state=_STATES.get(row.group_state.lower(), GroupState.UNKNOWN),
                type=_TYPES[row.group_type.lower()],
            )
            for row in answer.groups
            if row.group_id and row.group_type.lower() in _TYPES
        ]

    async def _coordinators(
        self, ids: list[str], operation: str
    ) -> tuple[dict[int, list[str]], dict[str, BrokerError], list[str]]:
        """Groups by their coordinator, those that are refused, and those that have none yet.

        `operation` is what the group must allow for what comes next; it implies DESCRIBE.
        """
        message = coordinator_request.FindCoordinatorRequest(
            key_type=_GROUP_COORDINATOR,  # type: ignore[arg-type]
            coordinator_keys=tuple(ids),
        )
        answer = await self._cluster.ask_any(message, coordinator_response.FindCoordinatorResponse)
        by_broker: defaultdict[int, list[str]] = defaultdict(list)
        refused: dict[str, BrokerError] = {}
        unknown: list[str] = []
        for row in answer.coordinators:
            if row.error_code in _COORDINATOR_MOVES:
                unknown.append(row.key)
            elif row.error_code != NONE:
                refused[row.key] = self._error(row.key, row, operation)
            else:
                by_broker[int(row.node_id)].append(row.key)
        return by_broker, refused, unknown

    async def _start_offsets_of(
        self, broker: int, ids: list[str], found: dict[str, Offsets | BrokerError]
    ) -> list[str]:
        """Adds what one coordinator answers to `found`; returns the groups that have left it."""
        connection = await self._cluster.connection(broker, "control")
        if not connection.knows(
            _SHARE_OFFSETS_KEY, offsets_request.DescribeShareGroupOffsetsRequest.__version__
        ):
            found.update({group: {} for group in ids})
            return []
        answer = await connection.call(
            offsets_request.DescribeShareGroupOffsetsRequest(
                groups=tuple(
                    offsets_request.DescribeShareGroupOffsetsRequestGroup(
                        group_id=group,  # type: ignore[arg-type]
                        topics=None,
                    )
                    for group in ids
                )
            ),
            offsets_response.DescribeShareGroupOffsetsResponse,
        )
        moving: list[str] = []
        for row in answer.groups:
            if row.error_code in _COORDINATOR_MOVES:
                moving.append(row.group_id)
            else:
                found[row.group_id] = self._start_offsets_in(row)
        return moving

    def _start_offsets_in(self, row: Any) -> Offsets | BrokerError:
        if row.error_code in _NONE_THERE:
            return {}
        if row.error_code != NONE:
            return self._error(row.group_id, row, "DESCRIBE")
        found: dict[TopicPartition, GroupOffset] = {}
        for topic in row.topics:
            for partition in topic.partitions:
                if partition.error_code != NONE:
                    # Left out it would look like a partition that was never read.
                    return broker_error(
                        f"cluster {self._cluster.alias}: group {row.group_id}",
                        int(partition.error_code),
                        partition.error_message,
                        permission=f"DESCRIBE on topic {topic.topic_name}",
                    )
                # -1 where no member has fetched yet: the group has no place there.
                if partition.start_offset >= 0:
                    at = _topic_partition(topic, partition)
                    found[at] = GroupOffset(
                        offset=int(partition.start_offset), metadata=SHARE_METADATA
                    )
        return found

    async def _altered(
        self, connection: Connection, group: str, wanted: Offsets
    ) -> CommitOutcome | BrokerError:
        where = f"cluster {self._cluster.alias}: group {group}"
        message = _alter_message(group, wanted)
        if not connection.knows(int(message.__api_key__), int(message.__version__)):
            return BrokerError(
                f"{where}: the brokers know no share groups; Kafka 4.1 or newer does"
            )
        answer = await connection.call(message, alter_response.AlterShareGroupOffsetsResponse)
        if answer.error_code == ErrorCode.non_empty_group:
            return GroupActive(f"{where} has members")
        if answer.error_code == ErrorCode.group_id_not_found:
            return BrokerError(
                f"{where} is no share group there, and was one on the other cluster; "
                "delete it, or leave it out with groups.exclude"
            )
        if answer.error_code != NONE:
            return self._error(group, answer, "READ")
        written: set[TopicPartition] = set()
        problems: dict[TopicPartition, BrokerError] = {}
        for topic in answer.responses:
            for partition in topic.partitions:
                at = _topic_partition(topic, partition)
                if partition.error_code == NONE:
                    written.add(at)
                    continue
                problems[at] = broker_error(
                    f"{where}, {at}",
                    int(partition.error_code),
                    partition.error_message,
                    permission=f"READ on topic {at.topic}",
                )
        return CommitOutcome(written=frozenset(written), problems=problems)

    def _error(self, group: str, row: Any, operation: str) -> BrokerError:
        return broker_error(
            f"cluster {self._cluster.alias}: group {group}",
            int(row.error_code),
            row.error_message,
            permission=f"{operation} on group {group}",
        )

    async def _pause(self, what: str) -> None:
        if monotonic_s() + _PAUSE_S >= self._deadline_s:
            raise BrokerUnreachable(f"cluster {self._cluster.alias}: no coordinator for {what}")
        await asyncio.sleep(_PAUSE_S)


def _alter_message(group: str, wanted: Offsets) -> alter_request.AlterShareGroupOffsetsRequest:
    by_topic: defaultdict[TopicName, dict[int, int]] = defaultdict(dict)
    for at, to in wanted.items():
        by_topic[at.topic][at.partition] = to.offset
    return alter_request.AlterShareGroupOffsetsRequest(
        group_id=group,  # type: ignore[arg-type]
        topics=tuple(
            alter_request.AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,  # type: ignore[arg-type]
                partitions=tuple(
                    alter_request.AlterShareGroupOffsetsRequestPartition(
                        partition_index=index,  # type: ignore[arg-type]
                        start_offset=offset,  # type: ignore[arg-type]
                    )
                    for index, offset in offsets.items()
                ),
            )
            for topic, offsets in by_topic.items()
        ),
    )


def _topic_partition(topic: Any, partition: Any) -> TopicPartition:
    return TopicPartition(
        topic=TopicName(topic.topic_name), partition=int(partition.partition_index)
    )


def _in_chunks(ids: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(ids)
    while chunk := list(islice(iterator, _ASKED_AT_ONCE_MAX)):
        yield chunk
