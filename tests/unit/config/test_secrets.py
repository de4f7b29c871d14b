"""Secrets stay hidden, references lead where the providers say."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from heliograph.config.load import load_config
from heliograph.config.secrets import Secret, is_secret_key
from heliograph.errors import ConfigError
from tests.unit.config.texts import TWO_CLUSTERS, config_of, problems_of

PROVIDERS = """\
config.providers = file, env, dir
config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider
config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.dir.class = org.apache.kafka.common.config.provider.DirectoryConfigProvider
"""
JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="u" password="hunter2";'
)
SECURED = f"""\
{TWO_CLUSTERS}A.security.protocol = SASL_PLAINTEXT
A.sasl.mechanism = PLAIN
A.sasl.jaas.config = {JAAS}
A.consumer.sasl.jaas.config = {JAAS.replace("hunter2", "hunter3")}
A.ssl.keystore.password = hunter4
A.consumer.interceptor.password = hunter5
"""


def test_a_secret_masks_itself_everywhere_but_in_reveal() -> None:
    secret = Secret("hunter2")

    shown = [repr(secret), str(secret), f"{secret}", f"{[secret]}", repr({"a": secret})]

    assert not any("hunter2" in text for text in shown)
    assert secret.reveal() == "hunter2"


def test_a_secret_pickles_and_stays_masked() -> None:
    back = pickle.loads(pickle.dumps(Secret("hunter2")))

    assert back == Secret("hunter2")
    assert back != Secret("hunter3")
    assert back != "hunter2"
    assert hash(back) == hash(Secret("hunter2"))
    assert "hunter2" not in repr(back)


def test_a_configuration_pickles_and_no_way_to_print_it_shows_a_secret() -> None:
    config = config_of(SECURED)

    back = pickle.loads(pickle.dumps(config))

    assert back == config
    assert back.clusters["A"].security.sasl.password.reveal() == "hunter2"
    assert back.clusters["A"].role_security["consumer"].sasl.password.reveal() == "hunter3"
    for shown in (repr(back), str(back), repr(back.clusters), repr(back.flows), str(back.notes)):
        assert "hunter" not in shown
    security = back.clusters["A"].security
    assert "hunter" not in security.model_dump_json() + repr(security.model_dump())


def test_security_never_stays_among_plain_client_overrides() -> None:
    cluster = config_of(SECURED).clusters["A"]  # type: ignore[index]

    assert set(cluster.consumer) == {"interceptor.password"}


@pytest.mark.parametrize(
    "name",
    [
        "ssl.key.password",
        "sasl.jaas.config",
        "ssl.keystore.key",
        "x.client.secret",
        "aws.token",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "spark.ssl.keyPassword",
        "spark.hadoop.fs.s3a.access.key",
        "basic.auth.user.info",
    ],
)
def test_names_of_secrets_are_recognised(name: str) -> None:
    assert is_secret_key(name)


@pytest.mark.parametrize(
    "name",
    [
        "sasl.mechanism",
        "topics",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.assertion.private.key.file",
        "key.converter",
        "inter.worker.key.size",
    ],
)
def test_other_names_are_not(name: str) -> None:
    assert not is_secret_key(name)


def test_references_to_files_environment_and_directories_are_replaced() -> None:
    lines = (
        "A->B.topics = ${file:/etc/mm2/a.properties:topics}\n"
        "A->B.topics.exclude = ${env:EXCLUDE}-${env:EXCLUDE}\n"
        "replication.factor = ${dir:/etc/mm2/factors:default}\n"
    )
    files = {"/etc/mm2/a.properties": b"topics = orders.*", "/etc/mm2/factors/default": b"3\n"}

    config = config_of(TWO_CLUSTERS + PROVIDERS + lines, files, {"EXCLUDE": "x"})

    flow = config.flows[0]
    assert flow.topics == ("orders.*",)
    assert flow.topics_exclude == ("x-x",)
    assert flow.replication_factor == 3


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("topics = ${vault:a:b}", "`${vault:a:b}` needs `vault` in `config.providers`"),
        (
            "topics = ${file:/none:k}",
            "`${file:/none:k}` cannot be resolved: /none: No such file or directory",
        ),
        ("topics = ${file:/f:other}", "`${file:/f:other}` cannot be resolved: /f has no `other`"),
        ("topics = ${file:k}", "`${file:k}` cannot be resolved: the path is missing"),
        ("topics = ${env:NOPE}", "`${env:NOPE}` cannot be resolved: the environment has no `NOPE`"),
        (
            "topics = ${file:/bad:k}",
            "`${file:/bad:k}` cannot be resolved: line 1 of /bad: "
            "\\u needs four hexadecimal digits after it",
        ),
        (
            "topics = ${env:some/path:HOME}",
            "`${env:some/path:HOME}` cannot be resolved: the environment has no paths",
        ),
        (
            "topics = ${dir:/d:../f}",
            "`${dir:/d:../f}` cannot be resolved: "
            "`../f` is not the name of a file in the directory",
        ),
        (
            "topics = ${dir:/d:x}",
            "`${dir:/d:x}` cannot be resolved: /d/x: No such file or directory",
        ),
    ],
)
def test_a_reference_that_leads_nowhere_is_reported(line: str, sentence: str) -> None:
    files = {"/f": b"k = v", "/bad": b"k = \\u12"}

    assert problems_of(TWO_CLUSTERS + PROVIDERS + line, files) == [f"line 9  topics: {sentence}"]


def test_a_wrong_value_from_a_provider_is_not_quoted() -> None:
    lines = "tasks.max = ${env:PIN}\nA->B.topics = ${env:TOPICS}\n"

    problems = problems_of(
        TWO_CLUSTERS + PROVIDERS + lines, environment={"PIN": "hunter2", "TOPICS": "hunter3["}
    )

    assert problems == [
        "line 9   tasks.max: is `${env:PIN}`, not a whole number",
        "line 10  A->B.topics: is `${env:TOPICS}`, not a regex: unterminated character set",
    ]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (
            "config.providers = file",
            "config.providers: `file` has no class; set `config.providers.file.class`",
        ),
        (
            "config.providers.x.class = y",
            "config.providers.x.class: `x` is not in `config.providers`",
        ),
    ],
)
def test_a_provider_that_is_half_declared_is_reported(lines: str, problem: str) -> None:
    assert problems_of(TWO_CLUSTERS + lines) == [f"line 5  {problem}"]


def test_a_provider_class_of_java_alone_is_reported_with_those_that_can_run() -> None:
    lines = "config.providers = v\nconfig.providers.v.class = com.example.Vault\n"

    (problem,) = problems_of(TWO_CLUSTERS + lines)

    assert problem.startswith(
        "line 6  config.providers.v.class: is `com.example.Vault`, a class that cannot run here; "
        "these can: `org.apache.kafka.common.config.provider.FileConfigProvider`, "
    )


def test_an_unknown_parameter_of_a_provider_is_reported() -> None:
    lines = PROVIDERS + "config.providers.file.param.allowed = /etc\n"

    assert problems_of(TWO_CLUSTERS + lines) == [
        "line 9  config.providers.file.param.allowed: unknown key; "
        "a provider has `class` and `param.allowed.paths` and `param.allowlist.pattern`"
    ]


def test_a_provider_opens_only_what_it_is_allowed_to() -> None:
    lines = (
        f"{PROVIDERS}config.providers.file.param.allowed.paths = /etc/mm2\n"
        "config.providers.env.param.allowlist.pattern = MM2_.*\n"
        "topics = ${file:/etc/mm2/../shadow:k}\n"
        "groups = ${env:HOME}\n"
        "topics.exclude = ${file:/etc/mm2/ok:k},${env:MM2_X}\n"
    )
    files = {"/etc/shadow": b"k=v", "/etc/mm2/../shadow": b"k=v", "/etc/mm2/ok": b"k=v"}

    problems = problems_of(TWO_CLUSTERS + lines, files, {"HOME": "/", "MM2_X": "y"})

    assert problems == [
        "line 11  topics: `${file:/etc/mm2/../shadow:k}` cannot be resolved: "
        "/etc/mm2/../shadow is not under `allowed.paths`",
        "line 12  groups: `${env:HOME}` cannot be resolved: "
        "`HOME` does not match `allowlist.pattern`",
    ]


def test_an_empty_path_to_the_environment_is_no_path() -> None:
    text = TWO_CLUSTERS + PROVIDERS + "topics = ${env::TOPICS}\n"

    assert config_of(text, environment={"TOPICS": "orders"}).flows[0].topics == ("orders",)


def test_the_key_of_a_reference_may_hold_colons() -> None:
    text = TWO_CLUSTERS + PROVIDERS + "topics = ${file:/f:a:b}\n"

    assert config_of(text, {"/f": b"a\\:b = orders"}).flows[0].topics == ("orders",)


def test_what_a_reference_leads_to_is_not_resolved_again() -> None:
    text = TWO_CLUSTERS + PROVIDERS + "A.consumer.client.id = ${env:OUTER}\n"
    environment = {"OUTER": "${env:INNER}", "INNER": "x"}

    config = config_of(text, environment=environment)

    assert config.clusters["A"].consumer == {"client.id": "${env:INNER}"}  # type: ignore[index]


def test_what_is_read_is_what_was_allowed_even_behind_a_link() -> None:
    lines = (
        f"{PROVIDERS}config.providers.dir.param.allowed.paths = /etc/mm2/\n"
        "topics = ${dir:/etc/mm2/link/..:topics}\n"
    )
    files = {"/etc/mm2/topics": b"allowed", "/etc/mm2/link/../topics": b"elsewhere"}

    assert config_of(TWO_CLUSTERS + lines, files).flows[0].topics == ("allowed",)


def test_an_allowed_path_must_be_absolute() -> None:
    lines = f"{PROVIDERS}config.providers.file.param.allowed.paths = /etc, secrets\n"

    assert problems_of(TWO_CLUSTERS + lines) == [
        "line 9  config.providers.file.param.allowed.paths: is `/etc, secrets`, "
        "where every path must be absolute"
    ]


def test_an_empty_list_of_allowed_paths_allows_all() -> None:
    lines = f"{PROVIDERS}config.providers.file.param.allowed.paths =\ntopics = ${{file:/f:k}}\n"

    assert config_of(TWO_CLUSTERS + lines, {"/f": b"k=v"}).flows[0].topics == ("v",)


def test_an_unresolved_value_is_reported_once_and_not_missed_again() -> None:
    text = PROVIDERS + (
        "clusters = A, B\n"
        "A.bootstrap.servers = ${env:A_SERVERS}\n"
        "B.bootstrap.servers = b:1\n"
        "A->B.enabled = ${env:ON}\n"
        "B.security.protocol = SASL_SSL\n"
        "B.sasl.mechanism = PLAIN\n"
        "B.sasl.jaas.config = ${env:JAAS}\n"
    )

    problems = problems_of(text)

    assert [problem.split(":")[0] for problem in problems] == [
        "line 6   A.bootstrap.servers",
        "line 8   A->B.enabled",
        "line 11  B.sasl.jaas.config",
    ]


def test_a_real_file_and_the_real_environment_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.properties").write_text(f"jaas = {JAAS}\n")
    monkeypatch.setenv("HELIOGRAPH_TEST_TOPICS", "orders")
    path = tmp_path / "mm2.properties"
    path.write_text(
        f"{TWO_CLUSTERS}{PROVIDERS}topics = ${{env:HELIOGRAPH_TEST_TOPICS}}\n"
        "A.security.protocol = SASL_PLAINTEXT\nA.sasl.mechanism = PLAIN\n"
        f"A.sasl.jaas.config = ${{file:{tmp_path}/a.properties:jaas}}\n"
    )

    config = load_config(path)

    assert config.flows[0].topics == ("orders",)
    password = config.clusters[config.flows[0].id.source].security.sasl.password
    assert password == Secret("hunter2")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.properties")

    assert str(caught.value) == (
        f"{tmp_path}/none.properties: 1 problem\n  cannot be read: No such file or directory"
    )
