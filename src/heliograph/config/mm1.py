"""MirrorMaker 1's command line and its property files into the keys of flows. Runs on the driver.

MirrorMaker 1 had no aliases, so these are made up: `source` (`source2` and so on where there are
several consumer configs) and `target`, unless they are told. What it did not do is switched off:
heartbeats, checkpoints, offset syncs, ACLs and configs of topics that are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from heliograph.config.findings import Finding, Findings
from heliograph.config.load import ExplainedConfig, explain_properties
from heliograph.config.mm2.names import SECURITY_KEYS
from heliograph.config.mm2.properties import (
    MalformedProperty,
    Property,
    decode_properties,
    parse_properties,
)
from heliograph.config.secrets import Environment, has_reference, is_secret_key
from heliograph.config.sections import IDENTITY_POLICY
from heliograph.errors import ConfigError
from heliograph.model import ClusterAlias, FlowId

COMMAND: Final = "heliograph mirror-maker"
_OFF: Final = (
    "emit.heartbeats.enabled",
    "heartbeats.replication.enabled",
    "emit.checkpoints.enabled",
    "emit.offset-syncs.enabled",
    "sync.topic.configs.enabled",
    "sync.topic.acls.enabled",
)
_BROKER_DEFAULT: Final = "-1"
_NEVER: Final = ("__consumer_offsets", "__transaction_state")
"""What Java's consumer leaves out of a pattern (exclude.internal.topics)."""
_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
"""As the consumer of Kafka 0.8 had them."""
_ALIAS: Final = re.compile(r"[A-Za-z0-9._-]+")
_ON_LINE: Final = re.compile(r" on line (\d+)")
_OF_MEMBERS: Final = frozenset(
    {
        "auto.commit.interval.ms",
        "client.id",
        "enable.auto.commit",
        "exclude.internal.topics",
        "group.instance.id",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
"""Of a consumer that joins its group."""
_TAKEN: Final = _OF_MEMBERS | {
    "auto.offset.reset",
    "group.id",
    "isolation.level",
    "zookeeper.connect",
}
"""What the flow says itself, or nobody."""
_PROVIDER: Final = "mirrormaker1"
_FILE_PROVIDER: Final = "org.apache.kafka.common.config.provider.FileConfigProvider"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """MirrorMaker 1's options, as they were written."""

    consumer_configs: tuple[Path, ...]
    producer_config: Path
    include: str | None = None
    whitelist: str | None = None
    blacklist: str | None = None
    streams: int | None = None
    handler: str | None = None
    handler_args: str | None = None
    commit_interval_ms: int | None = None
    abort_on_send_failure: bool = True
    without_effect: tuple[str, ...] = ()
    """Options that were given and mean nothing here."""
    source_aliases: tuple[str, ...] = ()
    target_alias: str = "target"

    @property
    def sources(self) -> tuple[str, ...]:
        """An alias for each consumer config."""
        if self.source_aliases:
            return self.source_aliases
        count = len(self.consumer_configs)
        return tuple("source" if at == 0 else f"source{at + 1}" for at in range(count))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One key of the configuration, and where it comes from."""

    key: str
    value: str
    origin: str
    file: Path | None = None
    """The property file that has the value, under `name`."""
    name: str = ""


def load_command_line(line: CommandLine, around: Environment) -> ExplainedConfig:
    """What `heliograph run` would be given; raises `ConfigError` with all that is wrong."""
    findings = Findings()
    lines = command_lines(line, around, findings)
    origins = {number: each.origin for number, each in enumerate(lines, 1)}
    if not findings.problems:
        written = [
            Property(key=each.key, value=each.value, line=number)
            for number, each in enumerate(lines, 1)
        ]
        explained = explain_properties(written, around, findings)
        if explained is not None:
            notes = tuple(_told(found, origins) for found in findings.notes)
            config = explained.config.model_copy(update={"notes": notes})
            return replace(explained, config=config)
    raise ConfigError(COMMAND, tuple(_told(found, origins) for found in findings.problems))


def written_as_file(lines: Sequence[Line]) -> str:
    """The same as an `mm2.properties`. A secret stays in the file it is in, and is referred to."""
    secret = [each for each in lines if _is_kept_back(each)]
    rows = [f"# What `{COMMAND}` was told, as a file for all of Heliograph's commands."]
    declared = next((each for each in lines if each.key == "config.providers"), None)
    if secret:
        others = "" if declared is None else f"{declared.value}, "
        rows += [
            f"config.providers = {others}{_PROVIDER}",
            f"config.providers.{_PROVIDER}.class = {_FILE_PROVIDER}",
        ]
    for each in lines:
        if each is declared and secret:
            continue
        value = (
            f"${{{_PROVIDER}:{each.file.absolute()}:{each.name}}}"
            if each in secret and each.file is not None
            else _escaped(each.value)
        )
        rows.append(f"{each.key} = {value}")
    return "\n".join(rows) + "\n"


def _is_kept_back(line: Line) -> bool:
    return line.file is not None and is_secret_key(line.key) and not has_reference(line.value)


def _escaped(value: str) -> str:
    """As Java reads it back."""
    return (
        value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )


def _told(found: Finding, origins: Mapping[int, str]) -> str:
    sentence = _ON_LINE.sub(lambda at: f" ({origins.get(int(at[1]), '')})", found.sentence)
    origin = origins.get(found.line or 0, "")
    return f"{origin or found.key}: {sentence}"


def command_lines(line: CommandLine, around: Environment, findings: Findings) -> list[Line]:
    """The keys it comes to; what is wrong with the command line or a file is in `findings`."""
    sources, target = line.sources, line.target_alias
    _check(line, findings)
    lines = [
        Line(key="clusters", value=", ".join((*sources, target)), origin="clusters"),
        *(Line(key=key, value="false", origin=key) for key in _OFF),
        Line(key="replication.factor", value=_BROKER_DEFAULT, origin="replication.factor"),
        Line(key="replication.policy.class", value=IDENTITY_POLICY, origin="topic names"),
    ]
    producer = _read(line.producer_config, around, findings)
    for alias, path in zip(sources, line.consumer_configs, strict=False):
        consumer = _read(path, around, findings)
        lines += _cluster(alias, "consumer", path, consumer)
        flow = FlowId(source=ClusterAlias(alias), target=ClusterAlias(target))
        lines += _flow(flow, line, path, consumer, findings)
    lines += _cluster(target, "producer", line.producer_config, producer)
    lines = _providers_once(lines, findings)
    _note_without_effect(line, findings)
    return lines


def _check(line: CommandLine, findings: Findings) -> None:
    if line.include is not None and line.whitelist is not None:
        findings.note_at("--whitelist", "ignored: --include wins, as in MirrorMaker 1")
    chosen = line.include if line.include is not None else line.whitelist
    if chosen is None and line.blacklist is None:
        findings.problem_at("--include", "an include list must be specified")
    elif chosen is not None and line.blacklist is not None:
        findings.problem_at(
            "--blacklist",
            "exactly one of --include (--whitelist) and --blacklist is taken, as in MirrorMaker 1",
        )
    if line.handler_args is not None and line.handler is None:
        findings.note_at("--message.handler.args", "does nothing without --message.handler")
    if line.handler is not None and ":" not in line.handler:
        findings.problem_at(
            "--message.handler",
            f"is `{line.handler}`, a Java class that cannot run here; write its `handle` in Python "
            "and name it as `module:Class` or `module:function` "
            "(docs/guides/from-mirrormaker-1.md)",
        )
    aliases = (*line.sources, line.target_alias)
    if len(line.sources) != len(line.consumer_configs):
        findings.problem_at("--source.alias", "is given once for each --consumer.config")
    for alias in dict.fromkeys(aliases):
        if _ALIAS.fullmatch(alias) is None:
            findings.problem_at("alias", f"`{alias}` has other than letters, digits, `.`, `_`, `-`")
        if aliases.count(alias) > 1:
            findings.problem_at("alias", f"`{alias}` names two clusters")


def _read(path: Path, around: Environment, findings: Findings) -> list[Property]:
    try:
        text = decode_properties(around.read_bytes(path))
    except OSError as exc:
        findings.problem_at(str(path), f"cannot be read: {exc.strerror or type(exc).__name__}")
        return []
    found: dict[str, Property] = {}
    for entry in parse_properties(text):
        if isinstance(entry, MalformedProperty):
            findings.problem_at(f"{path} line {entry.line}", entry.why)
        else:
            found[entry.key] = entry  # the last one counts, as for Java
    return list(found.values())


def _cluster(alias: str, role: str, path: Path, settings: Iterable[Property]) -> Iterator[Line]:
    """Security and addresses belong to the cluster, for every client of it needs them."""
    for each in settings:
        if each.key.startswith("config.providers"):
            key = each.key
        elif each.key == "bootstrap.servers" or each.key in SECURITY_KEYS:
            key = f"{alias}.{each.key}"
        elif role == "consumer" and each.key in _TAKEN:
            continue
        else:
            key = f"{alias}.{role}.{each.key}"
        yield Line(key=key, value=each.value, origin=_place(path, each), file=path, name=each.key)


def _place(path: Path, entry: Property) -> str:
    return f"{path} line {entry.line}, {entry.key}"


def _flow(
    flow: FlowId, line: CommandLine, path: Path, consumer: Sequence[Property], findings: Findings
) -> list[Line]:
    given = {each.key: each for each in consumer}
    _check_consumer(path, given, findings)
    group = given.get("group.id")
    lines = [Line(key=f"{flow}.enabled", value="true", origin=str(flow)), *_topics(flow, line)]
    if group is not None:
        place = _place(path, group)
        lines.append(Line(key=f"{flow}.start.group", value=group.value, origin=place))
        lines.append(Line(key=f"{flow}.lag.group", value=group.value, origin=place))
    reset = given.get("auto.offset.reset")
    # The default of Java's consumer, which MirrorMaker 1 left as it was.
    where = "latest" if reset is None else _RESETS.get(reset.value.strip(), reset.value)
    place = "auto.offset.reset" if reset is None else _place(path, reset)
    lines.append(Line(key=f"{flow}.start.at", value=where, origin=place))
    isolation = given.get("isolation.level")
    if isolation is not None:
        lines.append(
            Line(
                key=f"{flow}.consumer.isolation.level",
                value=isolation.value,
                origin=_place(path, isolation),
            )
        )
    lines += _options(flow, line)
    return lines


def _check_consumer(path: Path, given: Mapping[str, Property], findings: Findings) -> None:
    if not given:
        return
    for name in sorted(given.keys() & _OF_MEMBERS):
        findings.note_at(
            _place(path, given[name]), "does nothing here: no consumer joins the group"
        )
    zookeeper = given.get("zookeeper.connect")
    if zookeeper is not None:
        findings.problem_at(
            _place(path, zookeeper),
            "belongs to the consumer of Kafka 0.8, whose positions are in ZooKeeper and are not "
            "read here; let MirrorMaker run once with `bootstrap.servers` instead, so that its "
            "group is committed in Kafka",
        )
    if "group.id" not in given:
        findings.problem_at(str(path), "has no group.id; MirrorMaker 1's place is its commits")
    elif any(brace in given["group.id"].value for brace in "{}"):
        findings.problem_at(_place(path, given["group.id"]), "holds braces, which are not taken")


def _topics(flow: FlowId, line: CommandLine) -> Iterator[Line]:
    chosen, option = line.include, "--include"
    if chosen is None:
        chosen, option = line.whitelist, "--whitelist"
    left_out = list(_NEVER)
    if chosen is None:
        chosen, option = ".*", "--blacklist"
        left_out.append(_as_java_had_it(line.blacklist or ""))
    yield Line(key=f"{flow}.topics", value=_as_java_had_it(chosen), origin=option)
    yield Line(key=f"{flow}.topics.exclude", value=",".join(left_out), origin="--blacklist")


def _as_java_had_it(text: str) -> str:
    """Kafka's `TopicFilter`: quotes around it and blanks do not count, a comma is a bar."""
    return re.sub(r"^[\"']+|[\"']+$", "", text.strip().replace(",", "|").replace(" ", ""))


def _options(flow: FlowId, line: CommandLine) -> Iterator[Line]:
    told: list[tuple[str, str, str]] = []
    if line.commit_interval_ms is not None:
        value = str(max(1, line.commit_interval_ms))
        told.append(("lag.group.interval.ms", value, "--offset.commit.interval.ms"))
    if not line.abort_on_send_failure:
        told.append(("on.unwritable.record", "skip", "--abort.on.send.failure"))
    if line.streams is not None:
        told.append(("tasks.max", str(line.streams), "--num.streams"))
    if line.handler is not None:
        option = "--message.handler"
        told += [
            ("transforms", "handler", option),
            ("transforms.handler.type", line.handler, option),
            ("transforms.handler.on", "handler", option),
        ]
        if line.handler_args is not None:
            told.append(("transforms.handler.args", line.handler_args, "--message.handler.args"))
    for name, value, option in told:
        yield Line(key=f"{flow}.{name}", value=value, origin=option)


def _providers_once(lines: Sequence[Line], findings: Findings) -> list[Line]:
    """Both files may declare the same providers; one that differs is a problem."""
    first: dict[str, Line] = {}
    found: list[Line] = []
    for each in lines:
        earlier = first.setdefault(each.key, each)
        if earlier is each:
            found.append(each)
        elif earlier.value != each.value:
            findings.problem_at(each.origin, f"is another value at {earlier.origin}")
    return found


def _note_without_effect(line: CommandLine, findings: Findings) -> None:
    why = {
        "--new.consumer": "there is one way to read, as in MirrorMaker since 2.0",
        "--consumer.rebalance.listener": "nothing is rebalanced: lanes are handed out by the "
        "driver; the class is not loaded",
        "--rebalance.listener.args": "nothing is rebalanced",
    }
    for option in line.without_effect:
        findings.note_at(option, f"does nothing here: {why.get(option, 'only Kafka 0.8 had it')}")
