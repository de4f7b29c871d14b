"""Streams and share groups on brokers that are old, away, silent or on the move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v4 import request as coordinator_request
from kio.schema.find_coordinator.v4 import response as coordinator_response
from kio.schema.list_groups.v5 import response as list_response

from heliograph.broker import typed_groups
from heliograph.broker.cluster import Cluster
from heliograph.broker.connection import Connection
from heliograph.broker.group_view import SHARE_METADATA, GroupOffset, GroupState
from heliograph.broker.typed_groups import TypedGroups
from heliograph.config.schema import ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable
from heliograph.model import ClusterAlias, TopicName, TopicPartition

Answers = Callable[[Any], Any]
MODERN: Final = {10: (0, 6), 16: (0, 5), 90: (0, 1), 91: (0, 0)}
OLD: Final = {10: (0, 4), 16: (0, 4)}
"""Of Kafka 3.7."""
AT: Final = TopicPartition(topic=TopicName("orders"), partition=0)


class Broker(Connection):
    def __init__(self, answers: Answers, versions: dict[int, tuple[int, int]] = MODERN) -> None:
        super().__init__("fake", versions)
        self._answers = answers

    async def call(
        self, message: Any, answer_type: type[Any], timeout_s: float | None = None
    ) -> Any:
        answer = self._answers(message)
        return await answer if asyncio.iscoroutine(answer) else answer


class Brokers(Cluster):
    """Brokers by number; one that is away is the error it answers with."""

    def __init__(self, known: Mapping[int, Broker | BrokerError]) -> None:
        super().__init__(ClusterAlias("A"), [], {})
        self._known = known

    @property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self._known)

    async def refresh(self, names: Iterable[TopicName]) -> None:
        """Known already."""

    async def connection(self, broker: int, purpose: str) -> Connection:
        found = self._known[broker]
        if isinstance(found, BrokerError):
            raise found
        return found

    async def ask_any(self, message: Any, answer_type: type[Any]) -> Any:
        return await (await self.connection(0, "control")).call(message, answer_type)


@pytest.fixture
def groups_of(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., TypedGroups]:
    def make(*known: Broker | BrokerError, timeout_s: float = 5.0) -> TypedGroups:
        brokers = dict(enumerate(known))
        monkeypatch.setattr(typed_groups, "open_cluster", lambda *_: Brokers(brokers))
        config = ClusterConfig(alias=ClusterAlias("A"), bootstrap_servers=("localhost:9092",))
        return TypedGroups(config, timeout_s=timeout_s)

    return make


def listing(*rows: tuple[str, str, str], error: ErrorCode = ErrorCode.none) -> Any:
    return list_response.ListGroupsResponse(
        throttle_time=timedelta(0),  # type: ignore[arg-type]
        error_code=error,
        groups=tuple(
            list_response.ListedGroup(
                group_id=group,  # type: ignore[arg-type]
                protocol_type=type,
                group_state=state,
                group_type=type,
            )
            for group, type, state in rows
        ),
    )


def coordinator(message: Any, error: ErrorCode) -> Any:
    return coordinator_response.FindCoordinatorResponse(
        throttle_time=timedelta(0),  # type: ignore[arg-type]
        coordinators=tuple(
            coordinator_response.Coordinator(
                key=key,
                node_id=0 if error is ErrorCode.none else -1,  # type: ignore[arg-type]
                host="",
                port=0,  # type: ignore[arg-type]
                error_code=error,
                error_message=None,
            )
            for key in message.coordinator_keys
        ),
    )


def test_brokers_that_know_no_such_types_have_no_such_groups(
    groups_of: Callable[..., TypedGroups],
) -> None:
    groups = groups_of(Broker(lambda message: coordinator(message, ErrorCode.none), OLD))

    outcome = groups.alter_each({"g": {AT: GroupOffset(offset=1, metadata=SHARE_METADATA)}})["g"]

    assert groups.views() == {}
    assert groups.start_offsets_each(["g"]) == {"g": {}}
    assert isinstance(outcome, BrokerError)
    assert "cluster A: group g: the brokers know no share groups; Kafka 4.1 or newer" in str(
        outcome
    )


def test_a_broker_that_is_away_keeps_only_its_own_groups_from_the_list(
    groups_of: Callable[..., TypedGroups],
) -> None:
    rows = [("s", "share", "Stable"), ("t", "streams", "NotReady"), ("u", "share", "Later")]
    there, away = Broker(lambda _: listing(*rows)), BrokerUnreachable("broker 1 is away")

    found = groups_of(there, away).views()

    assert {id: (view.type, view.state) for id, view in found.items()} == {
        "s": ("share", GroupState.STABLE),
        "t": ("streams", GroupState.REBALANCING),
        "u": ("share", GroupState.UNKNOWN),
    }
    assert not any(view.is_idle for view in found.values())
    with pytest.raises(BrokerUnreachable, match="broker 1 is away"):
        groups_of(away).views()


def test_a_coordinator_that_loads_is_asked_again(groups_of: Callable[..., TypedGroups]) -> None:
    loading, none = ErrorCode.coordinator_load_in_progress, ErrorCode.none
    lists = iter([listing(error=loading), listing(("s", "share", "Empty"))])
    looks = iter([loading, none, none])

    def answer(message: Any) -> Any:
        if isinstance(message, coordinator_request.FindCoordinatorRequest):
            return coordinator(message, next(looks))
        return next(lists)

    groups = groups_of(Broker(answer, {**MODERN, 90: (5, 5)}))

    assert set(groups.views()) == {"s"}
    assert groups.start_offsets_each(["g"]) == {"g": {}}
    assert list(looks) == [none]


def test_a_cluster_that_says_nothing_is_given_up_in_time(
    groups_of: Callable[..., TypedGroups],
) -> None:
    async def never() -> None:
        await asyncio.sleep(60)

    silent = groups_of(Broker(lambda _: never()), timeout_s=0.2)

    with pytest.raises(BrokerUnreachable, match=r"cluster A: no answer within 0\.2 s"):
        silent.views()


def test_a_coordinator_that_does_not_come_is_given_up_in_time(
    groups_of: Callable[..., TypedGroups],
) -> None:
    absent = ErrorCode.coordinator_not_available
    groups = groups_of(Broker(lambda message: coordinator(message, absent)), timeout_s=0.3)

    with pytest.raises(BrokerUnreachable, match="cluster A: no coordinator for group g"):
        groups.start_offsets_each(["g"])
