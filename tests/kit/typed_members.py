"""Members of streams and share groups, as frames that a broker takes for them; no client needed."""

from __future__ import annotations

import asyncio
import datetime
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import request as coordinator_request
from kio.schema.find_coordinator.v4 import response as coordinator_response
from kio.schema.share_group_heartbeat.v1 import request as share_request
from kio.schema.share_group_heartbeat.v1 import response as share_response
from kio.schema.streams_group_heartbeat.v0 import request as streams_request
from kio.schema.streams_group_heartbeat.v0 import response as streams_response

from heliograph.broker.connection import open_connection
from heliograph.broker.group_view import SHARE_METADATA, GroupOffset
from heliograph.broker.groups import GroupAdmin
from heliograph.model import TopicName, TopicPartition
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.topics import wait_until

_JOIN: Final = 0
_LEAVE: Final = -1
_NOT_YET: Final = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
)


class Refused(Exception):
    """The broker did not let the member in."""


def share_start(offset: int) -> GroupOffset:
    """What a share group has instead of a committed offset."""
    return GroupOffset(offset=offset, metadata=SHARE_METADATA)


def place_share(groups: GroupAdmin, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Set start offsets; a coordinator hears of a new topic a moment after it is there."""
    wanted = {
        TopicPartition(topic=TopicName(topic), partition=number): share_start(offset)
        for number, offset in offsets.items()
    }
    wait_until(
        lambda: groups.commit(group, wanted).written == wanted.keys(), f"start offsets of {group}"
    )


@contextmanager
def share_member(cluster: LocalCluster, group: str, topic: str) -> Iterator[None]:
    """A member that has joined and fetches nothing; it leaves when the block ends."""

    def beat(member: str, epoch: int) -> Any:
        return share_request.ShareGroupHeartbeatRequest(
            group_id=group,  # type: ignore[arg-type]
            member_id=member,
            member_epoch=epoch,  # type: ignore[arg-type]
            subscribed_topic_names=(topic,) if epoch == _JOIN else None,  # type: ignore[arg-type]
        )

    with _joined(cluster, beat, share_response.ShareGroupHeartbeatResponse):
        yield


@contextmanager
def streams_member(cluster: LocalCluster, group: str, topic: str) -> Iterator[None]:
    """A member with a topology that only reads `topic`; it leaves when the block ends."""
    topology = streams_request.Topology(
        epoch=0,  # type: ignore[arg-type]
        subtopologies=(
            streams_request.Subtopology(
                subtopology_id="0",
                source_topics=(topic,),  # type: ignore[arg-type]
                state_changelog_topics=(),
                repartition_source_topics=(),
                copartition_groups=(),
            ),
        ),
    )

    def beat(member: str, epoch: int) -> Any:
        tasks: Any = () if epoch == _JOIN else None
        patience = datetime.timedelta(seconds=30 if epoch == _JOIN else -0.001)
        return streams_request.StreamsGroupHeartbeatRequest(
            group_id=group,  # type: ignore[arg-type]
            member_id=member,
            member_epoch=epoch,  # type: ignore[arg-type]
            endpoint_information_epoch=0,  # type: ignore[arg-type]
            rebalance_timeout=patience,  # type: ignore[arg-type]
            topology=topology if epoch == _JOIN else None,
            active_tasks=tasks,
            standby_tasks=tasks,
            warmup_tasks=tasks,
            process_id=member if epoch == _JOIN else None,
            client_tags=tasks,
            task_offsets=None,
            task_end_offsets=None,
        )

    with _joined(cluster, beat, streams_response.StreamsGroupHeartbeatResponse):
        yield


@contextmanager
def _joined(
    cluster: LocalCluster, beat: Callable[[str, int], Any], answer_type: type[Any]
) -> Iterator[None]:
    member = str(uuid.uuid4())

    def said(epoch: int) -> Any:
        return asyncio.run(_asked(cluster, beat(member, epoch), answer_type))

    def is_in() -> bool:
        answer = said(_JOIN)
        if answer.error_code in _NOT_YET:
            # A fresh cluster has no coordinators until somebody looks for one.
            look = coordinator_request.FindCoordinatorRequest(coordinator_keys=(member,))
            asyncio.run(_asked(cluster, look, coordinator_response.FindCoordinatorResponse))
            return False
        if answer.error_code != ErrorCode.none:
            raise Refused(f"{answer.error_code.name}: {answer.error_message}")
        return True

    wait_until(is_in, f"a member joined on {cluster.alias}")
    try:
        yield
    finally:
        said(_LEAVE)


async def _asked(cluster: LocalCluster, message: Any, answer_type: type[Any]) -> Any:
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    connection = await open_connection(host, int(port), {}, cluster=cluster.alias)
    try:
        return await connection.call(message, answer_type)
    finally:
        connection.close()
