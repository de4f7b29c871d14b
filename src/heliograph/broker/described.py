"""Settings as a broker describes them, in the protocol's own words. Runs anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kio.schema.describe_configs.v4 import request as configs_request
from kio.schema.describe_configs.v4 import response as configs_response

from heliograph.broker.cluster import Cluster
from heliograph.broker.codes import NONE, broker_error
from heliograph.model import TopicPartition

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CONFIGS_ANSWER: Final = configs_response.DescribeConfigsResponse


def configs_question(kind: int, names: Iterable[str], keys: tuple[str, ...]) -> Any:
    return configs_request.DescribeConfigsRequest(
        resources=tuple(
            configs_request.DescribeConfigsResource(
                resource_type=kind,  # type: ignore[arg-type]
                resource_name=name,
                configuration_keys=keys,
            )
            for name in names
        )
    )


def configs_told(found: Any) -> dict[str, str]:
    return {c.name: c.value for c in found.configs if c.value is not None}


async def setting_at(cluster: Cluster, at: TopicPartition, key: str) -> str | None:
    """A setting of the topic as the partition's leader has it, its own defaults included; None
    where that broker has none of the name. Raises `MirrorError`."""
    leader = cluster.leader(at)
    if leader is None:
        raise cluster.no_leader_error(at)
    connection = await cluster.connection(leader.broker, "control")
    message = configs_question(TOPIC_RESOURCE, [at.topic], (key,))
    (found,) = (await connection.call(message, CONFIGS_ANSWER)).results
    if found.error_code != NONE:
        where = f"cluster {cluster.alias}: settings of topic {at.topic}"
        permission = f"DESCRIBE_CONFIGS on topic {at.topic}"
        raise broker_error(where, int(found.error_code), permission=permission)
    return configs_told(found).get(key)
