"""A `KafkaMirrorMaker2` says the same as an `mm2.properties`, and what is wrong has its path."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trustme

from heliograph.config.schema import MirrorConfig
from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias, FlowId
from tests.unit.config.texts import around, config_of, parse_config

EAST, WEST = ClusterAlias("east"), ClusterAlias("west")
FLOW = FlowId(source=EAST, target=WEST)

NEW = """\
apiVersion: kafka.strimzi.io/v1
kind: KafkaMirrorMaker2
metadata:
  name: to-west
spec:
  version: 4.3.1
  replicas: 2
  target:
    alias: west
    bootstrapServers: w1:9092
    groupId: to-west
    configStorageTopic: __to-west-config
    offsetStorageTopic: __to-west-offset
    statusStorageTopic: __to-west-status
    config:
      offset.storage.replication.factor: -1
      producer.client.id: carrier
      slots: 3
  mirrors:
    - source:
        alias: east
        bootstrapServers: e1:9092,e2:9092
        config:
          consumer.client.rack: r1
      sourceConnector:
        tasksMax: 4
        config:
          topics: nothing
          replication.factor: -1
          offset-syncs.topic.location: target
          start.at: latest
      checkpointConnector:
        tasksMax: 1
        config:
          sync.group.offsets.enabled: "true"
          offset-syncs.topic.location: target
      topicsPattern: "orders.*,pay"
      topicsExcludePattern: "pay-test"
      groupsPattern: "billing"
"""
AS_PROPERTIES = """\
clusters = east, west
east.bootstrap.servers = e1:9092,e2:9092
east.security.protocol = PLAINTEXT
east.consumer.client.rack = r1
west.bootstrap.servers = w1:9092
west.security.protocol = PLAINTEXT
west.group.id = to-west
west.offset.storage.topic = __to-west-offset
west.offset.storage.replication.factor = -1
west.producer.client.id = carrier
slots = 3
emit.heartbeats.enabled = false
east->west.enabled = true
east->west.tasks.max = 4
east->west.replication.factor = -1
east->west.offset-syncs.topic.location = target
east->west.start.at = latest
east->west.sync.group.offsets.enabled = true
east->west.topics = orders.*,pay
east->west.topics.exclude = pay-test
east->west.groups = billing
east->west.emit.heartbeats.enabled = false
"""
OLD = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata:
  name: to-west
spec:
  connectCluster: west
  clusters:
    - alias: east
      bootstrapServers: e1:9092
    - alias: west
      bootstrapServers: w1:9092
      config:
        group.id: mine
  mirrors:
    - sourceCluster: east
      targetCluster: west
      sourceConnector: {}
      heartbeatConnector:
        config:
          emit.heartbeats.interval.seconds: 5
      topicsBlacklistPattern: "old"
"""
OLD_AS_PROPERTIES = """\
clusters = east, west
east.bootstrap.servers = e1:9092
east.group.id = mirrormaker2-cluster
east.offset.storage.topic = mirrormaker2-cluster-offsets
west.bootstrap.servers = w1:9092
west.group.id = mine
west.offset.storage.topic = mirrormaker2-cluster-offsets
emit.heartbeats.enabled = false
east->west.enabled = true
east->west.topics.exclude = old
east->west.emit.checkpoints.enabled = false
east->west.emit.heartbeats.enabled = true
east->west.emit.heartbeats.interval.seconds = 5
"""


def of_resource(
    text: str,
    files: Mapping[str, bytes] | None = None,
    environment: Mapping[str, str] | None = None,
) -> MirrorConfig:
    return parse_config(text, source="mirror.yaml", around=around(files, environment))


def problems_of(text: str, files: Mapping[str, bytes] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        of_resource(text, files)
    return list(caught.value.problems)


@pytest.mark.parametrize(
    ("resource", "properties"), [(NEW, AS_PROPERTIES), (OLD, OLD_AS_PROPERTIES)]
)
def test_both_layouts_load_into_the_same_model_as_properties(
    resource: str, properties: str
) -> None:
    found = of_resource(resource)

    assert found.model_copy(update={"notes": ()}) == config_of(properties).model_copy(
        update={"notes": ()}
    )


def test_fields_for_the_operator_are_noted_once() -> None:
    found = of_resource(NEW + "  jvmOptions: {-Xmx: 1g}\n")

    assert (
        "line 6  spec: do nothing here: they are for Strimzi's operator: `version`, `replicas`, "
        "`jvmOptions`"
    ) in found.notes


@pytest.mark.parametrize("field", ["state: paused", "state: stopped", "pause: true"])
def test_a_connector_that_is_stopped_mirrors_nothing(field: str) -> None:
    second = OLD.replace(
        "  mirrors:\n", "    - {alias: south, bootstrapServers: s1:9092}\n  mirrors:\n"
    )
    text = second + (
        "    - sourceCluster: south\n"
        "      targetCluster: west\n"
        f"      sourceConnector: {{{field}}}\n"
    )

    found = of_resource(text)

    assert [flow.id for flow in found.flows] == [FLOW]
    assert any(f"is `{field.split()[1]}`, so the connector's work" in note for note in found.notes)


def test_other_resources_of_the_same_file_are_passed_over() -> None:
    found = of_resource(f"apiVersion: v1\nkind: Secret\ndata: {{}}\n---\n{NEW}")

    assert [flow.id for flow in found.flows] == [FLOW]
    assert "line 1   kind: `Secret` is not read, only KafkaMirrorMaker2" in found.notes


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "topicsPattern",
            "topicPattern",
            "line 37  spec.mirrors[0].topicPattern: unknown field; did you mean `topicsPattern`?",
        ),
        ("    alias: west\n", "", "line 9  spec.target.alias: missing"),
        ("kafka.strimzi.io/v1\n", "kafka.strimzi.io/v2\n", "line 1  apiVersion: is `kafka"),
        ("kind: KafkaMirrorMaker2", "kind: Kafka", "line 1  kind: is `Kafka`, not KafkaMirror"),
        ("      sourceConnector:", "      sinkConnector:", "line 25  spec.mirrors[0].sinkConnect"),
        ("tasksMax: 4", "tasksMax: [4]", "line 26  spec.mirrors[0].sourceConnector.tasksMax: nee"),
        ("          start.at: latest", "          strat.at: latest", "line 31  east->west.strat.a"),
        ("      slots: 3", "      slot: 3", "line 18  west.slot: unknown key"),
        (
            "          offset-syncs.topic.location: target\n      topicsP",
            "          offset-syncs.topic.location: source\n      topicsP",
            "line 36  spec.mirrors[0].checkpointConnector.config.offset-syncs.topic.location: "
            "differs from line 30; a flow has one value for all connectors",
        ),
        ("- source:\n", "- alias: x\n      source:\n", "line 20  spec.mirrors[0].alias: unknown"),
        ("  mirrors:", "  mirrored:", "line 6   spec.mirrors: missing"),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_path(before: str, after: str, said: str) -> None:
    assert before in NEW

    problems = problems_of(NEW.replace(before, after))

    assert any(" ".join(line.split()).startswith(" ".join(said.split())) for line in problems), (
        problems
    )


def test_a_second_mirror_of_the_same_pair_is_refused() -> None:
    again = OLD[OLD.index("    - sourceCluster") :]

    problems = problems_of(OLD + again)

    assert problems == ["line 22  spec.mirrors[1]: is a second mirror east->west"]


def test_two_mirrors_in_one_file_are_refused() -> None:
    problems = problems_of(f"{NEW}---\n{OLD}")

    assert problems == ["line 41  kind: is a second KafkaMirrorMaker2; a file has one"]


SECURED = NEW.replace(
    "        config:\n          consumer.client.rack: r1\n",
    """\
        tls:
          trustedCertificates:
            - secretName: east-ca
              pattern: "*.crt"
        authentication:
          type: scram-sha-512
          username: mirror
          passwordSecret: {secretName: east-user, password: password}
""",
)
PEM = trustme.CA().cert_pem.bytes()
MOUNTED = {
    "/mnt/secrets/east-ca/ca.crt": PEM,
    "/mnt/secrets/east-ca/ca.p12": b"not asked for",
    "/mnt/secrets/east-ca/..data": b"of Kubernetes",
    "/mnt/secrets/east-user/password": b"hush",
}


def test_secrets_are_files_under_one_folder() -> None:
    elsewhere = {path.replace("/mnt/secrets", "/run/keys"): held for path, held in MOUNTED.items()}

    for found in (
        of_resource(SECURED, MOUNTED),
        of_resource(SECURED, elsewhere, {"HELIOGRAPH_SECRETS": "/run/keys"}),
    ):
        security = found.clusters[EAST].security
        assert security.protocol == "SASL_SSL"
        assert security.sasl.mechanism == "SCRAM-SHA-512"
        assert security.sasl.username == "mirror"
        assert security.sasl.password is not None
        assert security.sasl.password.reveal() == "hush"
        assert "hush" not in repr(found)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"/mnt/secrets/east-user/password": None}, "cannot be resolved"),
        ({path: None for path in MOUNTED if "east-ca" in path}, "/mnt/secrets/east-ca: No such"),
        ({"/mnt/secrets/east-ca/ca.crt": None}, "no file in /mnt/secrets/east-ca matches `*.crt`"),
    ],
)
def test_a_secret_that_is_not_mounted_is_a_problem(changed: Mapping[str, None], said: str) -> None:
    files = {path: held for path, held in MOUNTED.items() if path not in changed}

    (problem,) = problems_of(SECURED, files)

    assert said in problem
    assert "hush" not in problem


def test_a_secret_cannot_be_outside_its_folder() -> None:
    files = {**MOUNTED, "/mnt/other/password": b"x"}

    (problem,) = problems_of(
        SECURED.replace("secretName: east-user", "secretName: ../other"), files
    )

    assert problem.endswith("is `../other`, not a name: letters, digits, `.`, `_` and `-`")


def with_login(lines: str, files: Mapping[str, bytes] | None = None) -> MirrorConfig:
    login = f"        authentication: {lines}\n        config:\n"
    return of_resource(
        NEW.replace("        config:\n          consumer", login + "          consumer"), files
    )


def test_mutual_tls_takes_certificate_and_key_of_one_secret() -> None:
    issued = trustme.CA().issue_cert("mirror")
    files = {
        "/mnt/secrets/u/user.crt": issued.cert_chain_pems[0].bytes(),
        "/mnt/secrets/u/user.key": issued.private_key_pem.bytes(),
    }

    found = with_login(
        "{type: tls, certificateAndKey: {secretName: u, certificate: user.crt, key: user.key}}\n"
        "        tls: {}",
        files,
    )

    security = found.clusters[EAST].security
    assert security.protocol == "SSL"
    assert security.tls.key_pem is not None


def test_oauth_of_older_versions_is_kafkas_own() -> None:
    found = with_login(
        "{type: oauth, tokenEndpointUri: 'https://id/token', clientId: mirror, scope: kafka, "
        "clientSecret: {secretName: o, key: secret}}",
        {"/mnt/secrets/o/secret": b"hush"},
    )

    oauth = found.clusters[EAST].security.sasl.oauth
    assert oauth is not None
    assert (oauth.token_endpoint_url, oauth.client_id) == ("https://id/token", "mirror")


def test_custom_login_is_taken_as_written_and_strimzis_references_are_files() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    found = with_login(
        "{type: custom, sasl: true, config: {sasl.mechanism: PLAIN, sasl.jaas.config: "
        f'\'{module} username="u" password="${{strimzisecrets:ns/p:key}}";\'}}}}',
        {"/mnt/secrets/p/key": b"hush"},
    )

    sasl = found.clusters[EAST].security.sasl
    assert sasl.password is not None
    assert sasl.password.reveal() == "hush"


def test_declared_providers_of_strimzi_read_what_is_mounted() -> None:
    text = NEW.replace(
        "      slots: 3\n",
        """\
      config.providers: secrets,env
      config.providers.secrets.class: io.strimzi.kafka.KubernetesSecretConfigProvider
      config.providers.env.class: io.strimzi.kafka.EnvVarConfigProvider
      slots: ${env:SLOTS}
      producer.metadata.max.age.ms: ${secrets:kafka/ages:ms}
""",
    )

    found = of_resource(text, {"/mnt/secrets/ages/ms": b"77"}, {"SLOTS": "5"})

    assert found.engine.slots == 5
    assert found.clusters[WEST].producer["metadata.max.age.ms"] == "77"


def test_what_aliases_multiply_is_bounded() -> None:
    bomb = "x0: &x0 {" + ", ".join(f"k{n}: v" for n in range(100)) + "}\n"
    rows = "".join(f"    - {{<<: *x0, sourceCluster: {n}}}\n" for n in range(500))
    text = (
        f"apiVersion: kafka.strimzi.io/v1\nkind: KafkaMirrorMaker2\n{bomb}spec:\n  mirrors:\n{rows}"
    )

    problems = problems_of(text)

    assert any("holds more than 20000 keys and values" in line for line in problems)
