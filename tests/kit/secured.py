"""Clusters secured in each way that a client can be let in, and a mirror's file for all of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificates

from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster
from heliograph_tools.localkafka.spec import login_line
from tests.kit.leaks import (
    Secrets,
)
from tests.kit.spark_start import light_jvm
from tests.kit.tokens import TokenEndpoint

ROLES: Final = ("admin", "consumer", "producer")
FLOWS: Final = {"mutual": "scram512", "plain": "scram256", "unsigned": "bearer"}
"""Aliases name how their clients prove who they are; several may name one cluster."""
RECORDS: Final = 400
"""Executors of their own take three JVMs in a row to start."""
ENVIRONMENT_VARIABLE: Final = "MIRROR_SCRAM_PASSWORD"


def word(alias: str, role: str) -> str:
    return f"pass.{alias}.{role}.b7Qx"


PASSWORDS: Final = {
    f"password of {alias} {role}": word(alias, role)
    for alias in ("plain", "scram512", "scram256")
    for role in ROLES
}
CLIENT_SECRETS: Final = {f"bearer-{role}": f"client-secret-{role}-Zk3" for role in ROLES}
KEY_PASSWORD, STORE_PASSWORD, SPARK_PASSWORD = "key-pass-w8Lq", "store-pass-v2Rt", "spark-pass-m5Xc"


def specs(jwks: Path) -> list[ClusterSpec]:
    fast = ("-XX:TieredStopAtLevel=1",)
    return [
        ClusterSpec(alias="X", tls=True, mutual_tls=True, jvm_options=fast),
        ClusterSpec(
            alias="P",
            sasl="PLAIN",
            more_sasl=("OAUTHBEARER",),
            users={f"plain-{role}": word("plain", role) for role in ROLES},
            jvm_options=fast,
        ),
        ClusterSpec(
            alias="Y",
            tls=True,
            sasl="SCRAM-SHA-512",
            more_sasl=("SCRAM-SHA-256", "OAUTHBEARER"),
            jwks=jwks.as_uri(),
            users={
                f"{alias}-{role}": word(alias, role)
                for alias in ("scram512", "scram256")
                for role in ROLES
            },
            jvm_options=fast,
        ),
    ]


def secrets(mutual: LocalCluster) -> Secrets:
    pem = (mutual.folder / "tls" / "client.pem").read_text()
    key_lines = pem.partition("-----END")[0].splitlines()[1:]
    return {
        **PASSWORDS,
        **{f"secret of {client}": text for client, text in CLIENT_SECRETS.items()},
        "password of the key": KEY_PASSWORD,
        "password of the key store": STORE_PASSWORD,
        "password of Spark": SPARK_PASSWORD,
        "private key": key_lines[1],
        "login line": 'LoginModule required username="scram512-admin" password=',
    }


def properties(
    folder: Path, clusters: Mapping[str, LocalCluster], endpoint: TokenEndpoint, ui_port: int
) -> str:
    """Role by role with credentials of its own; the cluster's own are good for nothing."""
    passwords = folder / "passwords.properties"
    passwords.write_text(f"scram512-admin={word('scram512', 'admin')}\n")
    passwords.chmod(0o600)
    lines = [
        f"clusters = {', '.join(clusters)}",
        "replication.factor = 1",
        "checkpoints.topic.replication.factor = 1",
        "offset-syncs.topic.replication.factor = 1",
        "heartbeats.topic.replication.factor = 1",
        "emit.heartbeats.enabled = false",
        "emit.checkpoints.interval.seconds = 1",
        "refresh.topics.interval.seconds = 5",
        "config.providers = file, env",
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        *(f"{alias}.bootstrap.servers = {one.bootstrap}" for alias, one in clusters.items()),
        *mutual_lines(folder, clusters["mutual"]),
        *password_lines(folder, "plain", "PLAIN", "SASL_PLAINTEXT"),
        *password_lines(folder, "scram512", "SCRAM-SHA-512", "SASL_SSL"),
        *password_lines(folder, "scram256", "SCRAM-SHA-256", "SASL_SSL"),
        *bearer_lines(endpoint),
        *(f"{alias}.ssl.truststore.type = PEM" for alias in FLOWS.values()),
        *(
            f"{alias}.ssl.truststore.location = {clusters[alias].folder}/tls/authority.pem"
            for alias in FLOWS.values()
        ),
    ]
    for source, target in FLOWS.items():
        lines += [
            f"{source}->{target}.enabled = true",
            f"{source}->{target}.topics = orders-{source}",
            f"{source}->{target}.emit.heartbeats.enabled = true",
        ]
    return "\n".join([*lines, *spark_lines(folder, ui_port)]) + "\n"


def mutual_lines(folder: Path, cluster: LocalCluster) -> Iterator[str]:
    """An encrypted PEM key for one role, a PKCS12 store for the others."""
    pem = (cluster.folder / "tls" / "client.pem").read_bytes()
    key = load_pem_private_key(pem, password=None)
    own, *chain = load_pem_x509_certificates(pem)
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(KEY_PASSWORD.encode())
    )
    certificates = b"".join(each.public_bytes(Encoding.PEM) for each in (own, *chain))
    (folder / "consumer.pem").write_bytes(encrypted + certificates)
    store = serialize_key_and_certificates(
        b"client",
        key,  # type: ignore[arg-type]
        own,
        chain,
        BestAvailableEncryption(STORE_PASSWORD.encode()),
    )
    (folder / "client.p12").write_bytes(store)
    for role in ROLES:
        yield f"mutual.{role}.security.protocol = SSL"
        yield f"mutual.{role}.ssl.truststore.type = PEM"
        yield f"mutual.{role}.ssl.truststore.location = {cluster.folder}/tls/authority.pem"
    yield "mutual.consumer.ssl.keystore.type = PEM"
    yield f"mutual.consumer.ssl.keystore.location = {folder}/consumer.pem"
    yield f"mutual.consumer.ssl.key.password = {KEY_PASSWORD}"
    for role in ("admin", "producer"):
        yield f"mutual.{role}.ssl.keystore.type = PKCS12"
        yield f"mutual.{role}.ssl.keystore.location = {folder}/client.p12"
        yield f"mutual.{role}.ssl.keystore.password = {STORE_PASSWORD}"


def password_lines(folder: Path, alias: str, mechanism: str, protocol: str) -> Iterator[str]:
    yield f"{alias}.security.protocol = {protocol}"
    yield f"{alias}.sasl.mechanism = {mechanism}"
    yield f"{alias}.sasl.jaas.config = " + login_line(
        mechanism, user="nobody", password="of-no-use"
    )
    for role in ROLES:
        password = {
            ("scram512", "admin"): f"${{file:{folder}/passwords.properties:scram512-admin}}",
            ("scram512", "producer"): "${env:" + ENVIRONMENT_VARIABLE + "}",
        }.get((alias, role), word(alias, role))
        yield f"{alias}.{role}.sasl.jaas.config = " + login_line(
            mechanism, user=f"{alias}-{role}", password=password
        )


def bearer_lines(endpoint: TokenEndpoint) -> Iterator[str]:
    yield "unsigned.security.protocol = SASL_PLAINTEXT"
    yield "unsigned.sasl.mechanism = OAUTHBEARER"
    yield "unsigned.sasl.jaas.config = " + login_line("OAUTHBEARER", user="mirror", password="")
    yield "bearer.security.protocol = SASL_SSL"
    yield "bearer.sasl.mechanism = OAUTHBEARER"
    yield f"bearer.sasl.oauthbearer.token.endpoint.url = {endpoint.url}"
    yield "bearer.sasl.oauthbearer.client.credentials.client.id = nobody"
    yield "bearer.sasl.oauthbearer.client.credentials.client.secret = of-no-use"
    for role in ROLES:
        prefix = f"bearer.{role}.sasl.oauthbearer.client.credentials.client"
        yield f"{prefix}.id = bearer-{role}"
        yield f"{prefix}.secret = {CLIENT_SECRETS[f'bearer-{role}']}"


def spark_lines(folder: Path, ui_port: int) -> Iterator[str]:
    (folder / "events").mkdir()
    yield "master = local-cluster[1,2,512]"
    yield "slots = 1"
    yield "spark.executor.memory = 512m"
    yield f"spark.executor.extraJavaOptions = {light_jvm()}"
    yield "spark.ui.enabled = true"
    yield f"spark.ui.port = {ui_port}"
    yield "spark.eventLog.enabled = true"
    yield "spark.eventLog.compress = false"
    yield f"spark.eventLog.dir = {(folder / 'events').as_uri()}"
    yield f"spark.ssl.keyPassword = {SPARK_PASSWORD}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
