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

import re
from collections.abc import Iterator
from typing import Final

import yaml

from heliograph.config.findings import Findings
from heliograph.config.mm2.keys import ENGINE_BY_NAME
from heliograph.config.mm2.names import nearest, unknown_key
from heliograph.config.mm2.properties import Property

CHARACTERS_MAX: Final = 1024 * 1024
KEYS_MAX: Final = 20_000
DEPTH_MAX: Final = 12
_CORE: Final = "tag:yaml.org,2002:"
_NULL: Final = _CORE + "null"
_MERGE: Final = _CORE + "merge"
_SCALARS: Final = frozenset(
    _CORE + kind for kind in ("str", "int", "float", "bool", "timestamp", "value")
)
_NAMED: Final = frozenset({"clusters", "config.providers"})
"""Mappings whose keys are names to be listed as well: `clusters = A, B`."""
_UNPREFIXED: Final = frozenset({"clusters", "flows", "engine"})
"""Sections whose own name is no part of the keys inside."""


def is_yaml(name: str) -> bool:
    return name.lower().endswith((".yaml", ".yml"))


def decode_yaml(content: bytes) -> str:
    """UTF-8, as YAML is everywhere; raises `UnicodeDecodeError`."""
    return content.decode("utf-8-sig")


def parse_yaml(text: str, findings: Findings) -> list[Property]:
    """Every setting in the order of the file; what is malformed becomes a problem."""
    if len(text) > CHARACTERS_MAX:
        findings.problem_at("file", f"has {len(text)} characters, more than {CHARACTERS_MAX}")
        return []
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line = None if mark is None else mark.line + 1
        findings.problem_at("malformed", _unquoted(exc.problem or exc.context), line=line)
        return []
    except (yaml.YAMLError, RecursionError) as exc:
        deep = isinstance(exc, RecursionError)
        why = "nested too deeply" if deep else "holds characters that no YAML file may hold"
        findings.problem_at("malformed", why)
        return []
    if root is None or root.tag == _NULL:
        return []
    if not isinstance(root, yaml.MappingNode):
        findings.problem_at("malformed", "not a mapping of keys to values", line=_line(root))
        return []
    try:
        return list(_Walk(findings).root(root))
    except _TooMuch as exc:
        findings.problem_at("malformed", str(exc), line=exc.line)
        return []


class _TooMuch(ValueError):
    """Aliases of aliases may stand for more than any machine holds."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why)
        self.line = line


class _Walk:
    """One pass over the nodes; counts what comes out, whatever the aliases multiply."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._visited = 0
        self._listed: frozenset[str] = frozenset()
        """Aliases given as a list, whose mappings then stand at the top."""

    def root(self, node: yaml.MappingNode) -> Iterator[Property]:
        for key_node, value in node.value:
            if key_node.value == "clusters" and isinstance(value, yaml.SequenceNode):
                self._listed = frozenset(str(item.value) for item in value.value)
        for key, key_node, value in self._entries(node, "", 0):
            if key in _UNPREFIXED and not isinstance(value, yaml.MappingNode):
                if key == "clusters":
                    yield from self._value(key, key_node, value, 1)
                else:
                    self._problem(key, value, f"needs a mapping, as in `{key}: {{…}}`")
            elif isinstance(value, yaml.MappingNode):
                yield from self._section(key, key_node, value)
            else:
                yield from self._value(key, key_node, value, 1)

    def _section(
        self, key: str, key_node: yaml.Node, value: yaml.MappingNode
    ) -> Iterator[Property]:
        section = nearest(key.lower(), _UNPREFIXED, cutoff=0.75)
        if section is not None and key not in _UNPREFIXED | self._listed:
            self._problem(key, key_node, f"unknown key; did you mean `{section}`?")
            return
        if key in _NAMED:
            names = [name for name, _, _ in self._entries(value, key, 1)]
            yield Property(key=key, value=",".join(names), line=_line(key_node))
        if key in ("clusters", "flows"):
            for name, name_node, inner in self._entries(value, key, 1):
                if isinstance(inner, yaml.MappingNode):
                    yield from self._mapping(name, inner, 2)
                else:
                    self._problem(f"{key}.{name}", name_node, "needs a mapping of its keys")
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
        for key, key_node, value in self._entries(node, prefix, depth):
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
            text = self._scalar(key, value)
        if text is not None:
            yield Property(key=key, value=text, line=_line(key_node))

    def _list(self, key: str, node: yaml.SequenceNode) -> str | None:
        items: list[str] = []
        for item in node.value:
            self._count(item)
            if not isinstance(item, yaml.ScalarNode):
                self._problem(key, item, "a list holds plain values only")
                return None
            text = self._scalar(key, item)
            if text is None:
                return None
            if "," in text:
                self._problem(key, item, "a list item holds a comma, where Kafka would split it")
                return None
            items.append(text)
        return ",".join(items)

    def _scalar(self, key: str, node: yaml.ScalarNode) -> str | None:
        if node.tag == _NULL:
            self._problem(key, node, 'has no value; write "" for an empty one')
            return None
        if node.tag not in _SCALARS:
            self._problem(key, node, "has a YAML tag, which is not supported")
            return None
        return str(node.value)

    def _entries(
        self, node: yaml.MappingNode, prefix: str, depth: int
    ) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Keys and values of a mapping, merged ones (`<<`) last; no key twice."""
        if depth > DEPTH_MAX:
            raise _TooMuch(f"nested more than {DEPTH_MAX} levels deep", _line(node))
        merged: list[yaml.Node] = []
        lines: dict[str, int] = {}
        for key_node, value in node.value:
            self._count(key_node)
            if key_node.tag == _MERGE:
                several = isinstance(value, yaml.SequenceNode)
                merged.extend(value.value if several else [value])
            elif not isinstance(key_node, yaml.ScalarNode) or not key_node.value:
                self._problem(prefix or "malformed", key_node, "a key is plain text")
            elif key_node.value in lines:
                whole = f"{prefix}.{key_node.value}" if prefix else key_node.value
                earlier = lines[key_node.value]
                self._problem(whole, key_node, f"is already set on line {earlier}")
            else:
                lines[key_node.value] = _line(key_node)
                yield key_node.value, key_node, value
        for other in merged:
            if not isinstance(other, yaml.MappingNode):
                self._problem(prefix or "malformed", other, "`<<` needs a mapping")
                continue
            for key, key_node, value in self._entries(other, prefix, depth + 1):
                if key not in lines:
                    lines[key] = _line(key_node)
                    yield key, key_node, value

    def _count(self, node: yaml.Node) -> None:
        self._visited += 1
        if self._visited > KEYS_MAX:
            raise _TooMuch(f"holds more than {KEYS_MAX} keys and values", _line(node))

    def _problem(self, key: str, node: yaml.Node, sentence: str) -> None:
        self._findings.problem_at(key, sentence, line=_line(node))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _unquoted(said: str | None) -> str:
    """The parser's words without what it quotes: a password may begin with `*` or `!`."""
    if said is not None and "alias" in said:
        return "an unknown YAML alias; put a value that begins with * in quotes"
    if said is not None and r"'\t'" in said:
        return "a tab; YAML is indented with spaces"
    return re.sub(r"'[^'<][^']+'", "…", " ".join((said or "not YAML").split()))
