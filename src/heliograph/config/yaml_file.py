"""`heliograph.yaml` into the same keys, values and lines as `mm2.properties`. Runs on the driver.

    clusters:                      clusters = A, B
      A:
        bootstrap.servers: [a:1]   A.bootstrap.servers = a:1
        consumer:
          client.id: mirror        A.consumer.client.id = mirror
    flows:
      A->B:
        topics: [orders.*, pay]    A->B.topics = orders.*,pay
    engine:
      slots: 4                     slots = 4
    replication.factor: 3          replication.factor = 3

Scalars stay the text that was written, so `3`, `"3"` and `'3'` are the same. Nodes are read, never
constructed: no tag can make an object.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import yaml

from heliograph.config.findings import Findings
from heliograph.config.mm2.keys import ENGINE_BY_NAME
from heliograph.config.mm2.names import nearest, unknown_key
from heliograph.config.mm2.properties import Property
from heliograph.config.yaml_nodes import Nodes, TooMuch, line_of

_NAMED: Final = frozenset({"clusters", "config.providers"})
"""Mappings whose keys are names to be listed as well: `clusters = A, B`."""
_UNPREFIXED: Final = frozenset({"clusters", "flows", "engine"})
"""Sections whose own name is no part of the keys inside."""


def yaml_settings(root: yaml.MappingNode, findings: Findings) -> list[Property]:
    """Every setting in the order of the file; what is malformed becomes a problem."""
    try:
        return list(_Walk(findings).root(root))
    except TooMuch as exc:
        findings.problem_at("malformed", str(exc), line=exc.line)
        return []


class _Walk(Nodes):
    """Sections, mappings and lists into flat keys."""

    def __init__(self, findings: Findings) -> None:
        super().__init__(findings)
        self._listed: frozenset[str] = frozenset()
        """Aliases given as a list, whose mappings then stand at the top."""

    def root(self, node: yaml.MappingNode) -> Iterator[Property]:
        for key_node, value in node.value:
            if key_node.value == "clusters" and isinstance(value, yaml.SequenceNode):
                self._listed = frozenset(str(item.value) for item in value.value)
        for key, key_node, value in self.entries(node, "", 0):
            if key in _UNPREFIXED and not isinstance(value, yaml.MappingNode):
                if key == "clusters":
                    yield from self._value(key, key_node, value, 1)
                else:
                    self.problem(key, value, f"needs a mapping, as in `{key}: {{…}}`")
            elif isinstance(value, yaml.MappingNode):
                yield from self._section(key, key_node, value)
            else:
                yield from self._value(key, key_node, value, 1)

    def _section(
        self, key: str, key_node: yaml.Node, value: yaml.MappingNode
    ) -> Iterator[Property]:
        section = nearest(key.lower(), _UNPREFIXED, cutoff=0.75)
        if section is not None and key not in _UNPREFIXED | self._listed:
            self.problem(key, key_node, f"unknown key; did you mean `{section}`?")
            return
        if key in _NAMED:
            names = [name for name, _, _ in self.entries(value, key, 1)]
            yield Property(key=key, value=",".join(names), line=line_of(key_node))
        if key in ("clusters", "flows"):
            for name, name_node, inner in self.entries(value, key, 1):
                if isinstance(inner, yaml.MappingNode):
                    yield from self._mapping(name, inner, 2)
                else:
                    self.problem(f"{key}.{name}", name_node, "needs a mapping of its keys")
            return
        if key == "engine":
            yield from self._engine(value)
        else:
            yield from self._mapping(key, value, 1)

    def _engine(self, node: yaml.MappingNode) -> Iterator[Property]:
        for entry in self._mapping("", node, 1):
            if entry.key in ENGINE_BY_NAME or entry.key.startswith("spark."):
                yield entry
            else:
                sentence = unknown_key(entry.key, ENGINE_BY_NAME, "engine.")
                self._findings.problem_at(f"engine.{entry.key}", sentence, line=entry.line)

    def _mapping(self, prefix: str, node: yaml.MappingNode, depth: int) -> Iterator[Property]:
        for key, key_node, value in self.entries(node, prefix, depth):
            whole = f"{prefix}.{key}" if prefix else key
            yield from self._value(whole, key_node, value, depth + 1)

    def _value(
        self, key: str, key_node: yaml.Node, value: yaml.Node, depth: int
    ) -> Iterator[Property]:
        if isinstance(value, yaml.MappingNode):
            yield from self._mapping(key, value, depth)
            return
        text = self._list(key, value) if isinstance(value, yaml.SequenceNode) else None
        if isinstance(value, yaml.ScalarNode):
            text = self.scalar(key, value)
        if text is not None:
            yield Property(key=key, value=text, line=line_of(key_node))

    def _list(self, key: str, node: yaml.SequenceNode) -> str | None:
        items: list[str] = []
        for item in node.value:
            self.count(item)
            if not isinstance(item, yaml.ScalarNode):
                self.problem(key, item, "a list holds plain values only")
                return None
            text = self.scalar(key, item)
            if text is None:
                return None
            if "," in text:
                self.problem(key, item, "a list item holds a comma, where Kafka would split it")
                return None
            items.append(text)
        return ",".join(items)
