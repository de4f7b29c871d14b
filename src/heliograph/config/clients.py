"""Settings of a cluster in the words of the client libraries. Runs anywhere, executors included."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from tempfile import NamedTemporaryFile
from typing import Any, Final

from heliograph.clock import now_ms
from heliograph.config.client_names import LIBRDKAFKA_NAMES
from heliograph.config.schema import ClusterConfig
from heliograph.config.security import (
    ClientRole,
    OAuthConfig,
    SaslConfig,
    SecurityConfig,
    TlsConfig,
)
from heliograph.config.tls.oauth import BearerTokens, issue_token
from heliograph.errors import ConfigError

CLIENT_ID: Final = "heliograph"

Setting = str | int | bool | Callable[[str], tuple[str, float]]

_TLS_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}

_CONVERTED: Final[Mapping[str, Callable[[str], Setting]]] = {
    # Java's -1 leaves the size to the operating system, librdkafka's 0 does.
    "receive.buffer.bytes": lambda value: max(0, int(value)),
    "send.buffer.bytes": lambda value: max(0, int(value)),
    "buffer.memory": lambda value: max(1, int(value) // 1024),
}


_CONNECTION_NUMBERS: Final = {
    "request.timeout.ms": "request_timeout_ms",
    "receive.buffer.bytes": "receive_buffer_bytes",
    "send.buffer.bytes": "send_buffer_bytes",
}
_SOCKET_BUFFERS: Final = ("receive_buffer_bytes", "send_buffer_bytes")


def aiokafka_settings(cluster: ClusterConfig, role: ClientRole | None = None) -> dict[str, Any]:
    """What `heliograph.broker.connection.open_connection` takes: aiokafka's keyword arguments, and
    the sizes of socket buffers.

    Call it inside the loop that connects: a bearer token is shared by the connections of one loop.
    """
    security = cluster.security_of(role)
    overrides = cluster.overrides_of(role) if role is not None else {}
    settings: dict[str, Any] = {
        "client_id": overrides.get("client.id", CLIENT_ID),
        "security_protocol": security.protocol,
    }
    for key, name in _CONNECTION_NUMBERS.items():
        # Java's -1 leaves a buffer to the operating system, and so does no setting.
        if key in overrides and not (name in _SOCKET_BUFFERS and overrides[key].strip() == "-1"):
            settings[name] = _whole_number(f"{cluster.alias}.{role}.{key}", overrides[key])
    if security.has_tls:
        settings["ssl_context"] = ssl_context(security.tls)
    if security.has_sasl:
        settings.update(_aiokafka_sasl(security.sasl))
    return settings


def _whole_number(where: str, text: str) -> int:
    if not text.strip().isdecimal() or not int(text):
        # Not quoted: the value may have come through a provider.
        raise ConfigError(where, ("not a whole number above 0",))
    return int(text)


def ssl_context(tls: TlsConfig) -> ssl.SSLContext:
    """The TLS side of one client; the key is on disk only while OpenSSL reads it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_hostname
    versions = [_TLS_VERSIONS[name] for name in tls.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    if tls.cipher_suites:
        context.set_ciphers(":".join(tls.cipher_suites))
    if tls.ca_pem is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=tls.ca_pem)
    if tls.key_pem is not None and tls.certificate_pem is not None:
        password = tls.key_password.reveal() if tls.key_password is not None else None
        # OpenSSL takes a chain only from a file; this one is readable by this user only.
        with NamedTemporaryFile("w", prefix="heliograph-", suffix=".pem") as held:
            held.write(tls.key_pem.reveal() + tls.certificate_pem)
            held.flush()
            context.load_cert_chain(held.name, password=password)
    return context


def _aiokafka_sasl(sasl: SaslConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {"sasl_mechanism": sasl.mechanism}
    if sasl.mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = BearerTokens(sasl.oauth or OAuthConfig())
    elif sasl.mechanism == "GSSAPI":
        settings["sasl_kerberos_service_name"] = sasl.kerberos_service_name
    else:
        settings["sasl_plain_username"] = sasl.username
        settings["sasl_plain_password"] = _revealed(sasl)
    return settings


def _revealed(sasl: SaslConfig) -> str:
    return sasl.password.reveal() if sasl.password is not None else ""


def confluent_settings(
    cluster: ClusterConfig, role: ClientRole, **extra: Setting
) -> dict[str, Setting]:
    """A configuration for confluent-kafka; `extra` wins, `group_id` may stand for `group.id`."""
    security = cluster.security_of(role)
    settings: dict[str, Setting] = {
        "bootstrap.servers": ",".join(without_listeners(cluster.bootstrap_servers)),
        "client.id": CLIENT_ID,
        "security.protocol": security.protocol,
    }
    settings.update(_translated(cluster, role))
    if security.has_tls:
        settings.update(_librdkafka_tls(security))
    if security.has_sasl:
        settings.update(_librdkafka_sasl(security.sasl))
    settings.update({_librdkafka_name(name): value for name, value in extra.items()})
    return settings


def _librdkafka_name(keyword: str) -> str:
    """`group_id` is `group.id`, but `log_level` and callbacks keep their underscore."""
    kept = keyword == "log_level" or keyword.endswith("_cb")
    return keyword if kept else keyword.replace("_", ".")


def without_listeners(servers: Iterable[str]) -> list[str]:
    """Java allows `SSL://host:port` and ignores what is before the host."""
    return [server.rpartition("://")[2] for server in servers]


def _translated(cluster: ClusterConfig, role: ClientRole) -> dict[str, Setting]:
    names, found = LIBRDKAFKA_NAMES[role], dict[str, Setting]()
    for java, value in cluster.overrides_of(role).items():
        if java not in names:
            continue
        try:
            found[names[java]] = _CONVERTED.get(java, str)(value)
        except ValueError:
            # Not chained and not quoted: the value may have come through a provider.
            raise ConfigError(f"{cluster.alias}.{role}.{java}", ("not a whole number",)) from None
    return found


def _librdkafka_tls(security: SecurityConfig) -> dict[str, Setting]:
    tls = security.tls
    settings: dict[str, Setting] = {
        "ssl.endpoint.identification.algorithm": "https" if tls.check_hostname else "none"
    }
    if tls.ca_pem is not None:
        settings["ssl.ca.pem"] = tls.ca_pem
    if tls.key_pem is not None and tls.certificate_pem is not None:
        settings["ssl.key.pem"] = tls.key_pem.reveal()
        settings["ssl.certificate.pem"] = tls.certificate_pem
    if tls.key_password is not None:
        settings["ssl.key.password"] = tls.key_password.reveal()
    if tls.cipher_suites:
        settings["ssl.cipher.suites"] = ":".join(tls.cipher_suites)
    return settings


def _token_for_librdkafka(oauth: OAuthConfig, _: str) -> tuple[str, float]:
    """What librdkafka asks for a token, and when it ends; it asks again before that."""
    issued = issue_token(oauth)
    return issued.text, now_ms() / 1000 + issued.life_s


def _librdkafka_sasl(sasl: SaslConfig) -> dict[str, Setting]:
    settings: dict[str, Setting] = {"sasl.mechanism": sasl.mechanism}
    if sasl.mechanism == "GSSAPI":
        settings["sasl.kerberos.service.name"] = sasl.kerberos_service_name
        if sasl.kerberos_principal is not None:
            settings["sasl.kerberos.principal"] = sasl.kerberos_principal
        if sasl.kerberos_keytab is not None:
            settings["sasl.kerberos.keytab"] = sasl.kerberos_keytab
    elif sasl.mechanism == "OAUTHBEARER":
        settings.update(_librdkafka_oauth(sasl.oauth or OAuthConfig()))
    else:
        settings["sasl.username"] = sasl.username or ""
        settings["sasl.password"] = _revealed(sasl)
    return settings


def _librdkafka_oauth(oauth: OAuthConfig) -> dict[str, Setting]:
    if oauth.aws is not None:
        return {"oauth_cb": partial(_token_for_librdkafka, oauth)}
    if oauth.token_endpoint_url is None:
        return {
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": f"principal={oauth.subject or ''}",
        }
    settings: dict[str, Setting] = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": oauth.token_endpoint_url,
        "sasl.oauthbearer.client.id": oauth.client_id or "",
        "sasl.oauthbearer.client.secret": oauth.client_secret.reveal()
        if oauth.client_secret
        else "",
    }
    if oauth.scope:
        settings["sasl.oauthbearer.scope"] = oauth.scope
    if oauth.extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(
            f"{name}={value}" for name, value in oauth.extensions.items()
        )
    return settings
