"""Mappings of a Kubernetes resource with paths; what nobody asks for is told. Driver only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from heliograph.config.findings import Findings
from heliograph.config.mm2.names import nearest
from heliograph.config.mm2.properties import Property
from heliograph.config.yaml_nodes import Nodes, is_nothing, line_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A plain value, as it was written."""

    value: str = field(repr=False)
    line: int
    path: str


class Part:
    """One mapping. A field that is `null` is as absent as one that is not there."""

    def __init__(
        self, node: yaml.MappingNode, path: str, nodes: Nodes, findings: Findings, depth: int = 0
    ) -> None:
        self.path, self.line = path, line_of(node)
        self._nodes, self._findings, self._depth = nodes, findings, depth
        self._fields: dict[str, tuple[yaml.Node, yaml.Node]] = {
            name: (key, value)
            for name, key, value in nodes.entries(node, path, depth)
            if not is_nothing(value)
        }
        self._asked: set[str] = set()

    def has(self, name: str) -> bool:
        return name in self._fields

    def pass_over(self, *names: str) -> list[str]:
        """Those of `names` that are there; whatever they hold is right."""
        self._asked.update(names)
        return [name for name in names if name in self._fields]

    def text(self, name: str) -> Text | None:
        value = self._value(name)
        if value is None:
            return None
        if not isinstance(value, yaml.ScalarNode):
            self._problem(name, "needs a plain value")
            return None
        found = self._nodes.scalar(self._whole(name), value)
        return None if found is None else self._text(name, found)

    def required(self, name: str) -> Text | None:
        """The text; where the field is missing that is a problem."""
        return self.text(name) if self._is_there(name) else None

    def part(self, name: str) -> Part | None:
        value = self._value(name)
        if value is None:
            return None
        if not isinstance(value, yaml.MappingNode):
            self._problem(name, "needs a mapping")
            return None
        return self._inner(value, self._whole(name))

    def required_part(self, name: str) -> Part | None:
        return self.part(name) if self._is_there(name) else None

    def parts(self, name: str) -> list[Part]:
        """The mappings of a list."""
        value = self._value(name)
        if value is None:
            return []
        if not isinstance(value, yaml.SequenceNode):
            self._problem(name, "needs a list")
            return []
        found: list[Part] = []
        for number, item in enumerate(value.value):
            self._nodes.count(item)
            path = f"{self._whole(name)}[{number}]"
            if isinstance(item, yaml.MappingNode):
                found.append(self._inner(item, path))
            else:
                self._nodes.problem(path, item, "needs a mapping")
        return found

    def settings(self, name: str) -> Iterator[Property]:
        """A mapping of Kafka's keys to plain values."""
        value = self._value(name)
        if value is None:
            return
        if not isinstance(value, yaml.MappingNode):
            self._problem(name, "needs a mapping of keys to values")
            return
        path = self._whole(name)
        for key, key_node, inner in self._nodes.entries(value, path, self._depth + 1):
            if not isinstance(inner, yaml.ScalarNode):
                self._nodes.problem(f"{path}.{key}", key_node, "needs a plain value")
                continue
            text = self._nodes.scalar(f"{path}.{key}", inner)
            if text is not None:
                yield Property(key=key, value=text, line=line_of(key_node))

    def refuse_the_rest(self) -> None:
        """Every field that was not asked for is a problem: it may be a mistyped one that was."""
        for name, (key, _) in self._fields.items():
            if name in self._asked:
                continue
            meant = nearest(name, self._asked)
            hint = f"; did you mean `{meant}`?" if meant else ""
            self._nodes.problem(self._whole(name), key, f"unknown field{hint}")

    def _is_there(self, name: str) -> bool:
        self._asked.add(name)
        if name not in self._fields:
            self._findings.problem_at(self._whole(name), "missing", line=self.line)
        return name in self._fields

    def _value(self, name: str) -> yaml.Node | None:
        self._asked.add(name)
        return self._fields[name][1] if name in self._fields else None

    def _inner(self, node: yaml.MappingNode, path: str) -> Part:
        return Part(node, path, self._nodes, self._findings, self._depth + 1)

    def _text(self, name: str, value: str) -> Text:
        return Text(value=value, line=line_of(self._fields[name][0]), path=self._whole(name))

    def _whole(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def _problem(self, name: str, sentence: str) -> None:
        self._nodes.problem(self._whole(name), self._fields[name][0], sentence)
