"""Who is in the group of a Kafka Connect cluster. Runs on the driver.

Connect's workers find each other through a group of another type than consumers have, which client
libraries refuse to describe.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kio.schema.describe_groups.v5 import request as describe_request
from kio.schema.describe_groups.v5 import response as describe_response
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import request as find_request
from kio.schema.find_coordinator.v4 import response as find_response

from heliograph.broker.codes import NONE, broker_error
from heliograph.broker.connection import open_connection
from heliograph.clock import monotonic_s
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable, NotAuthorised

_TRY_S_MAX: Final = 30.0
_PAUSE_S: Final = 0.2
_NOT_ALLOWED: Final = ErrorCode.group_authorization_failed


async def connect_members(cluster: ClusterConfig, group: str) -> tuple[str, ...]:
    """Client id and host of each worker; nothing where there is no group. Raises `BrokerError`."""
    deadline_s = monotonic_s() + _TRY_S_MAX
    while True:
        try:
            return await _described(cluster, group)
        except BrokerError as exc:
            # Coordinators move, and a fresh cluster has none until a client asks for it.
            if not exc.retriable or monotonic_s() >= deadline_s:
                raise
        await asyncio.sleep(_PAUSE_S)


async def _described(cluster: ClusterConfig, group: str) -> tuple[str, ...]:
    host, port = await _coordinator(cluster, group)
    message = describe_request.DescribeGroupsRequest(
        groups=(group,),  # type: ignore[arg-type]
        include_authorized_operations=False,
    )
    answer = await _ask(cluster, host, port, message, describe_response.DescribeGroupsResponse)
    (found,) = answer.groups
    if found.error_code != NONE:
        raise _refused(cluster, group, int(found.error_code))
    return tuple(sorted(f"{each.client_id} at {each.client_host}" for each in found.members))


async def _coordinator(cluster: ClusterConfig, group: str) -> tuple[str, int]:
    message = find_request.FindCoordinatorRequest(coordinator_keys=(group,))
    problem: BrokerError | None = None
    for server in cluster.bootstrap_servers:
        host, _, port = server.rpartition("://")[2].rpartition(":")
        try:
            answer = await _ask(
                cluster,
                host.strip("[]"),
                int(port),
                message,
                find_response.FindCoordinatorResponse,
            )
        except BrokerUnreachable as exc:
            problem = exc
            continue
        (found,) = answer.coordinators
        if found.error_code != NONE:
            raise _refused(cluster, group, int(found.error_code))
        return found.host, int(found.port)
    raise problem or BrokerUnreachable(f"cluster {cluster.alias}: no broker answers")


async def _ask(
    cluster: ClusterConfig, host: str, port: int, message: Any, answer_type: type[Any]
) -> Any:
    settings = aiokafka_settings(cluster, "admin")
    connection = await open_connection(host, port, settings, cluster=cluster.alias)
    try:
        return await connection.call(message, answer_type)
    finally:
        connection.close()


def _refused(cluster: ClusterConfig, group: str, code: int) -> BrokerError:
    if code == _NOT_ALLOWED:
        return NotAuthorised(
            f"cluster {cluster.alias}: missing permission DESCRIBE on group {group}"
        )
    return broker_error(f"cluster {cluster.alias}: group {group}", code)
