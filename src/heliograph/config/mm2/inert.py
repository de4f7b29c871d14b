"""Keys that a MirrorMaker 2 file may have and that have no effect here. Runs anywhere.

They are read, so that a file loads and a wrong value is found, and each gets a note with the
reason; no model has a field for them. A test holds that nothing else in the package names them.
"""

from __future__ import annotations

from typing import Final

from heliograph.config.keys import LONG_MAX, Key
from heliograph.config.mm2.values import (
    Reader,
    choice,
    choices,
    replicas,
    switch,
    text,
    whole,
    words,
)

CONNECT: Final = "belongs to Kafka Connect and does nothing here"
JAVA_ONLY: Final = "does nothing here: only Java clients have this setting"

_CONVERTER: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"
_MILLIS: Final = whole(0, LONG_MAX)


def _row(
    name: str,
    read: Reader,
    default: object,
    meaning: str,
    *,
    top: bool = True,
    why: str = CONNECT,
) -> Key:
    return Key(name=name, read=read, default=default, said=meaning, top=top, inert=why)


FLOW_ROWS: Final = (
    _row("consumer.poll.timeout.ms", _MILLIS, 1_000, "Longest wait of one poll."),
    _row(
        "forwarding.admin.class",
        text,
        "org.apache.kafka.clients.admin.ForwardingAdmin",
        "Java class between MirrorMaker 2 and its admin clients (KIP-787).",
    ),
    _row(
        "metric.reporters",
        words,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Java classes that receive metrics.",
    ),
    _row(
        "metric.names.formats",
        choices(("legacy", "new")),
        ("legacy",),
        "Which names metrics have (KIP-1280).",
    ),
    _row("connector.class", text, None, "Class of the connector."),
    _row("tasks.max.enforce", switch, True, "Whether Connect refuses more tasks than `tasks.max`."),
    *(
        _row(
            f"{part}.converter",
            text,
            _CONVERTER,
            f"Java class of the {part} converter; bytes are never converted here.",
        )
        for part in ("key", "value", "header")
    ),
    _row(
        "config.action.reload",
        choice(("none", "restart")),
        "restart",
        "What Connect does when a config provider's value changes.",
    ),
    _row(
        "errors.retry.timeout",
        whole(-1),
        0,
        "How long Connect retries a failed conversion or transform; -1 is without an end.",
    ),
    _row("errors.retry.delay.max.ms", _MILLIS, 60_000, "Longest pause between such retries."),
    _row(
        "errors.tolerance",
        choice(("none", "all")),
        "none",
        "Whether Connect skips records that fail; nothing is skipped here.",
    ),
    _row("errors.log.enable", switch, False, "Whether Connect logs failed records."),
    _row("errors.log.include.messages", switch, False, "Whether that log includes the record."),
    _row(
        "topic.creation.groups",
        words,
        (),
        "Aliases of Connect's topic creation groups.",
        top=False,
    ),
    _row(
        "transaction.boundary",
        choice(("poll", "interval", "connector")),
        "poll",
        "Where Connect ends a transaction; there are none here.",
        top=False,
    ),
    _row(
        "transaction.boundary.interval.ms",
        whole(1),
        None,
        "Length of a transaction of boundary `interval`; unset is the offset flush interval.",
        top=False,
    ),
)
"""As `A->B.key`, or as `key` for every flow."""

_OF_THAT_TOPIC: Final = "Of that topic; -1 is the broker's default."
WORKER_ROWS: Final = (
    _row(
        "status.storage.topic",
        text,
        None,
        "Topic of Connect's states; unset is `mm2-status.<source>.internal`.",
    ),
    _row("status.storage.partitions", replicas, 5, _OF_THAT_TOPIC),
    _row("status.storage.replication.factor", replicas, 3, _OF_THAT_TOPIC),
    _row(
        "config.storage.topic",
        text,
        None,
        "Topic of Connect's configurations; unset is `mm2-configs.<source>.internal`.",
    ),
    _row("config.storage.replication.factor", replicas, 3, _OF_THAT_TOPIC),
    _row(
        "offset.flush.timeout.ms",
        whole(1),
        5_000,
        "Bound on one write of Connect's offsets.",
        top=False,
    ),
    _row(
        "task.shutdown.graceful.timeout.ms",
        _MILLIS,
        5_000,
        "How long Connect waits for a task to stop.",
    ),
)
"""As `B.key`, or as `key` for every cluster."""

REST_ROWS: Final = (
    _row(
        "dedicated.mode.enable.internal.rest",
        switch,
        False,
        "Whether MirrorMaker 2 processes call each other (KIP-710).",
    ),
    _row("listeners", words, (), "Addresses they listen on."),
    _row("admin.listeners", words, (), "Addresses of their admin endpoints."),
    _row("rest.advertised.host.name", text, None, "Host that other processes call."),
    _row("rest.advertised.port", whole(1, 65_535), None, "Port that other processes call."),
    _row(
        "rest.advertised.listener",
        choice(("http", "https")),
        None,
        "Protocol of those calls.",
    ),
    _row("access.control.allow.origin", text, "", "CORS origin."),
    _row("access.control.allow.methods", text, "", "CORS methods."),
    _row("response.http.headers.config", text, "", "Headers added to every response."),
    _row("rest.extension.classes", words, (), "Java classes that extend the server."),
)
"""As `key` only."""

WORKER_OTHER: Final = frozenset(
    [
        "client.dns.lookup",
        "client.id",
        "connect.protocol",
        "connections.max.idle.ms",
        "connector.client.config.override.policy",
        "heartbeat.interval.ms",
        "inter.worker.key.generation.algorithm",
        "inter.worker.key.size",
        "inter.worker.key.ttl.ms",
        "inter.worker.signature.algorithm",
        "inter.worker.verification.algorithms",
        "metadata.max.age.ms",
        "metadata.recovery.rebootstrap.trigger.ms",
        "metadata.recovery.strategy",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "plugin.discovery",
        "plugin.path",
        "rebalance.timeout.ms",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "request.timeout.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "scheduled.rebalance.max.delay.ms",
        "send.buffer.bytes",
        "session.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "topic.creation.enable",
        "topic.tracking.allow.reset",
        "topic.tracking.enable",
        "worker.sync.timeout.ms",
        "worker.unsync.backoff.ms",
    ]
)
"""Keys of a cluster's Connect workers that are not even read."""

JAVA_ONLY_SECURITY: Final = frozenset(
    [
        "sasl.client.callback.handler.class",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "security.providers",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ]
)
"""Security keys that only Java clients have; some are refused where they would matter."""
