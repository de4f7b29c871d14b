"""What a session keeps to itself: variables with secrets, and whether credentials will travel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark import SparkConf

from heliograph.config.schema import ClusterConfig, EngineConfig
from heliograph.config.secrets import Secret
from heliograph.config.security import SaslConfig, SecurityConfig
from heliograph.engine.session import _conf, _encrypts, _environment_without, _holds_secrets
from heliograph.model import ClusterAlias

SCRAM = SecurityConfig(
    protocol="SASL_SSL",
    sasl=SaslConfig(mechanism="SCRAM-SHA-512", username="mirror", password=Secret("hidden")),
)


def cluster(**fields: object) -> ClusterConfig:
    return ClusterConfig.model_validate(
        {"alias": ClusterAlias("A"), "bootstrap_servers": ("a:9092",), **fields}
    )


def test_credentials_of_a_cluster_or_of_one_role_are_seen() -> None:
    assert not _holds_secrets(cluster())
    assert _holds_secrets(cluster(security=SCRAM))
    assert _holds_secrets(cluster(role_security={"producer": SCRAM}))


def test_secret_variables_are_away_while_a_process_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MIRROR_PASSWORD", "hidden")

    with _environment_without({"MIRROR_PASSWORD", "NEVER_SET"}):
        seen = os.environ.get("MIRROR_PASSWORD")

    assert seen is None
    assert os.environ["MIRROR_PASSWORD"] == "hidden"
    assert "NEVER_SET" not in os.environ


@pytest.mark.parametrize(
    ("settings", "encrypts"),
    [
        ({}, False),
        ({"spark.authenticate": "true"}, False),
        ({"spark.network.crypto.enabled": "TRUE"}, True),
        ({"spark.ssl.rpc.enabled": "true"}, True),
    ],
)
def test_spark_encrypts_only_where_it_was_told_to(settings: dict[str, str], encrypts: bool) -> None:
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)

    assert _encrypts(conf) is encrypts


@pytest.mark.parametrize(
    ("has_secrets", "asked", "encrypted"),
    [(False, {}, None), (True, {}, "true"), (True, {"spark.io.encryption.enabled": "no"}, "no")],
)
def test_blocks_with_credentials_are_encrypted_on_disk_unless_the_operator_says_otherwise(
    tmp_path: Path, has_secrets: bool, asked: dict[str, str], encrypted: str | None
) -> None:
    """A slot's order is a broadcast block, and Spark moves blocks to disk when memory is short."""
    given = SparkConf(loadDefaults=False)

    conf = _conf(EngineConfig(spark=asked), tmp_path, given, has_secrets=has_secrets)

    assert conf.get("spark.io.encryption.enabled") == encrypted
