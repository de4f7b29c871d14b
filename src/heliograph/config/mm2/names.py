"""Names of keys that fill no field of their own: security, old spellings. Runs anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from heliograph.config.mm2.inert import JAVA_ONLY_SECURITY

SECURITY_KEYS: Final = JAVA_ONLY_SECURITY | frozenset(
    [
        "security.protocol",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
        "sasl.jaas.config",
        "sasl.kerberos.service.name",
        "sasl.login.callback.handler.class",
        "sasl.mechanism",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
    ]
)
"""TLS and SASL: those that `tls.java_security` reads, and those of Java alone."""


RENAMED: Final = {
    "topics.blacklist": "topics.exclude",
    "groups.blacklist": "groups.exclude",
    "config.properties.blacklist": "config.properties.exclude",
}
"""Spellings that Kafka 4.0 removed; files of older MirrorMakers have them and mean them."""

REMOVED: Final = {
    "use.incremental.alter.configs": "was removed in Kafka 4.0; incremental alter is always used",
    "add.source.alias.to.metrics": "was removed in Kafka 4.0; metrics always have the alias",
    "emit.heartbeats": "was in older manuals, without effect; write `emit.heartbeats.enabled`",
    "emit.checkpoints": "was in older manuals, without effect; write `emit.checkpoints.enabled`",
    "readahead.queue.capacity": "was in KIP-382 but never in MirrorMaker 2; does nothing",
    "heartbeats.topic.retention.ms": "was in KIP-382 but never in MirrorMaker 2; does nothing",
    "checkpoints.topic.retention.ms": "was in KIP-382 but never in MirrorMaker 2; does nothing",
    "offset.syncs.topic.retention.ms": "was in KIP-382 but never in MirrorMaker 2; does nothing",
}
"""Keys that manuals have and no MirrorMaker 2 of today; each with what is said about it."""

CLIENT_NUMBERS: Final = frozenset(
    {
        "auto.commit.interval.ms",
        "batch.size",
        "buffer.memory",
        "connections.max.idle.ms",
        "delivery.timeout.ms",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "heartbeat.interval.ms",
        "linger.ms",
        "max.in.flight.requests.per.connection",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "max.request.size",
        "metadata.max.age.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retries",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.ms",
        "transaction.timeout.ms",
    }
)
"""Settings of clients that are whole numbers."""

FETCH_NUMBERS: Final = frozenset(
    {"fetch.max.bytes", "max.partition.fetch.bytes", "fetch.max.wait.ms", "metadata.max.age.ms"}
)
"""Settings of the reading consumer that act per flow; each must be above 0."""


def unknown_key(name: str, candidates: Iterable[str], prefix: str) -> str:
    """The sentence for an unknown key, with the one that was probably meant."""
    meant = nearest(name, candidates)
    return "unknown key" if meant is None else f"unknown key; did you mean `{prefix}{meant}`?"


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    close = get_close_matches(name, sorted(candidates), n=1, cutoff=cutoff)
    return close[0] if close else None
