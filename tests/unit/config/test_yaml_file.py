"""YAML says the same as `mm2.properties`, with the same problems at its own lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias, FlowId
from tests.unit.config.texts import around, config_of, parse_config

A, B = ClusterAlias("A"), ClusterAlias("B")
AB = FlowId(source=A, target=B)

TWO_CLUSTERS = """\
clusters:
  A:
    bootstrap.servers: [a1:9092, a2:9092]
  B:
    bootstrap.servers: b1:9092
flows:
  A->B:
    enabled: true
"""


def of_yaml(text: str, environment: dict[str, str] | None = None) -> MirrorConfig:
    surroundings = around(environment=environment)
    return parse_config(text, source="heliograph.yaml", around=surroundings)


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        of_yaml(text)
    return list(caught.value.problems)


def problems_with(lines: str) -> list[str]:
    """The problems of two clusters, one flow (lines 1 to 8), and `lines` (from 9 on)."""
    return problems_of(TWO_CLUSTERS + lines)


def test_both_formats_load_into_the_same_model() -> None:
    yaml = r"""
clusters:
  A:
    bootstrap.servers: [a1:9092, a2:9092]
    consumer:
      fetch.max.bytes: 1000
      isolation: {level: read_uncommitted}
  B:
    bootstrap: {servers: b1:9092}
    producer.client.id: "mirror"
flows:
  A->B:
    enabled: true
    topics: [orders.*, 'pay\.ments']
    topics.exclude: []
    replication.policy: {class: org.apache.kafka.connect.mirror.IdentityReplicationPolicy}
    on.topic.deleted: delete
engine:
  master: local[2]
  slots: 4
  slots.cpus: 0.5
  spark: {ui.enabled: false}
replication.factor: 3
tasks.max: "8"
"""
    properties = r"""
clusters = A, B
A.bootstrap.servers = a1:9092, a2:9092
A.consumer.fetch.max.bytes = 1000
A.consumer.isolation.level = read_uncommitted
B.bootstrap.servers = b1:9092
B.producer.client.id = mirror
A->B.enabled = true
A->B.topics = orders.*, pay\\.ments
A->B.topics.exclude =
A->B.replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
A->B.on.topic.deleted = delete
master = local[2]
slots = 4
slots.cpus = 0.5
spark.ui.enabled = false
replication.factor = 3
tasks.max = 8
"""

    assert of_yaml(yaml) == config_of(properties)


def test_the_aliases_may_be_a_list_and_the_clusters_stand_at_the_top() -> None:
    text = (
        "clusters: [A, flow1]\nA: {bootstrap.servers: 'a:1'}\n"
        "flow1: {bootstrap.servers: 'b:1'}\nA->flow1.enabled: true\n"
    )

    assert [str(flow.id) for flow in of_yaml(text).flows] == ["A->flow1"]


def test_json_is_yaml() -> None:
    text = (
        '{"clusters": {"A": {"bootstrap.servers": "a:1"}, "B": {"bootstrap.servers": "b:1"}},'
        ' "flows": {"A->B": {"enabled": true}}}'
    )

    assert [flow.id for flow in of_yaml(text).flows] == [AB]


def test_an_anchor_may_be_merged_and_what_stands_beside_it_wins() -> None:
    text = (
        "clusters: {A: {bootstrap.servers: 'a:1'}, B: {bootstrap.servers: 'b:1'}}\n"
        "flows:\n"
        "  A->B: &both\n    enabled: true\n    topics: orders\n    tasks.max: 2\n"
        "  B->A:\n    <<: *both\n    topics: payments\n"
    )

    forth, back = of_yaml(text).flows

    assert (forth.topics, forth.tasks_max) == (("orders",), 2)
    assert (back.topics, back.tasks_max) == (("payments",), 2)


def test_providers_are_named_and_described_in_one_place() -> None:
    lines = (
        "topics: ${env:TOPICS}\n"
        "config.providers:\n  env:\n"
        "    class: org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "    param: {allowlist.pattern: TOP.*}\n"
    )

    config = of_yaml(TWO_CLUSTERS + lines, {"TOPICS": "orders"})

    assert config.flow(AB).topics == ("orders",)


def test_pem_text_keeps_its_lines() -> None:
    lines = "A.consumer.note: |\n  one\n  two\n"

    assert of_yaml(TWO_CLUSTERS + lines).clusters[A].consumer == {"note": "one\ntwo"}


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("topcs: x", "line 9  topcs: unknown key; did you mean `topics`?"),
        ("    topcs: x", "line 9  A->B.topcs: unknown key; did you mean `A->B.topics`?"),
        (
            "  B->A:\n    sync:\n      topic.acl.enabled: true",
            "line 11  B->A.sync.topic.acl.enabled: unknown key; "
            "did you mean `B->A.sync.topic.acls.enabled`?",
        ),
        ("engine: {slot: 4}", "line 9  engine.slot: unknown key; did you mean `engine.slots`?"),
        (
            "engine: {topics: x}",
            "line 9  engine.topics: unknown key",
        ),
        ("flow: {B->A: {enabled: true}}", "line 9  flow: unknown key; did you mean `flows`?"),
        ("Engine: {slots: 4}", "line 9  Engine: unknown key; did you mean `engine`?"),
        ("  A->C: {enabled: true}", "line 9  A->C.enabled: `C` is not in `clusters` (A, B)"),
        (
            "  A->A: {enabled: true}",
            "line 9  A->A.enabled: source and target are the same cluster; "
            "its copies would be copied endlessly",
        ),
        ("replication.factor: two", "line 9  replication.factor: is `two`, not a whole number"),
        ("    topics: ['[']", "line 9  A->B.topics: is `[`, not a regex: unterminated character"),
        ("    enabled: false", "line 9  A->B.enabled: is already set on line 8"),
        ("flows: {}", "line 9  flows: is already set on line 6"),
        (
            "A->B: {enabled: true}",
            "line 9  A->B.enabled: is already set on line 8",
        ),
        ("  B->A: true", "line 9  flows.B->A: needs a mapping of its keys"),
        ("engine: 4", "line 9  engine: needs a mapping, as in `engine: {…}`"),
        ("topics:", 'line 9  topics: has no value; write "" for an empty one'),
        ("topics: [a, [b]]", "line 9  topics: a list holds plain values only"),
        (
            "topics: ['a{1,3}']",
            "line 9  topics: a list item holds a comma, where Kafka would split it",
        ),
        ("topics: !!binary aGk=", "line 9  topics: has a YAML tag, which is not supported"),
        ("topics: !!python/name:os.system x", "line 9  topics: has a YAML tag"),
        ("? [a, b]\n: c", "line 9  malformed: a key is plain text"),
        ("topics: 'x", "line 10  malformed: found unexpected end of stream"),
        (
            "topics: *orders",
            "line 9  malformed: an unknown YAML alias; put a value that begins with *",
        ),
        ("topics: @x", "line 9  malformed: found character '@' that cannot start any token"),
        ("---\ntopics: x", "line 10  malformed: a second YAML document"),
        ("<<: x", "line 9  malformed: `<<` needs a mapping"),
    ],
)
def test_a_mistake_is_reported_with_its_line(lines: str, problem: str) -> None:
    (said,) = problems_with(lines + "\n")

    assert said.startswith(problem)


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    lines = "topcs: x\nreplication.factor: two\nengine: {slot: 1}\n"

    assert [said.split(":")[0] for said in problems_with(lines)] == [
        "line 9   topcs",
        "line 10  replication.factor",
        "line 11  engine.slot",
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_is_reported(text: str) -> None:
    assert problems_of(text) == ["clusters: missing; name the aliases, as in `clusters = A, B`"]


def test_a_file_that_is_a_list_is_reported() -> None:
    assert problems_of("- a\n- b\n") == ["line 1  malformed: not a mapping of keys to values"]


def test_a_secret_that_looks_like_yaml_is_not_quoted() -> None:
    said = problems_with("A.ssl.key.password: *hunter2\n") + problems_with(
        "A.ssl.key.password: !hunter2!x y\n"
    )

    assert not any("hunter2" in problem for problem in said)


def test_aliases_of_aliases_are_bounded() -> None:
    lines = ["a0: &a0 {k0: x, k1: x, k2: x, k3: x, k4: x, k5: x, k6: x, k7: x, k8: x}"]
    lines += [
        f"a{level}: &a{level} {{{', '.join(f'k{k}: *a{level - 1}' for k in range(9))}}}"
        for level in range(1, 9)
    ]

    (problem,) = problems_of("\n".join(lines) + "\n")

    assert problem.endswith("malformed: holds more than 20000 keys and values")


def test_a_mapping_within_itself_is_bounded() -> None:
    assert problems_of("a: &a {b: *a}\n") == ["line 1  malformed: nested more than 12 levels deep"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: " + "[" * 1_000, "nested too deeply"),
        ("a: b\x00c\n", "holds characters that no YAML file may hold"),
        ("#" * (1024 * 1024 + 1), "has 1048577 characters, more than 1048576"),
    ],
)
def test_what_no_one_writes_by_hand_is_refused(text: str, problem: str) -> None:
    (said,) = problems_of(text)

    assert said.endswith(problem)


@pytest.mark.parametrize("name", ["heliograph.yaml", "mirror.YML"])
def test_the_ending_of_the_file_says_that_it_is_yaml(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("\ufeff" + TWO_CLUSTERS)

    assert [flow.id for flow in load_config(path).flows] == [AB]


def test_a_file_that_is_not_utf_8_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "heliograph.yaml"
    path.write_bytes(b"topics: caf\xe9\n")

    with pytest.raises(ConfigError) as caught:
        load_config(path)

    assert caught.value.problems == ("is not UTF-8",)


def test_a_tab_is_called_a_tab() -> None:
    problems = problems_of("clusters: [A, B]\nA:\n\tbootstrap.servers: a:1\n")

    assert problems == ["line 3  malformed: a tab; YAML is indented with spaces"]
