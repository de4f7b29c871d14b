"""Names of client settings, Java's and librdkafka's, and which of them act. Runs anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Java name -> librdkafka name. What is in none of these tables has no equal in librdkafka, which
# refuses names it does not know where Java only warns.
_COMMON: Final = {
    "client.dns.lookup": "client.dns.lookup",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
}
_CONSUMER: Final = {
    "allow.auto.create.topics": "allow.auto.create.topics",
    "auto.commit.interval.ms": "auto.commit.interval.ms",
    "auto.offset.reset": "auto.offset.reset",
    "check.crcs": "check.crcs",
    "enable.auto.commit": "enable.auto.commit",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "fetch.min.bytes": "fetch.min.bytes",
    "group.id": "group.id",
    "group.instance.id": "group.instance.id",
    "heartbeat.interval.ms": "heartbeat.interval.ms",
    "isolation.level": "isolation.level",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "max.poll.interval.ms": "max.poll.interval.ms",
    "session.timeout.ms": "session.timeout.ms",
}
_PRODUCER: Final = {
    "acks": "acks",
    "batch.size": "batch.size",
    "buffer.memory": "queue.buffering.max.kbytes",
    "compression.type": "compression.type",
    "delivery.timeout.ms": "delivery.timeout.ms",
    "enable.idempotence": "enable.idempotence",
    "linger.ms": "linger.ms",
    "max.in.flight.requests.per.connection": "max.in.flight.requests.per.connection",
    "max.request.size": "message.max.bytes",
    "retries": "retries",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "transaction.timeout.ms": "transaction.timeout.ms",
    "transactional.id": "transactional.id",
}
LIBRDKAFKA_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "admin": _COMMON,
    "consumer": {**_COMMON, **_CONSUMER},
    "producer": {**_COMMON, **_PRODUCER},
}
"""By role."""

DECIDED_BY_SOURCE: Final = frozenset({"compression.type", "batch.size", "linger.ms"})
"""Settings of a producer that batches which travel unopened bring along."""

DECIDED_HERE: Final = frozenset(
    {
        "acks",
        "buffer.memory",
        "delivery.timeout.ms",
        "enable.idempotence",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "max.request.size",
        "retries",
    }
)
"""Settings of a producer that the way records are appended leaves no choice about."""

SHARED_BY_FLOWS: Final = frozenset(
    {"client.id", "request.timeout.ms", "receive.buffer.bytes", "send.buffer.bytes"}
)
"""Settings of a reading consumer that belong to connections, which flows of one source share."""
