"""Which variables of the environment a configuration takes its secrets from."""

from __future__ import annotations

from pathlib import Path

from heliograph.config.secrets import Environment
from tests.unit.config.texts import parse_config

FILE = """
clusters = A, B
A.bootstrap.servers = ${env:SERVERS}
B.bootstrap.servers = b:9092
B.security.protocol = SASL_PLAINTEXT
B.sasl.mechanism = PLAIN
B.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required \\
  username="mirror" password="${env:PASSWORD}";
A->B.enabled = true
spark.ssl.keyPassword = ${env:KEY_WORD}
config.providers = env
config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider
"""


def test_variables_behind_secret_keys_are_known_and_others_are_not_touched() -> None:
    environment = {"SERVERS": "a:9092", "PASSWORD": "hidden", "KEY_WORD": "too", "HOME": "/root"}
    around = Environment(environment=environment, read_bytes=Path.read_bytes)

    config = parse_config(FILE, source="mm2.properties", around=around)

    assert config.secret_variables == {"PASSWORD", "KEY_WORD"}
