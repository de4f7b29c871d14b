"""Every mistake in a file is one sentence with its line, and all are told at once."""

from __future__ import annotations

import pytest

from heliograph.errors import ConfigError
from tests.unit.config.texts import TWO_CLUSTERS, config_of, problems_of, problems_with

DEFAULT_POLICY = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def test_all_problems_come_at_once_in_the_order_of_the_file() -> None:
    text = (
        f"{TWO_CLUSTERS}A->B.topcs = x\n\n\n\n\nslots.lease.ms.max = 500\n"
        "replication.factor = two\nA->B.topics = [\n"
    )

    with pytest.raises(ConfigError) as caught:
        config_of(text)

    assert str(caught.value) == (
        "mm2.properties: 4 problems\n"
        "  line 5   A->B.topcs: unknown key; did you mean `A->B.topics`?\n"
        "  line 10  slots.lease.ms.max: is 500, less than three progress reports\n"
        "  line 11  replication.factor: is `two`, not a whole number\n"
        "  line 12  A->B.topics: is `[`, not a regex: unterminated character set"
    )


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("topcs = x", "unknown key; did you mean `topics`?"),
        ("A.bootstrap.server = x:1", "unknown key; did you mean `A.bootstrap.servers`?"),
        ("A.sasl.mechanisms = PLAIN", "unknown key; did you mean `A.sasl.mechanism`?"),
        ("slot = 1", "unknown key; did you mean `slots`?"),
        ("xyzzy = 1", "unknown key"),
        ("A.topics = x", "belongs to a flow; write `A->B.topics`"),
        ("bootstrap.servers = x:1", "belongs to a cluster; write `A.bootstrap.servers`"),
        (
            "A->B.bootstrap.servers = x:1",
            "belongs to a cluster; write `A.bootstrap.servers` or `B.bootstrap.servers`",
        ),
        ("C.bootstrap.servers = x:1", "`C` is not in `clusters` (A, B)"),
        ("C.consumer.x = 1", "`C` is not in `clusters` (A, B)"),
        ("A->C.topics = x", "`C` is not in `clusters` (A, B)"),
        ("C->D.topics = x", "`C` and `D` are not in `clusters` (A, B)"),
        (
            "A->A.enabled = true",
            "source and target are the same cluster; its copies would be copied endlessly",
        ),
        (
            "A->B.security.protocol = SSL",
            "is set per cluster; write `A.security.protocol` or `B.security.protocol`",
        ),
        (
            "A->B.consumer.ssl.protocol = TLS",
            "is set per cluster; write `A.ssl.protocol` or `B.ssl.protocol`",
        ),
        (
            "A->B.source.cluster.ssl.protocol = TLS",
            "is set per cluster; write `A.ssl.protocol` or `B.ssl.protocol`",
        ),
        ("A.topics.blacklist = x", "belongs to a flow; write `A->B.topics.exclude`"),
        ("A->B.on.topic.delete = x", "unknown key; did you mean `A->B.on.topic.deleted`?"),
        (
            "source.cluster.bootstrap.servers = x:1",
            "configures a connector in Kafka Connect; here `clusters` names the clusters",
        ),
        ("A->B.enabled = true", "is already set on line 4"),
        ("A -> B.topics = x", "a key ends at its first space; write `A->…` without spaces"),
    ],
)
def test_a_key_out_of_place_is_reported(line: str, sentence: str) -> None:
    assert problems_with(line) == [f"line 5  {line.split(' ')[0]}: {sentence}"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("tasks.max = many", "is `many`, not a whole number"),
        ("tasks.max = 0", "is `0`, less than 1"),
        ("tasks.max = 3000000000", "is `3000000000`, more than 2147483647"),
        ("replication.factor = 0", "is `0`, neither a count nor -1 for the broker's default"),
        ("refresh.topics.enabled = yes", "is `yes`, not true or false"),
        (
            "emit.heartbeats.enabled = true  # why",
            "is `true  # why`, not true or false; a comment needs a line of its own",
        ),
        (
            "tasks.max = 4 # four",
            "is `4 # four`, not a whole number; a comment needs a line of its own",
        ),
        ("offsets = same", "is `same`, not one of mapped, preserve"),
        ("on.existing = wipe", "is `wipe`, not one of append, refuse"),
        ("on.retention.overrun = x", "is `x`, not one of stall, skip"),
        ("on.topic.recreated = x", "is `x`, not one of stall, restart"),
        ("A->B.offset-syncs.topic.location = both", "is `both`, not one of source, target"),
        ("metric.names.formats = legacy, old", "is `legacy, old`, not one of legacy, new"),
        ("slots.cpus = 0", "is `0`, not more than 0 and less than 1000"),
        ("slots.cpus = half", "is `half`, not a number"),
        ("slots.bytes.max = 5", "is `5`, less than 1048576"),
        ("slots.lease.ms.max = 500", "is 500, less than three progress reports"),
        ("A->B.topics = a, b[", "is `b[`, not a regex: unterminated character set"),
        ("topics = *", "is `*`, not a regex: nothing to repeat; did you mean `.*`?"),
        (
            "topics = a{1,3}",
            "is `a{1`, not a regex: { without a count; "
            "lists are split at every comma, also inside {}",
        ),
        (
            "groups = \\\\p{Greek}",
            r"is `\p{Greek}`, not a regex: \p{Greek} has no equal here; the ASCII classes have",
        ),
        (
            "replication.policy.class = com.example.P",
            "is `com.example.P`, a Java class that cannot run here; "
            f"`{DEFAULT_POLICY}` or `{IDENTITY_POLICY}` can, "
            "or a Python class written `module:Class`",
        ),
        (
            "replication.policy.separator =",
            "is ``, empty, so a topic's source could not be read from its name",
        ),
        (
            "A->B.source.cluster.alias = a b",
            "is `a b`, not allowed in a topic name: use letters, digits, `.`, `_`, `-`",
        ),
        (
            "A->B.topics = .*  # all",
            "is `.*  # all`, a regex followed by a comment; a comment needs a line of its own",
        ),
        ("A->B.on.topic.deleted = drop", "is `drop`, not one of keep, delete"),
        ("A->B.on.group.rewind = x", "is `x`, not one of follow, keep"),
        ("sync.topic.acls.mode = x", "is `x`, not one of follow, mirrormaker2"),
        ("A.consumer.fetch.max.wait.ms = 0", "is `0`, less than 1"),
        ("A->B.source.consumer.fetch.max.bytes = 0", "is `0`, less than 1"),
        (
            "A->B.transforms = mask",
            "`mask` has no type; set `A->B.transforms.mask.type`",
        ),
        (
            "A.consumer.auto.offset.reset = none",
            "is `none`, not one of earliest, latest, by_duration:PT1H",
        ),
        *(
            (
                f"A.consumer.auto.offset.reset = by_duration:{length}",
                f"is `{length}`, not a duration such as PT1H, PT90M or P1DT12H",
            )
            for length in ("1h", "PT", "P1DT", "-PT1H", "PT-1H", "P1Y", "PT1.5H")
        ),
        (
            "A.consumer.auto.offset.reset = by_duration:P366001D",
            "is `P366001D`, a duration of more than a thousand years",
        ),
        (
            "A.consumer.auto.offset.reset = 2026-01-31T04:03:00Z",
            "is `2026-01-31T04:03:00Z`, not one of earliest, latest, by_duration:PT1H",
        ),
        (
            "start.at = 2026-13-31T04:03:00Z",
            "is `2026-13-31T04:03:00Z`, not a time such as 2026-01-31T04:03:00Z",
        ),
        (
            "start.at = 2026-01-31T04:03:00",
            "is `2026-01-31T04:03:00`, a time without its zone: end it with Z or an offset such as "
            "+02:00",
        ),
        ("start.at = 1969-01-31T04:03:00Z", "is `1969-01-31T04:03:00Z`, a time before 1970"),
        (
            "A.consumer.auto.offset.reset = latest\nA->B.start.at = earliest",
            "is `latest`, while `A->B.start.at` on line 6 is earliest",
        ),
        (
            "A.consumer.isolation.level = dirty",
            "is `dirty`, not one of read_committed, read_uncommitted",
        ),
        ("A.consumer.fetch.max.bytes = 50MB", "is `50MB`, not a whole number"),
        ("A->B.producer.override.max.request.size = big", "is `big`, not a whole number"),
        (
            "A.security.protocol = TLS",
            "is `TLS`, not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ("rest.advertised.port = 70000", "is `70000`, more than 65535"),
        ("B.exactly.once.source.support = on", "is `on`, not one of disabled, preparing, enabled"),
    ],
)
def test_a_wrong_value_is_reported(line: str, sentence: str) -> None:
    assert problems_with(line) == [f"line 5  {line.split(' ')[0]}: {sentence}"]


def test_a_mistake_in_a_default_of_many_flows_is_told_once() -> None:
    text = (
        "clusters = A, B, C\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\n"
        "C.bootstrap.servers = c:1\nA->B.enabled = true\ntasks.max = x\nssl.cipher.suites = x\n"
        "security.protocol = SSL\n"
    )

    assert problems_of(text) == [
        "line 6  tasks.max: is `x`, not a whole number",
        "line 7  ssl.cipher.suites: is `x`, where `x` is unknown to OpenSSL",
    ]


def test_a_pair_of_unknown_clusters_is_told_once() -> None:
    lines = "A->C.enabled = true\nA->C.topics = x\nA->C.groups = y\n"

    assert problems_with(lines) == ["line 5  A->C.enabled: `C` is not in `clusters` (A, B)"]


@pytest.mark.parametrize(
    ("servers", "part"),
    [("b1", "b1"), ("b1:9092, b2:x", "b2:x"), ("b1:99999", "b1:99999"), ("b1:0", "b1:0")],
)
def test_brokers_without_a_port_are_reported(servers: str, part: str) -> None:
    text = TWO_CLUSTERS.replace("b1:9092", servers)

    assert problems_of(text) == [f"line 3  B.bootstrap.servers: is `{part}`, not `host:port`"]


def test_empty_brokers_are_reported() -> None:
    text = TWO_CLUSTERS.replace("b1:9092", "")

    assert problems_of(text) == ["line 3  B.bootstrap.servers: is ``, not one `host:port`"]


def test_missing_brokers_are_reported_at_the_line_of_the_clusters() -> None:
    text = "clusters = A, B\nA.bootstrap.servers = a:1\nA->B.enabled = true\n"

    assert problems_of(text) == ["line 1  clusters: `B` has no brokers; set `B.bootstrap.servers`"]


def test_missing_clusters_are_reported_and_the_rest_is_still_checked() -> None:
    text = TWO_CLUSTERS.replace("clusters = A, B", "A->B.topcs = x")

    assert problems_of(text) == [
        "        clusters: missing; name the aliases, as in `clusters = A, B`",
        "line 1  A->B.topcs: unknown key; did you mean `A->B.topics`?",
    ]


def test_an_empty_file_is_reported() -> None:
    assert problems_of("") == ["clusters: missing; name the aliases, as in `clusters = A, B`"]


def test_one_cluster_is_not_a_mirror() -> None:
    assert problems_of("clusters = A\nA.bootstrap.servers = a:1\n") == [
        "line 1  clusters: names one cluster; a mirror needs two"
    ]


def test_a_file_without_flows_and_heartbeats_is_reported() -> None:
    nothing = TWO_CLUSTERS.replace("true", "false") + "emit.heartbeats.enabled = false\n"

    assert problems_of(nothing) == [
        "line 1  clusters: no flow is enabled and no heartbeats are written; set "
        "`A->B.enabled = true`"
    ]


def test_a_file_without_flows_writes_heartbeats_and_says_so() -> None:
    config = config_of(TWO_CLUSTERS.replace("true", "false"))

    assert config.flows == ()
    assert len(config.pairs) == 2
    assert config.notes == (
        "line 1  clusters: no flow is enabled, so only heartbeats are written; "
        "`A->B.enabled = true` mirrors records",
    )


def test_a_switch_that_cannot_be_read_is_not_also_called_off() -> None:
    assert problems_of(TWO_CLUSTERS.replace("true", "ture")) == [
        "line 4  A->B.enabled: is `ture`, not true or false"
    ]


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("", "names no cluster"),
        ("A, B, A", "`A` is named twice"),
        (
            "A, B, c d",
            "`c d` cannot be an alias; an alias becomes part of topic names: "
            "letters, digits, `.`, `_` and `-`",
        ),
    ],
)
def test_aliases_that_cannot_be_are_reported(value: str, sentence: str) -> None:
    problems = problems_of(TWO_CLUSTERS.replace("A, B", value))

    assert f"line 1  clusters: {sentence}" in problems


def test_isolation_that_contradicts_read_committed_is_reported() -> None:
    lines = "read.committed = true\nA.consumer.isolation.level = read_uncommitted\n"

    assert problems_with(lines) == [
        "line 6  A.consumer.isolation.level: is `read_uncommitted`, "
        "while `read.committed` is true on line 5"
    ]


def test_offset_syncs_switched_off_and_described_are_a_contradiction() -> None:
    """MirrorSourceConnector.validate."""
    lines = "offset-syncs.topic.location = target\nA->B.emit.offset-syncs.enabled = false\n"

    assert problems_with(lines) == [
        "line 6  A->B.emit.offset-syncs.enabled: is `false`, "
        "while `offset-syncs.topic.location` on line 5 says how to write them"
    ]


def test_what_a_flow_that_is_off_emits_is_not_judged() -> None:
    lines = "offset-syncs.topic.location = target\nB->A.emit.offset-syncs.enabled = false\n"

    assert config_of(TWO_CLUSTERS + lines).notes == ()


def test_exactly_once_with_aborted_records_is_a_contradiction() -> None:
    lines = "A->B.exactly.once.support = required\nA->B.read.committed = false\n"

    assert problems_with(lines) == [
        "line 5  A->B.exactly.once.support: is `required`, "
        "while `A->B.read.committed` on line 6 asks for records of aborted transactions"
    ]


def test_a_malformed_escape_is_reported_with_its_line() -> None:
    assert problems_with("topics = \\u00g0\n") == [
        r"line 5  malformed: \u needs four hexadecimal digits after it"
    ]
