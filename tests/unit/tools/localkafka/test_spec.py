"""Specs that cannot be are refused, and the rest becomes broker settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka.spec import (
    BrokerPorts,
    ClusterSpec,
    Credentials,
    broker_properties,
    client_properties,
    librdkafka_properties,
)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"brokers": 0}, "brokers is 0, less than one"),
        ({"sasl": "GSSAPI"}, "sasl is 'GSSAPI', not one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({"users": {"alice": 'a"b'}}, "name or password of user 'alice' has more than letters"),
        ({"authorizer": True}, "an authorizer needs sasl"),
        ({"more_sasl": ("PLAIN",)}, "more_sasl needs sasl"),
        ({"sasl": "PLAIN", "more_sasl": ("NTLM",)}, "sasl is 'NTLM', not one of"),
        ({"sasl": "OAUTHBEARER", "jwks": "file:///keys"}, "jwks needs another sasl first"),
        ({"sasl": "PLAIN", "jwks": "file:///keys"}, "jwks needs OAUTHBEARER"),
        ({"mutual_tls": True}, "mutual_tls needs tls"),
        ({"advertised_ports": (1, 2)}, "2 advertised ports for 1 brokers"),
        ({"kafka": "3.1.2", "sasl": "SCRAM-SHA-256"}, "Kafka 3.1.2 has no SCRAM users"),
        (
            {"kafka": "3.1.2", "sasl": "PLAIN", "authorizer": True},
            "Kafka 3.1.2 has no authorizer without ZooKeeper",
        ),
        ({"alias": "../A"}, "the alias may have letters, digits, - and _"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(LocalClusterError, match=told):
        ClusterSpec(**{"alias": "A", **wrong})


@pytest.mark.parametrize(("brokers", "controllers"), [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_the_quorum_is_odd(brokers: int, controllers: int) -> None:
    settings = properties_of(ClusterSpec(alias="A", brokers=brokers))

    assert len(settings["controller.quorum.voters"].split(",")) == controllers


def test_internal_topics_are_replicated_up_to_three_times() -> None:
    factors = [
        properties_of(ClusterSpec(alias="A", brokers=n))["offsets.topic.replication.factor"]
        for n in (1, 2, 3, 4)
    ]

    assert factors == ["1", "2", "3", "3"]


def test_broker_config_wins_over_the_defaults() -> None:
    spec = ClusterSpec(alias="A", broker_config={"auto.create.topics.enable": "true"})

    assert properties_of(spec)["auto.create.topics.enable"] == "true"


def test_a_proxied_listener_advertises_another_port_than_it_listens_on() -> None:
    settings = properties_of(ClusterSpec(alias="A", advertised_ports=(99,)))

    assert "PROXIED://127.0.0.1:4" in settings["listeners"]
    assert "PROXIED://127.0.0.1:99" in settings["advertised.listeners"]


def test_passwords_are_not_in_the_repr_of_a_spec() -> None:
    spec = ClusterSpec(alias="A", sasl="PLAIN", users={"alice": "hidden"})

    told = repr(spec) + repr(Credentials(users=spec.users, broker_password="hidden"))

    assert "hidden" not in told


def test_client_settings_log_in_with_the_mechanism_of_the_cluster() -> None:
    spec = ClusterSpec(alias="A", sasl="SCRAM-SHA-512")

    settings = client_properties(spec, user="alice", password="secret", tls=None)

    assert settings["security.protocol"] == "SASL_PLAINTEXT"
    assert settings["sasl.mechanism"] == "SCRAM-SHA-512"
    assert 'ScramLoginModule required username="alice"' in settings["sasl.jaas.config"]


def test_a_listener_takes_every_mechanism_it_was_given() -> None:
    spec = ClusterSpec(
        alias="A", sasl="PLAIN", more_sasl=("SCRAM-SHA-256", "OAUTHBEARER"), jwks="file:///keys"
    )

    settings = properties_of(spec)

    assert settings["listener.name.client.sasl.enabled.mechanisms"] == (
        "PLAIN,SCRAM-SHA-256,OAUTHBEARER"
    )
    assert "PlainLoginModule" in settings["listener.name.client.plain.sasl.jaas.config"]
    assert "ScramLogin" in settings["listener.name.client.scram-sha-256.sasl.jaas.config"]
    assert "OAuthBearer" in settings["listener.name.client.oauthbearer.sasl.jaas.config"]
    assert settings["sasl.oauthbearer.jwks.endpoint.url"] == "file:///keys"


def test_unsigned_tokens_need_no_password() -> None:
    spec = ClusterSpec(alias="A", sasl="OAUTHBEARER")

    java = client_properties(spec, user="alice", password="secret", tls=None)
    librdkafka = librdkafka_properties(spec, user="alice", password="secret", tls=None)

    assert 'unsecuredLoginStringClaim_sub="alice"' in java["sasl.jaas.config"]
    assert librdkafka["sasl.oauthbearer.config"] == "principal=alice"
    assert "secret" not in {*java.values(), *librdkafka.values()}


def properties_of(spec: ClusterSpec) -> dict[str, str]:
    ports = [BrokerPorts(client=1, internal=2, controller=3, proxied=4)] * spec.brokers
    return broker_properties(
        spec,
        index=0,
        log_dir=Path("/log"),
        ports=ports,
        credentials=Credentials(users={}, broker_password=""),
        tls=None,
    )
