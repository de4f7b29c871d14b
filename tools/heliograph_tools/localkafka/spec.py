"""What a cluster should look like, and the settings that make it so. Pure; runs on the driver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka.ports import LOOPBACK
from heliograph_tools.localkafka.versions import KAFKA_VERSION, lacks_authorizer, lacks_scram

ADMIN_USER: Final = "heliograph"
BROKER_USER: Final = "broker"
SCRAM_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
BEARER_MECHANISM: Final = "OAUTHBEARER"
SASL_MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS, BEARER_MECHANISM)
_CONTROLLERS_MAX: Final = 3
_PLAIN_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_LOGIN: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
_BEARER: Final = "org.apache.kafka.common.security.oauthbearer"
_BEARER_LOGIN: Final = f"{_BEARER}.OAuthBearerLoginModule"
_BEARER_VALIDATOR: Final = f"{_BEARER}.OAuthBearerValidatorCallbackHandler"
# Names and passwords go unquoted into two of Kafka's little languages.
_WORD: Final = re.compile(r"[A-Za-z0-9._-]+\Z")
_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    alias: str
    brokers: int = 1
    kafka: str = KAFKA_VERSION
    tls: bool = False
    mutual_tls: bool = False
    """Clients need a certificate too; only with `tls`."""
    sasl: str | None = None
    """How clients prove who they are, the admin user among them."""
    more_sasl: tuple[str, ...] = ()
    """Further mechanisms of the same listener; only with `sasl`."""
    jwks: str | None = None
    """URL of the keys that sign bearer tokens; without it Kafka takes unsigned ones."""
    authorizer: bool = False
    """Nothing is allowed but to the admin user, until ACLs say so; only with `sasl`."""
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords of further SASL users by name."""
    broker_config: Mapping[str, str] = field(default_factory=dict)
    """Broker settings that win over the defaults of `broker_properties`."""
    advertised_ports: tuple[int, ...] = ()
    """One per broker: a second listener, PROXIED, tells clients to come back through these."""
    racks: tuple[str, ...] = ()
    """One per broker: where it is (`broker.rack`)."""
    heap_mb: int = 384
    jvm_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        problem = self._problem()
        if problem is not None:
            raise LocalClusterError(f"cluster {self.alias}: {problem}")

    def _problem(self) -> str | None:
        if not self.alias or not self.alias.replace("-", "").replace("_", "").isalnum():
            return "the alias may have letters, digits, - and _"
        if self.brokers < 1:
            return f"brokers is {self.brokers}, less than one"
        unknown = [name for name in self.mechanisms if name not in SASL_MECHANISMS]
        if unknown:
            return f"sasl is {unknown[0]!r}, not one of {', '.join(SASL_MECHANISMS)}"
        if self.more_sasl and self.sasl is None:
            return "more_sasl needs sasl, which is what the admin user uses"
        if self.jwks is not None and self.sasl == BEARER_MECHANISM:
            return "jwks needs another sasl first: there is no signed token for the admin user"
        if self.jwks is not None and BEARER_MECHANISM not in self.mechanisms:
            return f"jwks needs {BEARER_MECHANISM} in more_sasl"
        odd = [n for n, word in self.users.items() if not (_WORD.match(n) and _WORD.match(word))]
        if odd:
            return f"name or password of user {odd[0]!r} has more than letters, digits, . _ and -"
        if self.authorizer and self.sasl is None:
            return "an authorizer needs sasl, or every client would be the same user"
        if self.authorizer and lacks_authorizer(self.kafka):
            return f"Kafka {self.kafka} has no authorizer without ZooKeeper"
        if lacks_scram(self.kafka) and set(self.mechanisms) & set(SCRAM_MECHANISMS):
            return f"Kafka {self.kafka} has no SCRAM users without ZooKeeper"
        if self.mutual_tls and not self.tls:
            return "mutual_tls needs tls"
        if self.advertised_ports and len(self.advertised_ports) != self.brokers:
            return f"{len(self.advertised_ports)} advertised ports for {self.brokers} brokers"
        if self.racks and len(self.racks) != self.brokers:
            return f"{len(self.racks)} racks for {self.brokers} brokers"
        return None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return self.more_sasl if self.sasl is None else (self.sasl, *self.more_sasl)

    @property
    def controllers(self) -> int:
        """An even quorum dies with any of its nodes, so two brokers have one controller."""
        return 1 if self.brokers < _CONTROLLERS_MAX else _CONTROLLERS_MAX

    @property
    def security_protocol(self) -> str:
        transport = "SSL" if self.tls else "PLAINTEXT"
        return transport if self.sasl is None else f"SASL_{transport}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files of one cluster's own authority."""

    authority: Path
    broker: Path
    """Key, certificate and chain in one file, as Java reads it."""
    client: Path
    """The same for a client, for mutual TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Passwords by user; never in arguments, logs or messages."""

    users: Mapping[str, str] = field(repr=False)
    broker_password: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPorts:
    client: int
    internal: int
    controller: int
    proxied: int
    """Where PROXIED listens, that is where a proxy forwards to; unused without one."""


def broker_properties(
    spec: ClusterSpec,
    *,
    index: int,
    log_dir: Path,
    ports: Sequence[BrokerPorts],
    credentials: Credentials,
    tls: TlsFiles | None,
) -> dict[str, str]:
    """Everything broker `index` reads at start; the broker's id is its index."""
    replicas = str(min(spec.brokers, 3))
    isr_min = str(min(spec.brokers, 2))
    return {
        "node.id": str(index),
        "log.dirs": str(log_dir),
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": isr_min,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": isr_min,
        "default.replication.factor": replicas,
        # Fewer partitions and threads than a server has: many brokers share one machine.
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "1",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "log.cleaner.backoff.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
        # Records may carry old timestamps; retention by time would delete them half a minute later.
        "log.retention.ms": "-1",
        # A broker killed -9 may register again only when its old session has run out.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "600",
        # A quorum of one tells nobody twice a second that nothing has happened.
        **({"metadata.max.idle.interval.ms": "0"} if spec.brokers == 1 else {}),
        # A mirror that misspells a topic must fail, not create it.
        "auto.create.topics.enable": "false",
        **({"broker.rack": spec.racks[index]} if spec.racks else {}),
        **_listener_properties(spec, index, ports),
        **_security_properties(spec, credentials, tls),
        **spec.broker_config,
    }


def _listener_properties(
    spec: ClusterSpec, index: int, ports: Sequence[BrokerPorts]
) -> dict[str, str]:
    mine = ports[index]
    inside = "SASL_PLAINTEXT" if spec.authorizer else "PLAINTEXT"
    protocols = {"CLIENT": spec.security_protocol, "INTERNAL": inside, "CONTROLLER": inside}
    listens = {"CLIENT": mine.client, "INTERNAL": mine.internal}
    advertises = dict(listens)
    if spec.advertised_ports:
        protocols["PROXIED"] = spec.security_protocol
        listens["PROXIED"] = mine.proxied
        advertises["PROXIED"] = spec.advertised_ports[index]
    roles = "broker"
    if index < spec.controllers:
        roles = "broker,controller"
        listens["CONTROLLER"] = mine.controller
    voters = [f"{i}@{LOOPBACK}:{ports[i].controller}" for i in range(spec.controllers)]
    return {
        "process.roles": roles,
        "listeners": _endpoints(listens),
        "advertised.listeners": _endpoints(advertises),
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        "inter.broker.listener.name": "INTERNAL",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(voters),
    }


def _endpoints(port_by_listener: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in port_by_listener.items())


def _security_properties(
    spec: ClusterSpec, credentials: Credentials, tls: TlsFiles | None
) -> dict[str, str]:
    properties: dict[str, str] = {}
    if tls is not None:
        properties |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tls.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tls.authority),
            "ssl.client.auth": "required" if spec.mutual_tls else "none",
        }
    if spec.sasl is not None:
        for listener in ("client", "proxied") if spec.advertised_ports else ("client",):
            prefix = f"listener.name.{listener}"
            properties[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(spec.mechanisms)
            for mechanism in spec.mechanisms:
                jaas = _listener_jaas(mechanism, credentials)
                properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = jaas
            if spec.jwks is not None:
                handler = f"{prefix}.{BEARER_MECHANISM.lower()}.sasl.server.callback.handler.class"
                properties[handler] = _BEARER_VALIDATOR
                properties["sasl.oauthbearer.jwks.endpoint.url"] = spec.jwks
    if spec.authorizer:
        word = credentials.broker_password
        jaas = (
            f'{_PLAIN_LOGIN} required username="{BROKER_USER}" password="{word}"'
            f' user_{BROKER_USER}="{word}";'
        )
        for listener in ("internal", "controller"):
            properties[f"listener.name.{listener}.sasl.enabled.mechanisms"] = "PLAIN"
            properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = jaas
        properties |= {
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "authorizer.class.name": _AUTHORIZER,
            "super.users": f"User:{BROKER_USER};User:{ADMIN_USER}",
        }
    return properties


def _listener_jaas(mechanism: str, credentials: Credentials) -> str:
    if mechanism == "PLAIN":
        known = " ".join(f'user_{name}="{word}"' for name, word in credentials.users.items())
        return f"{_PLAIN_LOGIN} required {known};"
    return f"{_BEARER_LOGIN if mechanism == BEARER_MECHANISM else _SCRAM_LOGIN} required;"


def client_properties(
    spec: ClusterSpec, *, user: str, password: str, tls: TlsFiles | None
) -> dict[str, str]:
    """What a Java client needs to connect, beyond `bootstrap.servers`."""
    properties = {"security.protocol": spec.security_protocol}
    if tls is not None:
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tls.authority)}
        if spec.mutual_tls:
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(tls.client)}
    if spec.sasl is not None:
        properties["sasl.mechanism"] = spec.sasl
        properties["sasl.jaas.config"] = login_line(spec.sasl, user=user, password=password)
    return properties


def login_line(mechanism: str, *, user: str, password: str) -> str:
    """A Java client's `sasl.jaas.config`; an unsigned token needs no password."""
    if mechanism == BEARER_MECHANISM:
        return f'{_BEARER_LOGIN} required unsecuredLoginStringClaim_sub="{user}";'
    module = _PLAIN_LOGIN if mechanism == "PLAIN" else _SCRAM_LOGIN
    return f'{module} required username="{user}" password="{password}";'


def librdkafka_properties(
    spec: ClusterSpec, *, user: str, password: str, tls: TlsFiles | None
) -> dict[str, str]:
    """The same for librdkafka, and so for confluent-kafka."""
    properties = {"security.protocol": spec.security_protocol}
    if tls is not None:
        properties["ssl.ca.location"] = str(tls.authority)
        if spec.mutual_tls:
            properties["ssl.certificate.location"] = str(tls.client)
            properties["ssl.key.location"] = str(tls.client)
    if spec.sasl == BEARER_MECHANISM:
        properties |= {
            "sasl.mechanism": spec.sasl,
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={user}",
        }
    elif spec.sasl is not None:
        properties |= {
            "sasl.mechanism": spec.sasl,
            "sasl.username": user,
            "sasl.password": password,
        }
    return properties
