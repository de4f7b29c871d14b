"""Write a heartbeat to the target of each pair of clusters. Runs on the driver.

The heartbeat of `A->B` is written to B. Whether `B->A` works is seen on A: B's `heartbeats` topic
is mirrored like any other, so the time on the newest record that arrives there says how far A is
behind.
"""

from __future__ import annotations

from typing import Final

from heliograph.broker.clients import Clients
from heliograph.broker.records import Record
from heliograph.clock import now_ms
from heliograph.compat.internal_topics import InternalTopic
from heliograph.compat.own_topics import heartbeats_of
from heliograph.config.schema import FlowConfig
from heliograph.model import FlowId
from heliograph.topics.naming import source_alias, target_alias
from heliograph.wire.mirror_records import Heartbeat, encode_heartbeat


class HeartbeatsJob:
    what: Final = "heartbeats"

    def __init__(self, flow: FlowConfig, clients: Clients) -> None:
        self.flow: Final[FlowId] = flow.id
        self.interval_s: Final[float] = flow.heartbeats.interval_s
        self._source = source_alias(flow)
        self._target = target_alias(flow)
        self._topic = InternalTopic(clients, clients.target(flow.id), heartbeats_of(flow))

    def step(self) -> None:
        self._topic.ensure()
        at_ms = now_ms()
        key, value = encode_heartbeat(
            Heartbeat(source=self._source, target=self._target, timestamp_ms=at_ms)
        )
        self._topic.write([Record(key=key, value=value, timestamp_ms=at_ms)])
