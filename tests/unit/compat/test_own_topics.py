from __future__ import annotations

from heliograph.compat.own_topics import own_topics
from heliograph.config.schema import FlowConfig
from heliograph.model import ClusterAlias, FlowId

FLOW = FlowConfig(id=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")), enabled=True)


def test_own_topics_can_be_put_into_a_set() -> None:
    """`heliograph doctor` does: several flows have some of them in common."""
    assert len({*own_topics(FLOW), *own_topics(FLOW)}) == len(list(own_topics(FLOW))) > 0
