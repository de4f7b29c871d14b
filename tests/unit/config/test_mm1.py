"""MirrorMaker 1's options and files, one by one, and the combinations it refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from heliograph.config.findings import Findings
from heliograph.config.load import parse_explained
from heliograph.config.mm1 import (
    CommandLine,
    command_lines,
    load_command_line,
    written_as_file,
)
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.config.secrets import Environment
from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias, FlowId, StartAt

FILES = {
    "c.properties": "bootstrap.servers=a:1\ngroup.id=mirror\n",
    "d.properties": "bootstrap.servers=d:1\ngroup.id=other\n",
    "p.properties": "bootstrap.servers=b:1\n",
}
LINE = CommandLine(
    consumer_configs=(Path("c.properties"),),
    producer_config=Path("p.properties"),
    include="orders.*",
)


def around(**files: str) -> Environment:
    texts = {**FILES, **{f"{name}.properties": text for name, text in files.items()}}

    def read(path: Path) -> bytes:
        if path.name not in texts:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return texts[path.name].encode()

    return Environment(environment={}, read_bytes=read, names_in=lambda _: [])


def loaded(line: CommandLine = LINE, **files: str) -> MirrorConfig:
    return load_command_line(line, around(**files)).config


def flow_of(config: MirrorConfig, source: str = "source") -> FlowConfig:
    return config.flow(FlowId(source=ClusterAlias(source), target=ClusterAlias("target")))


def problems(line: CommandLine = LINE, **files: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as raised:
        loaded(line, **files)
    return raised.value.problems


def test_a_plain_command_line_is_one_flow_that_keeps_names_and_the_groups_place() -> None:
    config = loaded()

    flow = flow_of(config)
    assert [each.id for each in config.flows] == [flow.id]
    assert flow.policy.keeps_names
    assert (flow.start_group_id, flow.lag_group_id) == ("mirror", "mirror")
    assert flow.start_at is StartAt.LATEST
    assert (flow.topics, flow.topics_exclude) == (
        ("orders.*",),
        ("__consumer_offsets", "__transaction_state"),
    )
    assert flow.replication_factor == -1
    switched_off = (flow.heartbeats, flow.checkpoints, flow.offset_syncs, flow.acls)
    assert not any(each.enabled for each in (*switched_off, flow.topic_configs))
    assert not flow.heartbeats.replicated
    assert config.clusters[flow.id.source].bootstrap_servers == ("a:1",)
    assert config.notes == ()


def test_several_consumer_configs_are_several_sources_of_one_target() -> None:
    both = replace(LINE, consumer_configs=(Path("c.properties"), Path("d.properties")))
    named = replace(both, source_aliases=("east", "west"))

    assert [str(each.id) for each in loaded(both).flows] == ["source->target", "source2->target"]
    assert flow_of(loaded(both), "source2").start_group_id == "other"
    assert [str(each.id) for each in loaded(named).flows] == ["east->target", "west->target"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"orders, payments"', ("orders|payments",)),
        ("'a|b'", ("a|b",)),
        ("a,b", ("a|b",)),
        (r"a\.b.*", (r"a\.b.*",)),
    ],
)
def test_a_pattern_is_read_as_its_topic_filter_read_it(text: str, found: tuple[str, ...]) -> None:
    assert flow_of(loaded(replace(LINE, include=text))).topics == found


def test_of_whitelist_and_include_the_latter_wins_and_either_is_enough() -> None:
    both = loaded(replace(LINE, whitelist="others"))
    alone = loaded(replace(LINE, include=None, whitelist="others"))

    assert flow_of(both).topics == ("orders.*",)
    assert any("--whitelist: ignored" in note for note in both.notes)
    assert flow_of(alone).topics == ("others",)


def test_a_blacklist_alone_leaves_its_topics_out_of_all() -> None:
    flow = flow_of(loaded(replace(LINE, include=None, blacklist="secret.*,tmp")))

    assert flow.topics == (".*",)
    assert flow.topics_exclude[-1] == "secret.*|tmp"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"include": None}, "an include list must be specified"),
        ({"blacklist": "x"}, "exactly one of --include"),
        ({"handler": "com.example.Handler"}, "a Java class that cannot run here"),
        ({"handler": "no.such:thing"}, "cannot be imported"),
        ({"include": "("}, "--include: is `(`, not a regex"),
        ({"source_aliases": ("a", "b")}, "once for each --consumer.config"),
        ({"source_aliases": ("target",)}, "names two clusters"),
        ({"target_alias": "a b"}, "other than letters"),
        ({"consumer_configs": (Path("absent"),)}, "absent: cannot be read: No such file"),
    ],
)
def test_a_command_line_that_it_refused_is_refused(
    change: dict[str, object], sentence: str
) -> None:
    assert any(sentence in each for each in problems(replace(LINE, **change)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("bootstrap.servers=a:1", "has no group.id"),
        ("zookeeper.connect=z:2181\ngroup.id=g", "positions are in ZooKeeper"),
        ("group.id=g", "source.bootstrap.servers"),
        ("bootstrap.servers=a:1\ngroup.id=g{x}", "holds braces"),
        ("bootstrap.servers=a:1\ngroup.id=g\nauto.offset.reset=none", "line 3, auto.offset.reset"),
        ("bootstrap.servers=a:1\ngroup.id=g\nfetch.max.bytes=x", "line 3, fetch.max.bytes"),
    ],
)
def test_a_consumer_config_that_cannot_be_used_is_refused_with_its_line(
    text: str, sentence: str
) -> None:
    assert any(sentence in each for each in problems(c=text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", StartAt.EARLIEST),
        ("latest", StartAt.LATEST),
        ("smallest", StartAt.EARLIEST),
        ("largest", StartAt.LATEST),
    ],
)
def test_a_partition_without_a_commit_begins_by_auto_offset_reset(
    text: str, expected: StartAt
) -> None:
    flow = flow_of(loaded(c=f"{FILES['c.properties']}auto.offset.reset={text}\n"))

    assert flow.start_at is expected


def test_isolation_level_is_heeded_and_committed_records_are_the_default() -> None:
    uncommitted = loaded(c=f"{FILES['c.properties']}isolation.level=read_uncommitted\n")

    assert not flow_of(uncommitted).read_committed
    assert flow_of(loaded()).read_committed


def test_options_become_keys_of_the_flow() -> None:
    line = replace(
        LINE,
        streams=3,
        commit_interval_ms=60_000,
        abort_on_send_failure=False,
        handler="tests.unit.transform.functions:Handler",
        handler_args="7",
    )

    flow = flow_of(loaded(line))

    assert (flow.tasks_max, flow.lag_group_interval_ms) == (3, 60_000)
    assert flow.on_unwritable_record == "skip"
    assert flow_of(loaded()).on_unwritable_record == "stall"
    (transform,) = flow.transforms
    assert (transform.kind, transform.function, transform.args) == ("handler", line.handler, "7")


def test_what_means_nothing_here_is_noted_with_its_place() -> None:
    config = loaded(
        replace(LINE, without_effect=("--new.consumer", "--num.producers"), handler_args="x"),
        c=f"{FILES['c.properties']}session.timeout.ms=9\ninterceptor.classes=x.Y\n",
        p="bootstrap.servers=b:1\nacks=1\nproducer.type=sync\ncompression.type=lz4\n",
    )

    def noted(place: str) -> bool:
        return any(each.startswith(f"{place}: does nothing") for each in config.notes)

    for place in (
        "--new.consumer",
        "--num.producers",
        "--message.handler.args",
        "c.properties line 3, session.timeout.ms",
        "c.properties line 4, interceptor.classes",
        "p.properties line 2, acks",
        "p.properties line 3, producer.type",
        "p.properties line 4, compression.type",
    ):
        assert noted(place), (place, config.notes)


def test_security_of_a_file_is_that_of_every_client_of_its_cluster() -> None:
    cluster = loaded(c=_secured()).clusters[ClusterAlias("source")]

    assert cluster.security_of("admin").sasl.username == "u"
    assert "secret" not in repr(cluster)


def _secured() -> str:
    return (
        f"{FILES['c.properties']}security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="u" password="secret";\n'
    )


@pytest.mark.parametrize("change", [lambda line: line, lambda line: replace(line, include=r"a\.b")])
def test_the_file_it_writes_is_the_same_mirror_and_holds_no_secret(
    change: Callable[[CommandLine], CommandLine],
) -> None:
    line = change(LINE)
    files = around(c=_secured())
    text = written_as_file(command_lines(line, files, Findings()))

    config = parse_explained(text, source="mirror.properties", around=files).config

    assert "secret" not in text
    assert _without_notes(config) == _without_notes(load_command_line(line, files).config)


def _without_notes(config: MirrorConfig) -> MirrorConfig:
    return config.model_copy(update={"notes": ()})


def test_both_files_may_declare_the_same_provider() -> None:
    declared = (
        "config.providers=env\nconfig.providers.env.class="
        "org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    )
    same = loaded(c=FILES["c.properties"] + declared, p=FILES["p.properties"] + declared)
    other = declared.replace("=env\n", "=env, file\n")

    assert same.flows
    found = problems(c=FILES["c.properties"] + declared, p=FILES["p.properties"] + other)
    assert any("is another value at" in each for each in found)


def test_the_pipeline_of_the_guide_copies_by_key_from_where_the_group_committed() -> None:
    guide = Path(__file__).parents[3] / "docs/guides/from-mirrormaker-1.md"
    (by_key,) = re.findall(
        r"```properties\n(source->target\.topics =.*?)```", guide.read_text(), re.DOTALL
    )
    files = around(c="bootstrap.servers=a:1\ngroup.id=mirror-group\n")
    lines = written_as_file(command_lines(LINE, files, Findings())).splitlines()
    kept = [line for line in lines if not line.startswith("source->target.topics =")]

    config = parse_explained(
        "\n".join([*kept, by_key]), source="mirror.properties", around=files
    ).config

    flow = flow_of(config)
    (pipeline,) = flow.pipelines
    assert len(kept) == len(lines) - 1
    assert flow.topics == ()
    assert pipeline.start_group == flow.start_group_id == "mirror-group"
    assert "partition" not in (pipeline.sql or "partition")
