from __future__ import annotations

from dataclasses import replace
from typing import Any

from heliograph.broker.view import ClusterView, TopicView
from heliograph.config.schema import FlowConfig
from heliograph.driver.unseen import expects_own_topics, hidden_topics
from heliograph.errors import LeaderMoved, NotAuthorised
from heliograph.model import ClusterAlias, FlowId, TopicName

A, B = ClusterAlias("A"), ClusterAlias("B")
FLOW = FlowConfig(id=FlowId(source=A, target=B), enabled=True)
BACK = FlowConfig(id=FlowId(source=B, target=A), enabled=False)
EMPTY = ClusterView(alias=A, cluster_id=None, broker_count=1, topics={})


def view_of(*names: str) -> ClusterView:
    topics = (TopicView(name=TopicName(name), id=None, partitions=()) for name in names)
    return replace(EMPTY, topics={topic.name: topic for topic in topics})


def test_heartbeats_that_this_run_creates_are_expected() -> None:
    """The next refresh, ten minutes later, would leave `heliograph topology` without any."""
    assert expects_own_topics(FLOW, (FLOW, BACK), EMPTY)
    assert not expects_own_topics(FLOW, (FLOW, BACK), view_of("heartbeats"))
    assert not expects_own_topics(FLOW, (FLOW,), EMPTY)


def test_a_canary_that_this_run_sends_is_expected() -> None:
    canary = FLOW.canary.model_copy(update={"enabled": True})
    flow = FLOW.model_copy(update={"canary": canary})

    assert expects_own_topics(flow, (flow,), view_of("heartbeats"))
    assert not expects_own_topics(flow, (flow,), view_of("heartbeats", "heliograph-canary-A"))


class _Admin:
    def __init__(self) -> None:
        self.asked: list[TopicName] = []

    def describe_each(self, names: list[TopicName]) -> dict[TopicName, object]:
        self.asked = sorted(names)
        answers: list[object] = [NotAuthorised("no"), LeaderMoved("later")]
        return dict(zip(self.asked, answers, strict=True))


def test_a_topic_is_hidden_where_the_broker_says_that_it_may_not_be_seen() -> None:
    admin: Any = _Admin()

    found = hidden_topics(admin, {"orders", "payments", "seen"}, view_of("seen"))

    assert admin.asked == ["orders", "payments"]
    assert list(found) == ["orders"]
    assert not hidden_topics(admin, {"seen"}, view_of("seen"))
