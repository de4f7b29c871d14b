"""Short ways to say what a cluster looks like and what a flow wants. For tests of plans."""

from __future__ import annotations

from typing import Any

from heliograph.broker.view import (
    ClusterView,
    ConfigOrigin,
    PartitionView,
    TopicSetting,
    TopicView,
)
from heliograph.config.schema import FlowConfig, NamingPolicyConfig
from heliograph.model import ClusterAlias, FlowId, TopicId, TopicName

SOURCE, TARGET = ClusterAlias("source"), ClusterAlias("target")
FLOW_ID = FlowId(source=SOURCE, target=TARGET)


def flow_with(policy: str = "DefaultReplicationPolicy", **fields: Any) -> FlowConfig:
    separator = fields.pop("separator", ".")
    naming = NamingPolicyConfig(class_path=policy, separator=separator)
    return FlowConfig(id=FLOW_ID, enabled=True, policy=naming, **fields)


def setting(
    name: str,
    value: str | None,
    origin: ConfigOrigin = ConfigOrigin.TOPIC,
    *,
    read_only: bool = False,
    sensitive: bool = False,
) -> TopicSetting:
    return TopicSetting(
        name=name, value=value, origin=origin, read_only=read_only, sensitive=sensitive
    )


def topic(
    name: str, partitions: int = 1, *settings: TopicSetting, topic_id: str | None = None
) -> TopicView:
    return TopicView(
        name=TopicName(name),
        id=None if topic_id is None else TopicId(topic_id),
        partitions=tuple(PartitionView(partition=p, leader=1) for p in range(partitions)),
        settings={found.name: found for found in settings},
    )


def cluster(
    alias: ClusterAlias,
    *topics: TopicView,
    broker_count: int = 3,
    topic_defaults: dict[str, str] | None = None,
) -> ClusterView:
    return ClusterView(
        alias=alias,
        cluster_id=f"id-of-{alias}",
        broker_count=broker_count,
        topics={found.name: found for found in topics},
        topic_defaults=topic_defaults,
    )
