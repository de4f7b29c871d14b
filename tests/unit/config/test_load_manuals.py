"""Files as manuals of MirrorMaker 2 print them load, and mean what their readers meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.config.schema import MirrorConfig
from heliograph.model import ClusterAlias, StartAt
from tests.unit.config.texts import around, parse_config
from tests.unit.config.tls.test_java_security import CA_PEM, client_pkcs12

MANUALS = Path(__file__).parent / "manuals"
FILES = {
    "/etc/mm2/truststore.cluster-1.p12": CA_PEM.encode(),
    "/etc/mm2/user.cluster-1.p12": client_pkcs12(b"changeit"),
    "/opt/kafka/mm2-password/source/password": b"hunter2",
    "/opt/kafka/mm2-certs/source/ca.crt": CA_PEM.encode(),
}


def load(name: str) -> MirrorConfig:
    return parse_config(
        (MANUALS / name).read_text(),
        source=name,
        around=around(FILES, {"TARGET_BOOTSTRAP": "t:9093"}),
    )


@pytest.mark.parametrize(
    ("name", "flows"),
    [
        ("apache-example.properties", ["A->B", "B->A"]),
        ("apache-readme.properties", ["us-west->us-east"]),
        (
            "apache-operations.properties",
            ["us-west->us-east", "us-west->eu", "us-east->us-west"],
        ),
        ("kip-382.properties", ["primary->backup"]),
        ("red-hat.properties", ["cluster-1->cluster-2", "cluster-2->cluster-1"]),
        ("strimzi-converted.properties", ["my-source-cluster->my-target-cluster"]),
        ("msk-scram.properties", ["onprem->msk"]),
        ("hub-and-spokes.properties", ["paris->hub", "rome->hub", "oslo->hub"]),
    ],
)
def test_a_file_of_a_manual_loads(name: str, flows: list[str]) -> None:
    config = load(name)

    assert [str(flow.id) for flow in config.flows] == flows
    assert "hunter2" not in repr(config)


def test_every_file_is_looked_at() -> None:
    names = {path.name for path in MANUALS.iterdir()}

    assert len(names) == 9


def test_old_spellings_of_exclusions_exclude() -> None:
    flow = load("kip-382.properties").flows[0]

    assert flow.topics_exclude == (r".*[\-\.]internal", r".*\.replica", "__consumer_offsets")
    assert flow.groups.exclude == ("console-consumer-.*",)
    assert flow.config_properties_exclude == (r"min\.insync\.replicas",)


def test_secrets_mounted_as_files_arrive_in_the_login_module() -> None:
    config = load("strimzi-converted.properties")

    (flow,) = config.flows
    source, target = config.source_of(flow.id), config.target_of(flow.id)
    password = source.security.sasl.password
    assert password is not None
    assert password.reveal() == "hunter2"
    assert source.security.tls.ca_pem == CA_PEM
    assert not source.security.tls.check_hostname
    assert source.consumer == {"fetch.max.bytes": "52428800"}
    assert target.bootstrap_servers == ("t:9093",)
    assert target.worker.offset_storage_topic == "mirrormaker2-cluster-offsets"
    assert flow.topics == ("topic1|topic2|topic3",)


def test_a_key_at_the_top_that_mirrormaker_2_ignores_is_ignored_and_noted() -> None:
    config = load("hub-and-spokes.properties")

    assert {flow.start_at for flow in config.flows} == {StartAt.EARLIEST}
    assert any("consumer.auto.offset.reset: ignored here" in note for note in config.notes)
    assert [pair.heartbeats.enabled for pair in config.flows] == [True, False, False]


def test_the_region_of_amazon_msk_is_read_from_its_brokers_names() -> None:
    config = load("msk-iam.properties")

    oauth = config.clusters[ClusterAlias("target")].security.sasl.oauth
    assert oauth is not None
    assert oauth.aws is not None
    assert oauth.aws.region == "region"
