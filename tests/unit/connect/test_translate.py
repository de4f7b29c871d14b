"""Connectors become the configuration a file would give; those that cannot say why."""

from __future__ import annotations

import pytest

from heliograph.config.load import real_environment
from heliograph.config.mm2.properties import Property
from heliograph.config.schema import MirrorConfig
from heliograph.config.secrets import ENV_PROVIDER, Environment
from heliograph.connect.model import Connector
from heliograph.connect.translate import Translation, errors_of, translate
from heliograph.model import ClusterAlias, FlowId
from tests.unit.connect.files import connector, guide_connectors, guide_files

AB = FlowId(source=ClusterAlias("msksource"), target=ClusterAlias("mskdest"))
MSC, CPC, HBC = guide_files().values()


def translated(*connectors: Connector, base: tuple[Property, ...] = ()) -> Translation:
    return translate(connectors, base, real_environment())


def config_of(*connectors: Connector) -> MirrorConfig:
    found = translated(*connectors)
    assert found.problems == {}
    return found.config


def errors(document: dict[str, object]) -> dict[str, tuple[str, ...]]:
    return dict(errors_of(connector("c", document), [], [], env()))


def env(**variables: str) -> Environment:
    return Environment(environment=variables, read_bytes=real_environment().read_bytes)


def test_the_three_connectors_of_a_guide_are_one_flow() -> None:
    config = config_of(*guide_connectors())

    flow = config.flow(AB)
    assert [each.id for each in config.flows] == [AB]
    assert flow.topics == (r"(?a)^ExampleTopic[\w]*",)
    assert flow.policy.keeps_names
    assert flow.tasks_max == 4
    assert (flow.heartbeats.enabled, flow.heartbeats.interval_s) == (True, 20)
    assert (flow.checkpoints.enabled, flow.checkpoints.interval_s) == (True, 20)
    assert config.clusters[AB.source].bootstrap_servers == ("127.0.0.1:1",)


def test_what_does_nothing_is_told_and_refuses_nothing() -> None:
    notes = "\n".join(translated(*guide_connectors()).notes)

    assert "connector mm2-msc: clusters: is unknown and does nothing, as in Connect" in notes
    assert "mm2-msc: source.cluster.max.poll.records: does nothing, as in MirrorMaker 2" in notes
    assert "mm2-msc: refresh.groups.interval.seconds: does nothing here: it is for a" in notes


def test_each_part_of_a_flow_is_on_only_with_its_connector() -> None:
    source = config_of(connector("mm2-msc", MSC)).flow(AB)
    heartbeats = config_of(connector("mm2-hbc", HBC)).flow(AB)

    assert (source.enabled, source.heartbeats.enabled, source.checkpoints.enabled) == (
        True,
        False,
        False,
    )
    assert (heartbeats.enabled, heartbeats.heartbeats.enabled) == (False, True)


def test_heartbeats_need_no_brokers_of_the_source() -> None:
    without = {k: v for k, v in HBC.items() if k != "source.cluster.bootstrap.servers"}

    config = config_of(connector("mm2-hbc", without))

    assert config.flow(AB).heartbeats.enabled


def test_connectors_may_have_several_targets() -> None:
    other = {
        **MSC,
        "target.cluster.alias": "C",
        "target.cluster.bootstrap.servers": "127.0.0.1:3",
    }

    config = config_of(connector("mm2-msc", MSC), connector("other", other))

    assert {str(each.id) for each in config.flows} == {"msksource->mskdest", "msksource->C"}


def test_no_connector_is_a_mirror_without_flows() -> None:
    config = config_of()

    assert (config.flows, dict(config.clusters)) == ((), {})


def test_a_connector_that_cannot_run_keeps_no_other_from_running() -> None:
    bad = connector("bad", {**MSC, "source.cluster.alias": "X", "tasks.max": "many"})

    found = translated(bad, *guide_connectors())

    assert [each.id for each in found.config.flows] == [AB]
    assert found.problems == {"bad": {"tasks.max": ("tasks.max: is `many`, not a whole number",)}}


def test_a_second_connector_for_the_same_flow_is_refused() -> None:
    found = translated(*guide_connectors(), connector("again", MSC))

    (sentence,) = found.problems["again"]["source.cluster.alias"]
    assert sentence.startswith("connector mm2-msc is the MirrorSourceConnector of msksource->msk")


def test_an_alias_is_one_cluster_for_all_flows() -> None:
    other = {
        **MSC,
        "source.cluster.bootstrap.servers": "127.0.0.1:9",
        "target.cluster.alias": "C",
    }

    found = translated(*guide_connectors(), connector("other", other))

    (sentence,) = found.problems["other"]["source.cluster.bootstrap.servers"]
    assert "connector mm2-msc says something else of msksource" in sentence


def test_within_a_flow_the_source_connector_says_what_its_clusters_are() -> None:
    moved = {**MSC, "source.cluster.bootstrap.servers": "127.0.0.1:9"}

    config = config_of(*guide_connectors()[1:], connector("mm2-msc", moved))

    assert config.clusters[AB.source].bootstrap_servers == ("127.0.0.1:9",)


@pytest.mark.parametrize(
    ("change", "key", "sentence"),
    [
        ({"source.cluster.alias": " "}, "source.cluster.alias", "Missing required configuration"),
        ({"target.cluster.alias": "a b"}, "target.cluster.alias", "Invalid value for configur"),
        ({"target.cluster.alias": "msksource"}, "target.cluster.alias", "source and target are"),
        ({"target.cluster.bootstrap.servers": ""}, "target.cluster.bootstrap.servers", "Missing"),
        ({"target.cluster.bootstrap.servers": "x"}, "target.cluster.bootstrap.servers", "is `x`"),
        ({"topics": "("}, "topics", "topics: is"),
        ({"transforms": "mask"}, "transforms", "`mask` has no type"),
        ({"replication.policy.class": "a.B"}, "replication.policy.class", "a Java class that"),
        (
            {"source.cluster.sasl.jaas.config": "********"},
            "source.cluster.sasl.jaas.config",
            "mask",
        ),
        (
            {"failover.before.command": "/bin/true"},
            "failover.before.command",
            "only taken from a f",
        ),
        ({"failover.webhook.url": "http://x/"}, "failover.webhook.url", "only taken from a file"),
        ({"topics": "${env:T}"}, "topics", "needs `env` in `config.providers`"),
    ],
)
def test_a_mistake_is_told_under_its_key(change: dict[str, str], key: str, sentence: str) -> None:
    found = errors({**MSC, **change})

    assert list(found) == [key]
    assert any(sentence in each for each in found[key]), found


def test_references_are_resolved_by_the_providers_of_the_worker_and_never_quoted() -> None:
    base = tuple(
        Property(key=key, value=value, line=line)
        for line, (key, value) in enumerate(
            [("config.providers", "env"), ("config.providers.env.class", ENV_PROVIDER)], 1
        )
    )
    secret = connector("mm2-msc", {**MSC, "tasks.max": "${env:TASKS}"})

    good = translate([secret], base, env(TASKS="7"))
    bad = translate([secret], base, env(TASKS="hunter2"))

    assert good.config.flow(AB).tasks_max == 7
    assert "hunter2" not in str(bad.problems)
    assert "${env:TASKS}" in str(bad.problems)


def test_security_of_a_role_reaches_its_client() -> None:
    config = config_of(connector("mm2-msc", {**MSC, "source.consumer.security.protocol": "SSL"}))

    cluster = config.clusters[AB.source]
    assert cluster.security_of("consumer").protocol == "SSL"
    assert cluster.security_of("admin").protocol == "PLAINTEXT"
