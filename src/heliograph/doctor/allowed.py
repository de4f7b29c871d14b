"""Ask brokers what each client may do, without doing it (KIP-430). Does I/O; runs on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kio.schema.describe_cluster.v0 import request as cluster_request
from kio.schema.describe_cluster.v0 import response as cluster_response
from kio.schema.describe_groups.v5 import request as groups_request
from kio.schema.describe_groups.v5 import response as groups_response
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import request as coordinator_request
from kio.schema.find_coordinator.v4 import response as coordinator_response
from kio.schema.metadata.v12 import request as metadata_request
from kio.schema.metadata.v12 import response as metadata_response

from heliograph.broker.admin_errors import ErrorLog
from heliograph.broker.blocking import blocking
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.broker.codes import NONE
from heliograph.config.clients import confluent_settings
from heliograph.config.schema import ClientRole, ClusterConfig
from heliograph.doctor.facts import Untold
from heliograph.doctor.permissions import Allowed, Kind, Need
from heliograph.errors import MirrorError, NotAuthorised

_NOT_TOLD: Final = -(2**31)
_REFUSED: Final = frozenset(
    {
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
    }
)
_NOT_THERE: Final = Untold(
    why="the topic is not there yet, and brokers tell what is allowed of topics that are"
)
_NOTHING: Final = 0
_QUIET: Final = 2

Bits = dict[tuple[Kind, str], int | Untold]


async def ask_allowed(
    config: ClusterConfig, role: ClientRole, needs: Sequence[Need], *, answer_s_max: float
) -> Allowed | Untold:
    """What this client may do to all that `needs` names; the whole is `Untold` where it cannot
    connect."""
    cluster = open_cluster(config, role)
    try:
        async with asyncio.timeout(3 * answer_s_max):
            await cluster.refresh([])
            bits: Bits = {}
            bits |= await _topics(cluster, _names(needs, "topic"))
            bits |= await _groups(cluster, _names(needs, "group"))
            if any(need.kind == "cluster" for need in needs):
                bits["cluster", ""] = await _cluster(cluster)
    except TimeoutError:
        return Untold(why="no answer in time")
    except MirrorError as exc:
        return Untold(why=str(exc))
    finally:
        cluster.close()
    return Allowed(bits=bits, creatable=await _creatable(config, role, needs, bits, answer_s_max))


def _names(needs: Iterable[Need], kind: Kind) -> list[str]:
    return list(dict.fromkeys(need.name for need in needs if need.kind == kind))


async def _topics(cluster: Cluster, names: list[str]) -> Bits:
    if not names:
        return {}
    message = metadata_request.MetadataRequest(
        topics=tuple(
            metadata_request.MetadataRequestTopic(topic_id=None, name=name)  # type: ignore[arg-type]
            for name in names
        ),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    answer = await cluster.ask_any(message, metadata_response.MetadataResponse)
    found: Bits = {}
    for row in answer.topics:
        if row.error_code in _REFUSED:
            found["topic", row.name] = _NOTHING
        elif row.error_code != NONE:
            found["topic", row.name] = _NOT_THERE
        else:
            found["topic", row.name] = _bits(row.topic_authorized_operations)
    return found


async def _groups(cluster: Cluster, names: list[str]) -> Bits:
    """Each is asked of its coordinator."""
    found: Bits = {}
    if not names:
        return found
    message = coordinator_request.FindCoordinatorRequest(
        key_type=0,  # type: ignore[arg-type]
        coordinator_keys=tuple(names),
    )
    answer = await cluster.ask_any(message, coordinator_response.FindCoordinatorResponse)
    by_broker: dict[int, list[str]] = {}
    for row in answer.coordinators:
        if row.error_code in _REFUSED:
            found["group", row.key] = _NOTHING
        elif row.error_code != NONE:
            found["group", row.key] = Untold(why="its coordinator is not available")
        else:
            by_broker.setdefault(int(row.node_id), []).append(row.key)
    for broker, ids in by_broker.items():
        connection = await cluster.connection(broker, "control")
        described = await connection.call(
            groups_request.DescribeGroupsRequest(
                groups=tuple(ids),  # type: ignore[arg-type]
                include_authorized_operations=True,
            ),
            groups_response.DescribeGroupsResponse,
        )
        for row in described.groups:
            refused = row.error_code in _REFUSED
            bits: int | Untold = _NOTHING if refused else _bits(row.authorized_operations)
            found["group", row.group_id] = bits
    return found


async def _cluster(cluster: Cluster) -> int | Untold:
    message = cluster_request.DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await cluster.ask_any(message, cluster_response.DescribeClusterResponse)
    if answer.error_code != NONE:
        return _NOTHING
    return _bits(answer.cluster_authorized_operations)


def _bits(told: Any) -> int | Untold:
    bits = int(told)
    return Untold(why="the broker does not say what is allowed") if bits == _NOT_TOLD else bits


async def _creatable(
    config: ClusterConfig, role: ClientRole, needs: Sequence[Need], bits: Bits, answer_s_max: float
) -> dict[str, bool]:
    """Of topics that are not there: asked for with `validate_only`, which creates nothing.

    A topic that is hidden from the client may be there; whether it may be created is told as well.
    What else such a topic will allow is not told before it is there.
    """
    wanted = [
        need.name
        for need in needs
        if need.operation == "CREATE" and not _is_there(bits.get(("topic", need.name)))
    ]
    if not wanted:
        return {}
    try:
        return await blocking(_may_create, config, role, wanted, answer_s_max)
    except MirrorError:
        return {}  # stays unknown, as the broker has said


def _is_there(bits: int | Untold | None) -> bool:
    return isinstance(bits, int) and bits != _NOTHING


def _may_create(
    config: ClusterConfig, role: ClientRole, names: list[str], answer_s_max: float
) -> dict[str, bool]:
    errors = ErrorLog(alias=config.alias)
    settings = {**confluent_settings(config, role), "log_level": _QUIET, "error_cb": errors.note}
    client = errors.opened(AdminClient, settings)
    new = [NewTopic(name, num_partitions=1, replication_factor=1) for name in names]
    answers = client.create_topics(new, validate_only=True, request_timeout=answer_s_max)
    may: dict[str, bool] = {}
    for name, answer in answers.items():
        try:
            answer.result(answer_s_max)
            may[name] = True
        except KafkaException as exc:
            # Any other refusal comes after the authorizer let it through.
            may[name] = not isinstance(errors.translated(exc, "CREATE"), NotAuthorised)
        except TimeoutError:
            continue
    return may
