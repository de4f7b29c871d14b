"""GSSAPI where its libraries are not installed: refused at once, in one sentence each."""

from __future__ import annotations

import asyncio
import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from heliograph.broker import connection, kerberos
from heliograph.broker.connection import open_connection
from heliograph.broker.kerberos import require_kerberos
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClusterConfig
from heliograph.config.security import SaslConfig, SecurityConfig
from heliograph.errors import BrokerError, ConfigError
from heliograph.model import ClusterAlias

GSSAPI = SecurityConfig(protocol="SASL_PLAINTEXT", sasl=SaslConfig(mechanism="GSSAPI"))


def cluster(security: SecurityConfig | None = None, **roles: SecurityConfig) -> ClusterConfig:
    return ClusterConfig(
        alias=ClusterAlias("A"),
        bootstrap_servers=("127.0.0.1:1",),
        security=security or SecurityConfig(),
        role_security=roles,  # type: ignore[arg-type]
    )


def lacking(name: str) -> ModuleSpec | None:
    return None if name == "gssapi" else importlib.util.find_spec(name)


@pytest.fixture
def without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an ordinary installation is; the librdkafka of the pinned wheel has no GSSAPI anyway."""
    monkeypatch.setattr(kerberos, "find_spec", lacking)
    monkeypatch.setattr(connection, "find_spec", lacking)


@pytest.mark.usefixtures("without_libraries")
@pytest.mark.parametrize("asking", [cluster(GSSAPI), cluster(consumer=GSSAPI)])
def test_what_gssapi_needs_is_named_before_anything_starts(asking: ClusterConfig) -> None:
    with pytest.raises(ConfigError) as told:
        require_kerberos([asking])

    assert str(told.value).startswith("sasl.mechanism = GSSAPI of A: 2 problems")
    assert "Python package `gssapi` is missing" in str(told.value)
    assert "librdkafka without GSSAPI" in str(told.value)


@pytest.mark.usefixtures("without_libraries")
def test_clusters_with_other_mechanisms_need_no_kerberos() -> None:
    scram = SaslConfig(mechanism="SCRAM-SHA-512", username="mirror")
    # The default mechanism is GSSAPI, but without SASL it stands for nothing.
    require_kerberos(
        [cluster(), cluster(SecurityConfig(protocol="SASL_SSL", sasl=scram))],
    )


@pytest.mark.usefixtures("without_libraries")
def test_a_machine_without_the_package_says_so_instead_of_connecting() -> None:
    settings = aiokafka_settings(cluster(GSSAPI))

    with pytest.raises(BrokerError, match="GSSAPI needs the Python package `gssapi`") as told:
        asyncio.run(open_connection("127.0.0.1", 1, settings, cluster="A"))

    assert str(told.value).startswith("cluster A, broker 127.0.0.1:1: ")
