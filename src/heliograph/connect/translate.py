"""Connectors into the configuration that a file would give. Reads what they refer to; driver only.

The source, checkpoint and heartbeat connector of one pair of clusters are one flow with its parts
switched on. A connector that cannot be run keeps no other from running: it is left out, with its
problems under the keys they belong to.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from heliograph.config.findings import Finding, Findings
from heliograph.config.load import explain_properties
from heliograph.config.mm2.properties import Property
from heliograph.config.schema import MirrorConfig
from heliograph.config.secrets import Environment
from heliograph.connect.configs import MASK
from heliograph.connect.model import Connector
from heliograph.connect.plugins import (
    CLASS,
    NAME,
    SOURCE_ALIAS,
    SOURCE_SERVERS,
    TARGET_ALIAS,
    TARGET_SERVERS,
    Plugin,
)
from heliograph.connect.settings import Ignored, Line, Refused, lines_of
from heliograph.model import ClusterAlias, FlowId

_ALIAS: Final = re.compile(r"[A-Za-z0-9._-]+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_ON_LINE: Final = re.compile(r" on line (\d+)")
_OFF: Final = (
    # What a file does unless it is told otherwise, and a connector does by being there.
    ("emit.heartbeats.enabled", "false"),
    ("emit.checkpoints.enabled", "false"),
    ("sync.group.offsets.enabled", "false"),
)

Errors = Mapping[str, tuple[str, ...]]
"""Sentences by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    config: MirrorConfig
    problems: Mapping[str, Errors] = field(default_factory=dict)
    """Of the connectors that were left out, by name."""
    notes: tuple[str, ...] = ()


def translate(
    connectors: Sequence[Connector], base: Sequence[Property], around: Environment
) -> Translation:
    """`base` are lines of the worker's own file: providers, engine, API. Where two connectors do
    not fit together, the one that comes later is left out."""
    problems: dict[str, Errors] = {}
    left = list(connectors)
    while True:
        attempt = _Attempt(left, base)
        config = attempt.configured(around)
        if config is not None:
            return Translation(config=config, problems=problems, notes=tuple(attempt.notes))
        found = attempt.errors()
        problems |= found
        left = [connector for connector in left if connector.name not in found]


def errors_of(
    candidate: Connector,
    others: Iterable[Connector],
    base: Sequence[Property],
    around: Environment,
) -> Errors:
    """What is wrong with a connector beside the others; nothing where it can be run."""
    beside = [other for other in others if other.name != candidate.name]
    return translate([*beside, candidate], base, around).problems.get(candidate.name, {})


def empty_config(base: Sequence[Property], around: Environment) -> MirrorConfig:
    """Of a worker without a connector: what its file says of engine and API, and no flow."""
    # Two clusters that nothing connects to, for the reader wants some.
    stand_ins = [
        *_properties(
            [
                ("clusters", "A, B"),
                ("A.bootstrap.servers", "127.0.0.1:1"),
                ("B.bootstrap.servers", "127.0.0.1:1"),
            ]
        )
    ]
    findings = Findings()
    explained = explain_properties([*base, *stand_ins], around, findings)
    if explained is None:
        raise UnusableBase(tuple(findings.problems))
    return explained.config.model_copy(update={"clusters": {}, "pairs": (), "notes": ()})


class UnusableBase(ValueError):
    """The worker's own lines cannot be used."""

    def __init__(self, problems: tuple[Finding, ...]) -> None:
        super().__init__(problems)
        self.problems = problems


class _Attempt:
    """One try to put connectors together, and whose fault it was where it failed."""

    def __init__(self, connectors: Sequence[Connector], base: Sequence[Property]) -> None:
        self._connectors, self._base = connectors, base
        self._findings = Findings()
        self._errors: defaultdict[str, defaultdict[str, list[str]]]
        self._errors = defaultdict(lambda: defaultdict(list))
        self._lines: list[Property] = []
        self._origins: dict[int, tuple[str, str]] = {}
        """By line: the connector and its key."""
        self._clusters: dict[str, tuple[str, str]] = {}
        """Settings of clusters: the value and the connector that gave it."""
        self.notes: list[str] = []

    def configured(self, around: Environment) -> MirrorConfig | None:
        usable = [connector for connector in self._connectors if self._is_sound(connector)]
        self._check_twins(usable)
        if self._errors:
            return None
        if not usable:
            return empty_config(self._base, around)
        self._write(usable)
        if self._errors:
            return None
        explained = explain_properties([*self._base, *self._lines], around, self._findings)
        if explained is not None:
            return explained.config.model_copy(update={"notes": ()})
        for found in self._findings.problems:
            self._blame(found)
        return None

    def errors(self) -> dict[str, Errors]:
        return {
            name: {key: tuple(sentences) for key, sentences in by_key.items()}
            for name, by_key in self._errors.items()
        }

    def _is_sound(self, connector: Connector) -> bool:
        """Whether it says what it is and what it mirrors."""
        name, config, flow = connector.name, connector.config, connector.flow
        before = len(self._errors)
        if not name:
            self._say(name, NAME, _missing(NAME))
        elif _CONTROL.search(name):
            self._say(name, NAME, "Invalid value for configuration name: it has control characters")
        if connector.plugin is None:
            self._say(name, CLASS, f"`{config.get(CLASS, '')[:200]}` is no class that runs here")
        needed = [SOURCE_ALIAS, TARGET_SERVERS]
        if connector.plugin is not Plugin.HEARTBEAT:
            needed.append(SOURCE_SERVERS)
        for key in needed:
            if not config.get(key, "").strip():
                self._say(name, key, _missing(key))
        for key, alias in ((SOURCE_ALIAS, flow.source), (TARGET_ALIAS, flow.target)):
            if alias and _ALIAS.fullmatch(alias) is None:
                why = "becomes part of topic names: letters, digits, `.`, `_` and `-`"
                self._say(name, key, f"Invalid value for configuration {key}: an alias {why}")
        if flow.source == flow.target:
            why = "source and target are the same cluster; its copies would be copied endlessly"
            self._say(name, TARGET_ALIAS, why)
        for key, value in config.items():
            if value == MASK:
                self._say(name, key, f"{key} is the mask that stands for a secret; send the secret")
        return len(self._errors) == before

    def _check_twins(self, connectors: Iterable[Connector]) -> None:
        seen: dict[tuple[FlowId, Plugin | None], str] = {}
        for connector in connectors:
            first = seen.setdefault((connector.flow, connector.plugin), connector.name)
            if first != connector.name:
                self._say(
                    connector.name,
                    SOURCE_ALIAS,
                    f"connector {first} is the {connector.plugin} of {connector.flow} already; "
                    "give it all topics and groups, or delete it first",
                )

    def _write(self, connectors: Sequence[Connector]) -> None:
        aliases: dict[ClusterAlias, None] = {}
        by_flow: defaultdict[FlowId, dict[Plugin, Connector]] = defaultdict(dict)
        for connector in connectors:
            assert connector.plugin is not None
            by_flow[connector.flow][connector.plugin] = connector
            aliases |= dict.fromkeys((connector.flow.source, connector.flow.target))
        self._add([("clusters", ", ".join(aliases)), *_OFF], "", "")
        for flow, parts in by_flow.items():
            self._write_flow(flow, parts)
        for flow, parts in by_flow.items():
            heartbeats = parts.get(Plugin.HEARTBEAT)
            if heartbeats is not None and f"{flow.source}.bootstrap.servers" not in self._clusters:
                # Nothing connects to a source of which only heartbeats tell.
                stand_in = heartbeats.config[TARGET_SERVERS]
                line = (f"{flow.source}.bootstrap.servers", stand_in)
                self._add([line], heartbeats.name, TARGET_SERVERS)

    def _write_flow(self, flow: FlowId, parts: Mapping[Plugin, Connector]) -> None:
        # The source connector before the others: what it says of a cluster counts.
        ordered = [(plugin, parts[plugin]) for plugin in Plugin if plugin in parts]
        leader = ordered[0][1]
        given: dict[str, str] = {}
        for plugin, connector in ordered:
            for line in lines_of(connector, plugin, leads=connector is leader):
                if isinstance(line, Ignored):
                    self.notes.append(f"connector {connector.name}: {line.key}: {line.why}")
                elif isinstance(line, Refused):
                    self._say(connector.name, line.key, line.why)
                elif line.cluster is None or self._is_new(line, connector, leader):
                    given[line.key] = line.value
                    self._add([(line.key, line.value)], connector.name, line.origin)
        source = parts.get(Plugin.SOURCE)
        switches = {
            f"{flow}.enabled": "true" if source is not None else "false",
            f"{flow}.emit.heartbeats.enabled": "true" if Plugin.HEARTBEAT in parts else "false",
            f"{flow}.emit.checkpoints.enabled": "true" if Plugin.CHECKPOINT in parts else "false",
        }
        missing = [(key, value) for key, value in switches.items() if key not in given]
        self._add(missing, leader.name, CLASS)

    def _is_new(self, line: Line, connector: Connector, leader: Connector) -> bool:
        """Whether a setting of a cluster was not said before. One alias is one cluster: what two
        flows say of it must be the same. Of the connectors of one flow the first one decides."""
        value, owner = self._clusters.setdefault(line.key, (line.value, connector.name))
        if owner == connector.name and value == line.value:
            return True
        if value != line.value and owner != leader.name:
            self._say(
                connector.name,
                line.origin,
                f"connector {owner} says something else of {line.cluster}, and one alias is one "
                f"cluster: make {line.origin} the same, or stop {owner} while you change both",
            )
        return False

    def _add(self, lines: Iterable[tuple[str, str]], connector: str, origin: str) -> None:
        start = 1 + max((line.line for line in (*self._base, *self._lines[-1:])), default=0)
        for line in _properties(lines, start):
            self._lines.append(line)
            self._origins[line.line] = (connector, origin)

    def _say(self, name: str, key: str, sentence: str) -> None:
        if sentence not in self._errors[name][key]:
            self._errors[name][key].append(sentence)

    def _blame(self, found: Finding) -> None:
        """A problem of a line is one of the connector it came from; one of none is everybody's."""
        name, key = self._origins.get(found.line or 0, ("", ""))
        sentence = _ON_LINE.sub(self._origin, found.sentence)
        if name:
            self._say(name, key, f"{key}: {sentence}")
            return
        for connector in self._connectors:
            self._say(connector.name, CLASS, f"{found.key}: {sentence}")

    def _origin(self, matched: re.Match[str]) -> str:
        name, key = self._origins.get(int(matched[1]), ("", ""))
        return f" (`{key}` of connector {name})" if name else ""


def _properties(lines: Iterable[tuple[str, str]], start: int = 1) -> list[Property]:
    return [
        Property(key=key, value=value, line=number)
        for number, (key, value) in enumerate(lines, start)
    ]


def _missing(key: str) -> str:
    return f'Missing required configuration "{key}" which has no default value.'
