"""Policies and filters as an operator might write them, good and bad, for tests."""

from __future__ import annotations

from typing import Any

from heliograph.config.schema import FlowConfig
from heliograph.model import ClusterAlias, TopicName
from heliograph.topics.naming import DefaultReplicationPolicy

NOT_A_CLASS = 5


class Suffixed(DefaultReplicationPolicy):
    """`orders` becomes `orders-from-eu`: the shortest policy of one's own."""

    def target_topic(self, topic: TopicName) -> TopicName:
        return TopicName(f"{topic}-from-{self.source}")

    def topic_source(self, topic: TopicName) -> ClusterAlias | None:
        _, found, source = topic.rpartition("-from-")
        return ClusterAlias(source) if found else None

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        return TopicName(topic.rpartition("-from-")[0]) or None


class Lowering(DefaultReplicationPolicy):
    """Not injective: `Orders` and `orders` become one."""

    def target_topic(self, topic: TopicName) -> TopicName:
        return TopicName(f"{self.source}.{topic.lower()}")


class Growing(DefaultReplicationPolicy):
    """Walking upstream would not end."""

    def upstream_topic(self, topic: TopicName) -> TopicName | None:
        return TopicName(f"{topic}x")


class Faulty(DefaultReplicationPolicy):
    """Raises, or answers nonsense, on some names."""

    def target_topic(self, topic: TopicName) -> TopicName:
        answers: dict[str, Any] = {
            "number": 5,
            "blank": "a b",
            "brokers": "__consumer_offsets",
            "ledger": "heliograph-ledger.x.internal",
        }
        if topic == "raising":
            raise KeyError("no such name")
        answer: TopicName = answers.get(topic, DefaultReplicationPolicy.target_topic(self, topic))
        return answer

    def is_internal(self, topic: TopicName) -> bool:
        if topic == "vague":
            return "maybe"  # type: ignore[return-value]
        return DefaultReplicationPolicy.is_internal(self, topic)


class NoArguments(DefaultReplicationPolicy):
    def __init__(self) -> None:
        raise AssertionError("never reached: it takes no arguments")


class HalfAPolicy:
    def target_topic(self, topic: TopicName) -> TopicName:
        return topic


class EndsIn:
    """Every shape of filter at once: names that end in what the flow's first pattern says."""

    def __init__(self, flow: FlowConfig) -> None:
        self.end = flow.topics[0]

    def should_mirror(self, name: str) -> bool:
        return name.endswith(self.end)

    def should_follow(self, group: str) -> bool:
        return group.endswith(self.end)

    def should_copy(self, name: str) -> bool:
        return name.endswith(self.end)


class Raising:
    def __init__(self, flow: FlowConfig) -> None:
        self.flow = flow

    def should_mirror(self, name: str) -> bool:
        if name == "raising":
            raise RuntimeError("cannot say")
        return True

    def should_follow(self, group: str) -> bool:
        raise RuntimeError("cannot say")

    def should_copy(self, name: str) -> bool:
        return 1  # type: ignore[return-value]


class Unmakeable:
    def __init__(self, flow: FlowConfig) -> None:
        raise ValueError(f"{flow.id} is not for me")

    def should_mirror(self, name: str) -> bool:
        return True
