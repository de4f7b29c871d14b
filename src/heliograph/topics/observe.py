"""Look at clusters: topics, partitions, ids, settings. Does I/O; runs on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.blocking import blocking
from heliograph.broker.view import ClusterView, TopicSetting, TopicView
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.model import ClusterAlias, TopicName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Every cluster is in exactly one of the two."""

    views: Mapping[ClusterAlias, ClusterView]
    unseen: Mapping[ClusterAlias, BrokerError]
    """Clusters that could not be looked at, and why; flows between the others go on."""


async def observe(admins: Collection[ClusterAdmin]) -> Observation:
    """Look at all clusters at once; takes as long as the slowest, within its client's bound."""
    answers = await asyncio.gather(*(blocking(_look, admin) for admin in admins))
    return Observation(
        views={seen.alias: seen for seen in answers if isinstance(seen, ClusterView)},
        unseen={
            admin.alias: seen
            for admin, seen in zip(admins, answers, strict=True)
            if isinstance(seen, BrokerError)
        },
    )


def with_settings(
    admin: ClusterAdmin, view: ClusterView, names: Iterable[TopicName]
) -> ClusterView:
    """The view, with the settings of these topics filled in, or why they are not shown."""
    found = admin.topic_configs(name for name in names if name in view.topics)
    filled = {name: _filled(view.topics[name], settings) for name, settings in found.items()}
    return replace(view, topics={**view.topics, **filled})


def with_defaults(admin: ClusterAdmin, view: ClusterView) -> ClusterView:
    """The view, with what new topics get; unchanged where brokers do not show us their settings."""
    try:
        return replace(view, topic_defaults=admin.topic_defaults())
    except NotAuthorised:
        # Only remarks in a plan depend on it, and creating topics does not need this permission.
        return view


def held_records(
    admin: ClusterAdmin, view: ClusterView, names: Iterable[TopicName]
) -> Mapping[TopicName, int]:
    """Offsets between the first and the end of each topic; absent topics are left out."""
    partitions = [
        TopicPartition(topic=name, partition=partition.partition)
        for name in names
        if name in view.topics
        for partition in view.topics[name].partitions
    ]
    first = admin.list_offsets(partitions, "earliest")
    end = admin.list_offsets(partitions, "latest")
    held: dict[TopicName, int] = {}
    for partition in partitions:
        count = max(0, end.get(partition, 0) - first.get(partition, 0))
        held[partition.topic] = held.get(partition.topic, 0) + count
    return held


def _look(admin: ClusterAdmin) -> ClusterView | BrokerError:
    try:
        return admin.describe()
    except BrokerError as error:
        return error


def _filled(topic: TopicView, settings: Mapping[str, TopicSetting] | NotAuthorised) -> TopicView:
    if isinstance(settings, NotAuthorised):
        return replace(topic, settings_refused=str(settings))
    return replace(topic, settings=settings)
