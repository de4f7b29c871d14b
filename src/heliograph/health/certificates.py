"""When certificates end: those of brokers, of clients, of the REST server. Runs on the driver."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from cryptography import x509

from heliograph.config.clients import ssl_context, without_listeners
from heliograph.config.schema import ClientRole, ClusterConfig, MirrorConfig
from heliograph.config.security import SecurityConfig
from heliograph.health.sight import Certificate
from heliograph.model import FlowId

_CONNECT_S_MAX: Final = 2.0
_ROLES: Final[tuple[ClientRole, ...]] = ("consumer", "producer", "admin")


def certificates_of(config: MirrorConfig, flow: FlowId) -> tuple[Certificate, ...]:
    """Those that can be seen now, the first to end of each; a broker that does not answer has none.

    Blocks for seconds where brokers do not answer.
    """
    found: dict[str, int] = {}
    for certificate in _all(config, flow):
        known = found.get(certificate.whose, certificate.ends_ms)
        found[certificate.whose] = min(known, certificate.ends_ms)
    return tuple(Certificate(whose=whose, ends_ms=ends) for whose, ends in sorted(found.items()))


def _all(config: MirrorConfig, flow: FlowId) -> Iterator[Certificate]:
    for cluster in (config.source_of(flow), config.target_of(flow)):
        yield from _of_cluster(cluster)
    if config.api.tls.certificate is not None:
        try:
            pem = Path(config.api.tls.certificate).read_bytes()
        except OSError:
            return
        yield from _of_pem("the REST server", pem)


def _of_cluster(cluster: ClusterConfig) -> Iterator[Certificate]:
    for role in _ROLES:
        security = cluster.security_of(role)
        if security.has_tls and security.tls.certificate_pem:
            whose = f"the client of {cluster.alias}"
            yield from _of_pem(whose, security.tls.certificate_pem.encode())
    if cluster.security.has_tls:
        yield from _of_brokers(cluster, cluster.security)


def _of_brokers(cluster: ClusterConfig, security: SecurityConfig) -> Iterator[Certificate]:
    for server in without_listeners(cluster.bootstrap_servers):
        host, _, port = server.rpartition(":")
        shown = _shown(host.strip("[]"), int(port), security)
        if shown is not None:
            yield from _of(f"broker {server} of {cluster.alias}", [shown])


def _shown(host: str, port: int, security: SecurityConfig) -> x509.Certificate | None:
    """The certificate of a listener, one that has ended too; nothing is sent but the handshake."""
    try:
        context = ssl_context(security.tls)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((host, port), _CONNECT_S_MAX) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            der = secured.getpeercert(binary_form=True)
    except OSError:  # TLS errors among them
        return None
    return None if der is None else x509.load_der_x509_certificate(der)


def _of_pem(whose: str, pem: bytes) -> Iterator[Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError:
        return
    yield from _of(whose, found)


def _of(whose: str, found: Iterable[x509.Certificate]) -> Iterator[Certificate]:
    for each in found:
        ends_ms = int(each.not_valid_after_utc.timestamp() * 1000)
        yield Certificate(whose=whose, ends_ms=ends_ms)
