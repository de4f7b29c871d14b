"""Whether a listener that turned a client away expects TLS. Runs on driver and executors."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from typing import Final

from heliograph.config.clients import without_listeners
from heliograph.config.schema import ClientRole, ClusterConfig
from heliograph.errors import BrokerError, BrokerUnreachable
from heliograph.model import ClusterAlias

_PROBE_S_MAX: Final = 2.0
_WITH_TLS: Final = {"PLAINTEXT": "SSL or SASL_SSL", "SASL_PLAINTEXT": "SASL_SSL"}


def if_turned_away(error: BrokerError, cluster: ClusterConfig, role: ClientRole) -> BrokerError:
    """The reason where it is missing TLS, which waiting does not change; else the error itself."""
    if not isinstance(error, BrokerUnreachable):
        return error
    protocol = cluster.security_of(role).protocol
    why = missing_tls(cluster.alias, cluster.bootstrap_servers, protocol)
    return error if why is None else BrokerError(why)


def missing_tls(alias: ClusterAlias, servers: Iterable[str], protocol: str) -> str | None:
    """One sentence where a server speaks TLS and the client was told not to; blocks for seconds.

    A broker closes a connection that does not begin with a handshake, and does not say why.
    """
    wanted = _WITH_TLS.get(protocol)
    if wanted is None:
        return None
    for server in without_listeners(servers):
        host, _, port = server.rpartition(":")
        if _speaks_tls(host.strip("[]"), int(port)):
            return (
                f"cluster {alias}: {server} expects TLS, but security.protocol is {protocol}: "
                f"{alias}.security.protocol must be {wanted}"
            )
    return None


def _speaks_tls(host: str, port: int) -> bool:
    """Nothing is sent but the handshake, so whose certificate it is does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), _PROBE_S_MAX) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except OSError:  # TLS errors among them
        return False
