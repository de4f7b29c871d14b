"""Topics that a flow should have and that its source does not show. Runs on the driver."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.view import ClusterView
from heliograph.config.schema import FlowConfig
from heliograph.errors import NotAuthorised
from heliograph.model import TopicName
from heliograph.topics.naming import HEARTBEATS, canary_topic, source_alias


def hidden_topics(
    admin: ClusterAdmin, known: Collection[str], source: ClusterView
) -> Mapping[TopicName, NotAuthorised]:
    """Of topics asked for by name, or mirrored until now, those that the source does not let us
    see. Blocks.

    A list of all topics leaves them out without a word; asked by name, a broker says so.
    """
    asked = [TopicName(name) for name in known if name not in source.topics]
    found = admin.describe_each(asked) if asked else {}
    return {name: why for name, why in found.items() if isinstance(why, NotAuthorised)}


def expects_own_topics(flow: FlowConfig, pairs: Iterable[FlowConfig], source: ClusterView) -> bool:
    """Whether a job of this very run is about to create heartbeats or canaries on the source."""
    if flow.canary.enabled and canary_topic(source_alias(flow)) not in source.topics:
        return True
    return (
        HEARTBEATS not in source.topics
        and flow.heartbeats.replicated
        and any(pair.heartbeats.enabled and pair.id.target == flow.id.source for pair in pairs)
    )
