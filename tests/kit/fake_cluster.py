"""A cluster of one broker in memory: `Cluster` itself, over a connection that answers the protocol.

Requests and answers are Kafka's bytes, so that all of `broker` and `ledger.store` runs as it is.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kio.serial import entity_reader, entity_writer

from heliograph.broker.cluster import Cluster
from heliograph.broker.connection import Answer, Connection, OnAnswer
from heliograph.errors import BrokerError
from heliograph.model import ClusterAlias
from heliograph.wire.fetch import FETCH_KEY
from heliograph.wire.produce import PRODUCE_KEY, PRODUCE_VERSION_MAX
from tests.kit.fake_brokers import APIS, FIRST_BROKER, FakeBrokers, messages
from tests.kit.fake_frames import (
    fetch_answer,
    parse_fetch_request,
    parse_produce_request,
    produce_answer,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and the topics it names."""

    name: str
    topics: frozenset[str]


class FakeCluster(Cluster, FakeBrokers):
    """`before` is called with every request, before it is answered: a race is a function that
    changes the cluster there, and a broken link one that raises `BrokerError`."""

    def __init__(self, alias: str = "B") -> None:
        Cluster.__init__(self, ClusterAlias(alias), ["fake:9092"], {})
        FakeBrokers.__init__(self)
        self.asked: list[Asked] = []
        self.before: Callable[[Asked], None] = lambda _: None
        self._brokers = {FIRST_BROKER: ("fake", 9092)}

    async def connection(self, broker: int, purpose: str) -> Connection:
        return _FakeConnection(self)

    def answer(self, api_key: int, body: bytes) -> bytes:
        if api_key == PRODUCE_KEY:
            rows = parse_produce_request(body, PRODUCE_VERSION_MAX)
            self._note(api_key, [str(topic) for topic, _, _ in rows])
            return produce_answer(self.produce(rows))
        if api_key == FETCH_KEY:
            asked = parse_fetch_request(body)
            self._note(api_key, [self._names.get(topic) for topic, _ in asked.wanted])
            return fetch_answer(self.fetch(asked, asked.wanted))
        name = APIS[api_key].partition(".")[0]
        message = "".join(word.capitalize() for word in name.split("_"))
        asked_type = getattr(messages(api_key, "request"), f"{message}Request")
        request = entity_reader(asked_type)(body, 0)[0]
        rows_named: Any = getattr(request, "topics", None) or ()
        self._note(
            api_key,
            [getattr(row, "name", None) or getattr(row, "topic", None) for row in rows_named],
        )
        answer = self.respond(api_key, request)
        out = io.BytesIO()
        entity_writer(type(answer))(out, answer)
        return out.getvalue()

    def _note(self, api_key: int, topics: Sequence[str | None]) -> None:
        name = APIS[api_key].partition(".")[0]
        self.asked.append(Asked(name, frozenset(topic for topic in topics if topic)))
        self.before(self.asked[-1])


class _FakeConnection(Connection):
    """Answers at once, in the order of the requests."""

    def __init__(self, cluster: FakeCluster) -> None:
        versions = {key: int(api.rpartition(".v")[2]) for key, api in APIS.items()}
        super().__init__("fake", {key: (newest, newest) for key, newest in versions.items()})
        self._cluster = cluster

    def send(
        self,
        api_key: int,
        version: int,
        parts: Sequence[bytes | bytearray | memoryview],
        on_answer: OnAnswer,
    ) -> None:
        answer: Answer
        try:
            answer = memoryview(self._cluster.answer(api_key, b"".join(parts)))
        except BrokerError as exc:
            answer = exc
        on_answer(answer)
