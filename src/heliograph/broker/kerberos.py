"""What SASL/GSSAPI needs beyond Heliograph itself, and whether it is here. Runs on the driver.

Connections that carry records use MIT Kerberos through the Python package `gssapi`; admin clients
and the writers of internal topics use librdkafka, which must be built with libsasl2. Neither comes
with what is installed by default.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from heliograph.config.schema import ClusterConfig
from heliograph.errors import ConfigError


def require_kerberos(clusters: Iterable[ClusterConfig]) -> None:
    """Raise `ConfigError` where a cluster asks for GSSAPI and this machine cannot do it."""
    asking = sorted(cluster.alias for cluster in clusters if _asks_for_it(cluster))
    if not asking:
        return
    problems = []
    if find_spec("gssapi") is None:
        problems.append(
            "the Python package `gssapi` is missing; "
            "driver and executors need it, with MIT Kerberos"
        )
    if not _librdkafka_has_it():
        problems.append(
            "confluent-kafka comes with a librdkafka without GSSAPI here; "
            "install it from source against one that was built with libsasl2"
        )
    if problems:
        named = ", ".join(asking)
        raise ConfigError(f"sasl.mechanism = GSSAPI of {named}", tuple(problems))


def _asks_for_it(cluster: ClusterConfig) -> bool:
    return any(
        security.has_sasl and security.sasl.mechanism == "GSSAPI"
        for security in (cluster.security, *cluster.role_security.values())
    )


def _librdkafka_has_it() -> bool:
    """Asked by making a client: the library refuses mechanisms it was not built with."""
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI", "log_level": 0}
    try:
        AdminClient(settings)
    except KafkaException:
        return False
    return True
