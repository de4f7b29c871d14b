"""`connect-distributed.properties` as far as it means something here. Runs on the driver.

The worker's own cluster keeps the connectors; which clusters they mirror between they say
themselves. Heliograph's keys (`api.tokens.file`, `api.tls.*`, `master`, `slots`, `spark.*`) may
stand beside Connect's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from heliograph.config.findings import Finding, Findings, render
from heliograph.config.load import explain_properties
from heliograph.config.mm2.keys import API_BY_NAME, ENGINE_BY_NAME
from heliograph.config.mm2.names import SECURITY_KEYS
from heliograph.config.mm2.properties import (
    MalformedProperty,
    Property,
    decode_properties,
    parse_properties,
)
from heliograph.config.mm2.values import BadValue, replicas, switch
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.config.secrets import Environment
from heliograph.errors import ConfigError
from heliograph.model import TopicName

PORT_DEFAULT: Final = 8083
_ALIAS: Final = "connect"
"""What the worker's own cluster is called in messages; no connector needs the name."""
_BASE: Final = ("config.providers", "offset.storage.topic")
_BASE_PREFIXES: Final = ("config.providers.", "spark.")
_LISTENER: Final = re.compile(
    r"(?P<scheme>[A-Za-z]+)://(?P<host>\[[0-9A-Fa-f:.]*\]|[^:/\s]*):(?P<port>\d{1,5})"
)

_READ: Final = frozenset(
    {
        "bootstrap.servers",
        "group.id",
        "config.storage.topic",
        "config.storage.replication.factor",
        "listeners",
        "rest.port",
        "rest.host.name",
        "topic.tracking.enable",
        "topic.tracking.allow.reset",
    }
)
_LOOPBACK: Final = "127.0.0.1"
_OF_A_FILE: Final = frozenset({"api.listen", "api.ureplicator.listen"})
"""Of `heliograph run`; a worker listens where Connect's own keys say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFile:
    cluster: ClusterConfig
    """Keeps the connectors."""
    config_topic: TopicName
    replication_factor: int
    """Of that topic if it is created; -1 is the broker's default."""
    base: tuple[Property, ...]
    """Lines that every configuration of connectors begins with."""
    config: MirrorConfig
    """Engine and API; no flow."""
    tracks_topics: bool = True
    allows_topic_reset: bool = True
    notes: tuple[str, ...] = ()


def read_worker_file(
    path: Path, around: Environment, given: Mapping[str, str | None] | None = None
) -> WorkerFile:
    """`given` stands above what the file has. Raises `ConfigError` with all problems."""
    try:
        content = around.read_bytes(path)
    except OSError as exc:
        why = exc.strerror or type(exc).__name__
        raise ConfigError(str(path), (f"cannot be read: {why}",)) from exc
    findings = Findings()
    found = _Found(decode_properties(content), given or {}, findings)
    return found.worker(str(path), around)


class _Found:
    """The lines of the file by key; Java keeps the last of equal ones."""

    def __init__(self, text: str, given: Mapping[str, str | None], findings: Findings) -> None:
        self._findings = findings
        self._lines: dict[str, Property] = {}
        for entry in parse_properties(text):
            if isinstance(entry, MalformedProperty):
                findings.problem_at("malformed", entry.why, line=entry.line)
            else:
                self._lines[entry.key] = entry
        for key, value in given.items():
            if value is not None:
                self._lines[key] = Property(key=key, value=value, line=0)

    def worker(self, source: str, around: Environment) -> WorkerFile:
        topic = self._required("config.storage.topic")
        self._required("group.id")
        self._required("bootstrap.servers")
        factor = self._factor()
        base = (*self._base(), *self._listen())
        explained = explain_properties([*base, *self._own_cluster()], around, self._findings)
        tracks, resets = (
            self._switch("topic.tracking.enable"),
            self._switch("topic.tracking.allow.reset"),
        )
        if explained is None or self._findings.problems:
            raise ConfigError(source, render([*map(self._told, self._findings.problems)]))
        # What was noted of the two clusters that stand in for a mirror says nothing about the file.
        self._findings.notes = [found for found in self._findings.notes if found.line]
        for entry in self._lines.values():
            self._note_unread(entry)
        config = explained.config
        return WorkerFile(
            cluster=next(iter(config.clusters.values())),
            config_topic=TopicName(topic),
            replication_factor=factor,
            base=base,
            config=config.model_copy(update={"clusters": {}, "pairs": (), "notes": ()}),
            tracks_topics=tracks,
            allows_topic_reset=resets,
            notes=render(self._findings.notes),
        )

    def _text(self, key: str) -> str:
        entry = self._lines.get(key)
        return "" if entry is None else entry.value.strip()

    def _required(self, key: str) -> str:
        if not self._text(key):
            why = "missing; a distributed worker of Connect has it too"
            self._findings.problem_at(key, why)
        return self._text(key)

    def _factor(self) -> int:
        text = self._text("config.storage.replication.factor") or "3"
        try:
            return int(str(replicas(text)))
        except BadValue as exc:
            self._bad("config.storage.replication.factor", exc)
            return -1

    def _switch(self, key: str) -> bool:
        try:
            return bool(switch(self._text(key) or "true"))
        except BadValue as exc:
            self._bad(key, exc)
            return True

    def _bad(self, key: str, exc: BadValue) -> None:
        entry = self._lines[key]
        self._findings.problem_at(key, f"is `{entry.value.strip()}`, {exc.why}", line=entry.line)

    def _base(self) -> Iterator[Property]:
        """Without its switch a worker's offsets topic would only be noted."""
        for key, entry in self._lines.items():
            is_own = key in ENGINE_BY_NAME or (key in API_BY_NAME and key not in _OF_A_FILE)
            if is_own or key in _BASE or key.startswith(_BASE_PREFIXES):
                yield entry

    def _own_cluster(self) -> Iterator[Property]:
        """The worker's cluster, beside one that nothing connects to: a mirror has two."""
        stand_ins = {"clusters": f"{_ALIAS}, none", "none.bootstrap.servers": "127.0.0.1:1"}
        for key, value in stand_ins.items():
            yield Property(key=key, value=value, line=0)
        for key, entry in self._lines.items():
            if key == "bootstrap.servers" or key in SECURITY_KEYS:
                yield Property(key=f"{_ALIAS}.{key}", value=entry.value, line=entry.line)

    def _listen(self) -> Iterator[Property]:
        """Where Connect would listen; but on this machine alone unless a host is named."""
        listeners, port = self._lines.get("listeners"), self._lines.get("rest.port")
        if listeners is None:
            text = self._text("rest.port") or str(PORT_DEFAULT)
            host = self._text("rest.host.name") or _LOOPBACK
            line = 0 if port is None else port.line
            yield Property(key="api.listen", value=f"{host}:{text}", line=line)
            return
        first, *others = [each.strip() for each in listeners.value.split(",")]
        found = _LISTENER.fullmatch(first)
        if found is None or found["scheme"].lower() not in ("http", "https"):
            why = "not a list such as `http://127.0.0.1:8083`"
            self._bad("listeners", BadValue(why))
            return
        if others:
            self._note(listeners, f"only the first is listened on: `{first}`")
        if found["scheme"].lower() == "https" and "api.tls.certificate" not in self._lines:
            why = "which needs `api.tls.certificate` and `api.tls.key`, PEM files"
            self._bad("listeners", BadValue(why))
        host = found["host"]
        if not host:
            host = _LOOPBACK
            why = f"listens on {_LOOPBACK} alone; for other machines name a host or `0.0.0.0`"
            self._note(listeners, why)
        yield Property(key="api.listen", value=f"{host}:{found['port']}", line=listeners.line)

    def _note_unread(self, entry: Property) -> None:
        key = entry.key
        if key in _READ or key in SECURITY_KEYS or key in ENGINE_BY_NAME:
            return
        if key in API_BY_NAME and key not in _OF_A_FILE:
            return
        if key in _BASE or key.startswith(_BASE_PREFIXES):
            return
        self._note(entry, "does nothing here")

    def _note(self, entry: Property, why: str) -> None:
        self._findings.note_at(entry.key, why, line=entry.line)

    def _told(self, found: Finding) -> Finding:
        """By the keys of the worker's file, not by those that stand for them."""
        listening = "listeners" if "listeners" in self._lines else "rest.port"
        key = found.key.removeprefix(f"{_ALIAS}.")
        sentence = found.sentence.replace(f"{_ALIAS}.", "").replace("api.listen", "the listener")
        return Finding(
            line=found.line or None,
            key=listening if key == "api.listen" else key,
            sentence=sentence,
        )
