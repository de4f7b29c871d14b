"""What the client libraries are given, tried on a TLS server and on librdkafka itself."""

from __future__ import annotations

import asyncio
import ssl

import pytest
import trustme
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from heliograph.config.clients import aiokafka_settings, confluent_settings, ssl_context
from heliograph.config.schema import ClusterConfig
from heliograph.config.secrets import Secret
from heliograph.config.security import (
    OAuthConfig,
    SaslConfig,
    SaslMechanism,
    SecurityConfig,
    TlsConfig,
)
from heliograph.config.tls.oauth import BearerTokens
from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias

CA = trustme.CA()
SERVER = CA.issue_cert("localhost")
CLIENT = CA.issue_cert("mirror@heliograph.test")
CA_PEM = CA.cert_pem.bytes().decode()
MUTUAL = TlsConfig(
    ca_pem=CA_PEM,
    certificate_pem=CLIENT.cert_chain_pems[0].bytes().decode(),
    key_pem=Secret(CLIENT.private_key_pem.bytes().decode()),
)


def cluster(security: SecurityConfig | None = None, **overrides: dict[str, str]) -> ClusterConfig:
    return ClusterConfig(
        alias=ClusterAlias("A"),
        bootstrap_servers=("127.0.0.1:1",),
        security=security or SecurityConfig(),
        **overrides,  # type: ignore[arg-type]
    )


def with_sasl(mechanism: SaslMechanism, **fields: object) -> SecurityConfig:
    sasl = SaslConfig.model_validate({"mechanism": mechanism, **fields})
    return SecurityConfig(protocol="SASL_SSL", tls=TlsConfig(ca_pem=CA_PEM), sasl=sasl)


async def handshake(tls: TlsConfig, host: str) -> str:
    """Connect to a server that demands a certificate; answers who it saw."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    SERVER.configure_cert(server_side)
    CA.configure_trust(server_side)
    server_side.verify_mode = ssl.CERT_REQUIRED

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen = writer.get_extra_info("ssl_object").getpeercert()["subjectAltName"][0][1]
        writer.write(seen.encode() + b"\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=server_side)
    async with server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=ssl_context(tls), server_hostname=host
        )
        seen = (await reader.readline()).decode().strip()
        writer.close()
        await writer.wait_closed()
        return seen


def test_a_server_sees_the_clients_certificate_and_the_client_trusts_the_server() -> None:
    assert asyncio.run(handshake(MUTUAL, "localhost")) == "mirror@heliograph.test"


def test_a_server_under_another_name_is_refused_unless_the_check_is_off() -> None:
    unchecked = MUTUAL.model_copy(update={"check_hostname": False})

    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(handshake(MUTUAL, "elsewhere.test"))

    assert asyncio.run(handshake(unchecked, "elsewhere.test")) == "mirror@heliograph.test"


def test_a_server_of_another_authority_is_refused() -> None:
    stranger = MUTUAL.model_copy(update={"ca_pem": trustme.CA().cert_pem.bytes().decode()})

    with pytest.raises(ssl.SSLCertVerificationError):
        asyncio.run(handshake(stranger, "localhost"))


def test_tls_versions_are_those_that_were_enabled() -> None:
    context = ssl_context(TlsConfig(ca_pem=CA_PEM, protocols=("TLSv1.3",)))

    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_a_plain_cluster_needs_nothing_but_a_name() -> None:
    settings = aiokafka_settings(cluster())

    assert settings == {"client_id": "heliograph", "security_protocol": "PLAINTEXT"}


def test_a_roles_overrides_reach_the_connection() -> None:
    tuned = cluster(consumer={"client.id": "mine", "request.timeout.ms": "5000"})

    settings = aiokafka_settings(tuned, "consumer")

    assert (settings["client_id"], settings["request_timeout_ms"]) == ("mine", 5_000)
    assert aiokafka_settings(tuned, "producer")["client_id"] == "heliograph"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_passwords_reach_the_connection(mechanism: SaslMechanism) -> None:
    security = with_sasl(mechanism, username="mirror", password=Secret("hunter2"))

    settings = aiokafka_settings(cluster(security))

    assert settings["security_protocol"] == "SASL_SSL"
    assert isinstance(settings["ssl_context"], ssl.SSLContext)
    assert settings["sasl_mechanism"] == mechanism
    assert settings["sasl_plain_username"] == "mirror"
    assert settings["sasl_plain_password"] == "hunter2"


def test_bearer_tokens_reach_the_connection() -> None:
    security = with_sasl("OAUTHBEARER", oauth=OAuthConfig(subject="mirror"))

    settings = aiokafka_settings(cluster(security))

    assert isinstance(settings["sasl_oauth_token_provider"], BearerTokens)


def test_kerberos_reaches_the_connection() -> None:
    security = with_sasl("GSSAPI", kerberos_service_name="brokers")

    assert aiokafka_settings(cluster(security))["sasl_kerberos_service_name"] == "brokers"


CREDENTIALS = OAuthConfig(
    token_endpoint_url="http://127.0.0.1:1/token",
    client_id="mirror",
    client_secret=Secret("hunter2"),
    scope="kafka",
    extensions={"cluster": "lkc"},
)


@pytest.mark.parametrize(
    "security",
    [
        SecurityConfig(),
        SecurityConfig(protocol="SSL", tls=MUTUAL),
        SecurityConfig(
            protocol="SSL",
            tls=TlsConfig(ca_pem=CA_PEM, check_hostname=False, cipher_suites=("AES256-SHA256",)),
        ),
        with_sasl("PLAIN", username="u", password=Secret("p")),
        with_sasl("SCRAM-SHA-512", username="u", password=Secret("p")),
        with_sasl("OAUTHBEARER", oauth=OAuthConfig(subject="mirror")),
        with_sasl("OAUTHBEARER", oauth=CREDENTIALS),
    ],
    ids=["plain", "mutual", "ciphers", "PLAIN", "SCRAM", "unsecured", "oidc"],
)
def test_librdkafka_accepts_every_way_to_connect(security: SecurityConfig) -> None:
    settings = confluent_settings(cluster(security), "admin", log_level=0)

    AdminClient(settings)


def test_librdkafka_accepts_every_translated_setting() -> None:
    common = {
        "client.dns.lookup": "use_all_dns_ips",
        "client.id": "x",
        "client.rack": "r",
        "connections.max.idle.ms": "600000",
        "metadata.max.age.ms": "300000",
        "receive.buffer.bytes": "-1",
        "reconnect.backoff.max.ms": "1000",
        "reconnect.backoff.ms": "50",
        "request.timeout.ms": "30000",
        "send.buffer.bytes": "131072",
        "socket.connection.setup.timeout.ms": "10000",
        "max.poll.records": "5000",
        "unheard.of": "x",
    }
    consumer = {
        "allow.auto.create.topics": "false",
        "auto.commit.interval.ms": "5000",
        "auto.offset.reset": "earliest",
        "check.crcs": "true",
        "enable.auto.commit": "false",
        "fetch.max.bytes": "52428800",
        "fetch.max.wait.ms": "500",
        "fetch.min.bytes": "1",
        "group.instance.id": "i",
        "heartbeat.interval.ms": "3000",
        "isolation.level": "read_committed",
        "max.partition.fetch.bytes": "1048576",
        "max.poll.interval.ms": "300000",
        "session.timeout.ms": "45000",
    }
    producer = {
        "acks": "all",
        "batch.size": "327680",
        "buffer.memory": "33554432",
        "compression.type": "lz4",
        "delivery.timeout.ms": "120000",
        "enable.idempotence": "true",
        "linger.ms": "100",
        "max.in.flight.requests.per.connection": "5",
        "max.request.size": "10485760",
        "retries": "2147483647",
        "retry.backoff.max.ms": "1000",
        "retry.backoff.ms": "100",
        "transaction.timeout.ms": "120000",
        "transactional.id": "t",
    }
    tuned = cluster(admin=common, consumer={**common, **consumer}, producer={**common, **producer})

    AdminClient(confluent_settings(tuned, "admin", log_level=0))
    Consumer(confluent_settings(tuned, "consumer", log_level=0, group_id="g")).close()
    Producer(confluent_settings(tuned, "producer", log_level=0))

    producing = confluent_settings(tuned, "producer")
    assert producing["queue.buffering.max.kbytes"] == 32_768
    assert producing["message.max.bytes"] == "10485760"
    assert confluent_settings(tuned, "consumer")["socket.receive.buffer.bytes"] == 0
    assert "unheard.of" not in producing


def test_extra_settings_win() -> None:
    settings = confluent_settings(cluster(), "consumer", **{"client.id": "mine"}, group_id="g")

    assert settings == {
        "bootstrap.servers": "127.0.0.1:1",
        "security.protocol": "PLAINTEXT",
        "client.id": "mine",
        "group.id": "g",
    }


def test_a_size_that_is_no_number_is_refused_without_quoting_it() -> None:
    broken = cluster(producer={"buffer.memory": "hunter2"})

    with pytest.raises(ConfigError) as caught:
        confluent_settings(broken, "producer")

    assert str(caught.value) == "A.producer.buffer.memory: 1 problem\n  not a whole number"
