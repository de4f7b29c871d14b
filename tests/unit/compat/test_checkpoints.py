"""What the job of checkpoints keeps for metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph.broker.clients import Clients
from heliograph.compat.checkpoints import CheckpointsJob
from heliograph.compat.internal_topics import InternalTopic
from heliograph.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, BrokerUnreachable
from heliograph.groups.checkpoint_plan import GroupOffsetPair
from heliograph.groups.follower import GroupFollower, GroupLook
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition

A, B = ClusterAlias("A"), ClusterAlias("B")
FLOW = FlowConfig(id=FlowId(source=A, target=B), enabled=True)


def place(group: str) -> GroupOffsetPair:
    source, target = (
        TopicPartition(topic=TopicName(name), partition=0) for name in ("orders", "A.orders")
    )
    return GroupOffsetPair(
        group=group, source=source, target=target, source_offset=5, target_offset=5
    )


def test_the_latency_of_a_group_that_is_followed_no_longer_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(InternalTopic, "ensure", lambda _: None)
    monkeypatch.setattr(InternalTopic, "write", lambda *_: None)
    config = MirrorConfig(
        clusters={
            alias: ClusterConfig(alias=alias, bootstrap_servers=("127.0.0.1:1",))
            for alias in (A, B)
        },
        pairs=(FLOW,),
    )
    looks: list[tuple[tuple[str, ...], dict[str, BrokerError]]] = [
        (("billing", "console-1", "slow"), {}),
        (("billing",), {"slow": BrokerUnreachable("no answer")}),
    ]
    clients = Quiet(config)

    class Follower(GroupFollower):
        def load(self) -> None: ...

        def look(self) -> GroupLook:
            groups, problems = looks.pop(0)
            return GroupLook(at_ms=1, locations=tuple(map(place, groups)), problems=problems)

    job = CheckpointsJob(Follower(FLOW, clients, cast(Any, None)))

    job.step()
    first = {group for group, _ in job.latency_ms}
    with pytest.raises(BrokerError):
        job.step()

    assert first == {"billing", "console-1", "slow"}
    assert {group for group, _ in job.latency_ms} == {"billing", "slow"}


class Quiet(Clients):
    """Of clusters that are not there."""

    def admin(self, cluster: ClusterConfig) -> Any:
        return SimpleNamespace(list_offsets=lambda *_: {})
