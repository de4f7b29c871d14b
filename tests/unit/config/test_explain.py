"""Every value is told with the line it came from, and no secret is."""

from __future__ import annotations

import pickle

from heliograph.config.explain import (
    Effective,
    Explanation,
    explain_clusters,
    explain_engine,
    explain_flow,
)
from heliograph.config.load import ExplainedConfig, parse_explained
from heliograph.model import ClusterAlias, FlowId
from tests.unit.config.texts import TWO_CLUSTERS, around

AB = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))
PROVIDERS = (
    "config.providers = env\n"
    "config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
)
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="hunter2";'
)
SECRETS = f"""\
{TWO_CLUSTERS}{PROVIDERS}A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = PLAIN
A.sasl.jaas.config = {JAAS}
A.consumer.sasl.jaas.config = ${{env:JAAS}}
A.ssl.keystore.password = hunter3
A.ssl.key.password = ${{env:PIN}}
A.consumer.interceptor.password = hunter4
A.consumer.interceptor.url = http://u:hunter5@host/
A.consumer.rack.hint = ${{env:PIN}}
A->B.key.converter.basic.auth.user.info = u:hunter6
spark.ssl.keyPassword = hunter7
spark.driver.extraJavaOptions = -Djavax.net.ssl.trustStorePassword=hunter8
spark.hadoop.fs.s3a.access.key = hunter9
listeners.https.ssl.key.password = hunter10
topics = ${{env:TOPICS}}
"""
ENVIRONMENT = {"JAAS": JAAS, "PIN": "hunter11", "TOPICS": "orders"}


def explained(text: str) -> ExplainedConfig:
    return parse_explained(text, source="mm2.properties", around=around(environment=ENVIRONMENT))


def with_lines(lines: str) -> ExplainedConfig:
    return explained(TWO_CLUSTERS + lines)


def everything(config: ExplainedConfig) -> list[Explanation]:
    flows = [each for pair in config.config.pairs for each in explain_flow(config, pair.id, {})]
    return [*explain_clusters(config), *flows, *explain_engine(config)]


def row(explanations: list[Explanation], about: str, part: str, name: str) -> Effective:
    (found,) = [each for each in explanations if (each.about, each.part) == (about, part)]
    (value,) = [value for value in found.values if value.name == name]
    return value


def said(value: Effective) -> tuple[str, str, int | None]:
    return value.value, value.source, value.line


def test_a_flows_value_is_told_with_the_key_that_decided_it() -> None:
    lines = "topics = everyones\ntasks.max = 3\nA->B.topics = mine, yours\n"

    told = everything(with_lines(lines))

    assert said(row(told, "A->B", "", "topics")) == ("mine, yours", "A->B.topics", 7)
    assert said(row(told, "B->A", "", "topics")) == ("everyones", "top level", 5)
    assert said(row(told, "A->B", "", "tasks.max")) == ("3", "top level", 6)
    assert said(row(told, "A->B", "", "replication.factor")) == ("2", "default", None)
    assert said(row(told, "A->B", "", "enabled")) == ("true", "A->B.enabled", 4)
    assert said(row(told, "A->B", "", "target.cluster.alias")) == ("B", "default", None)


def test_a_key_mirrormaker_2_drops_at_the_top_is_told_as_the_default() -> None:
    told = everything(with_lines("use.defaults.from = source\n"))

    assert said(row(told, "A->B", "", "use.defaults.from")) == ("target", "default", None)


def test_an_old_spelling_is_told_as_it_was_written() -> None:
    told = everything(with_lines("A->B.topics.blacklist = x\n"))

    assert said(row(told, "A->B", "", "topics.exclude")) == ("x", "A->B.topics.blacklist", 5)


def test_the_reading_consumer_is_told_as_mirrormaker_2_resolves_it() -> None:
    lines = (
        "A->B.consumer.fetch.max.bytes = 1\nA.consumer.fetch.max.bytes = 2\n"
        "A->B.consumer.max.partition.fetch.bytes = 3\nA.security.protocol = SSL\n"
        "A->B.read.committed = false\n"
    )
    defaults = {"fetch.max.bytes": "9", "fetch.max.wait.ms": "500"}

    told = list(explain_flow(with_lines(lines), AB, defaults))

    def reader(name: str) -> tuple[str, str, int | None]:
        return said(row(told, "A->B", "source consumer", name))

    assert reader("fetch.max.bytes") == ("2", "A.consumer.fetch.max.bytes", 6)
    assert reader("max.partition.fetch.bytes") == (
        "3",
        "A->B.consumer.max.partition.fetch.bytes",
        7,
    )
    assert reader("fetch.max.wait.ms") == ("500", "default", None)
    assert reader("auto.offset.reset") == ("earliest", "default", None)
    assert reader("isolation.level") == ("read_uncommitted", "A->B.read.committed", 9)
    assert reader("security.protocol") == ("SSL", "A.security.protocol", 8)


def test_a_flow_that_follows_its_consumers_isolation_says_so() -> None:
    told = everything(with_lines("A.consumer.isolation.level = read_uncommitted\n"))

    assert said(row(told, "A->B", "", "read.committed")) == (
        "false",
        "A.consumer.isolation.level",
        5,
    )


def test_every_client_of_a_flow_and_of_a_cluster_is_told() -> None:
    lines = (
        "B.producer.client.id = b\nA->B.producer.override.client.id = flow\n"
        "A->B.target.admin.client.id = admin\nA->B.producer.client.id = syncs\n"
        "B.ssl.protocol = TLS\n"
    )

    told = everything(with_lines(lines))

    def client(part: str) -> tuple[str, str, int | None]:
        return said(row(told, "A->B", part, "client.id"))

    assert client("target producer") == ("flow", "A->B.producer.override.client.id", 6)
    assert client("target admin") == ("admin", "A->B.target.admin.client.id", 7)
    assert client("offset syncs producer") == ("syncs", "A->B.producer.client.id", 8)
    assert said(row(told, "B", "producer", "client.id")) == ("b", "B.producer.client.id", 5)
    assert said(row(told, "B", "admin", "ssl.protocol")) == ("TLS", "B.ssl.protocol", 9)
    assert said(row(told, "A", "admin", "security.protocol")) == ("PLAINTEXT", "default", None)


def test_a_clusters_brokers_and_worker_are_told() -> None:
    told = everything(with_lines("offset.storage.topic = mine\nB.rebalance.timeout.ms = 5\n"))

    assert said(row(told, "A", "", "bootstrap.servers")) == (
        "a1:9092, a2:9092",
        "A.bootstrap.servers",
        2,
    )
    assert said(row(told, "B", "", "offset.storage.topic")) == ("mine", "top level", 5)
    assert not row(told, "B", "", "rebalance.timeout.ms").acts


def test_the_engine_is_told_with_sparks_own_settings() -> None:
    told = everything(with_lines("slots = 4\nspark.ui.enabled = false\n"))

    assert said(row(told, "engine", "", "slots")) == ("4", "top level", 5)
    assert said(row(told, "engine", "", "slots.cpus")) == ("0.25", "default", None)
    assert said(row(told, "engine", "", "spark.ui.enabled")) == ("false", "top level", 6)


def test_no_secret_is_told_wherever_it_stands() -> None:
    config = explained(SECRETS)

    told = everything(config)

    assert "hunter" not in repr(told)
    assert row(told, "A", "admin", "sasl.jaas.config").value == "********"
    assert row(told, "A->B", "source consumer", "sasl.jaas.config").line == 10
    assert row(told, "A->B", "source consumer", "interceptor.url").value == "********"


def test_what_came_through_a_provider_is_told_as_its_reference_unless_harmless() -> None:
    told = everything(explained(SECRETS))

    assert row(told, "A", "consumer", "rack.hint").value == "${env:PIN}"
    assert row(told, "A->B", "", "topics").value == "orders"


def test_where_values_came_from_is_kept_beside_the_model_not_inside() -> None:
    config = explained(SECRETS)

    travelling = pickle.dumps(config.config.clusters)

    assert b"resolution" not in travelling
    assert b"interceptor.url" in travelling
    assert "hunter" not in repr(config)
