"""YAML files as nodes with their lines, read within bounds, never constructed. Runs on the driver.

No tag can make an object, and aliases of aliases are counted, whatever they multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import yaml

from heliograph.config.findings import Findings

CHARACTERS_MAX: Final = 1024 * 1024
KEYS_MAX: Final = 20_000
DEPTH_MAX: Final = 12
_CORE: Final = "tag:yaml.org,2002:"
_NULL: Final = _CORE + "null"
_MERGE: Final = _CORE + "merge"
_SCALARS: Final = frozenset(
    _CORE + kind for kind in ("str", "int", "float", "bool", "timestamp", "value")
)


class TooMuch(ValueError):
    """Aliases of aliases may stand for more than any machine holds."""

    def __init__(self, why: str, line: int) -> None:
        super().__init__(why)
        self.line = line


def is_yaml(name: str) -> bool:
    return name.lower().endswith((".yaml", ".yml"))


def decode_yaml(content: bytes) -> str:
    """UTF-8, as YAML is everywhere; raises `UnicodeDecodeError`."""
    return content.decode("utf-8-sig")


def documents(text: str, findings: Findings) -> list[yaml.MappingNode] | None:
    """The mapping of every document that holds one; None where the text is malformed, which is a
    problem then."""
    if len(text) > CHARACTERS_MAX:
        findings.problem_at("file", f"has {len(text)} characters, more than {CHARACTERS_MAX}")
        return None
    try:
        roots = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        line = None if mark is None else mark.line + 1
        findings.problem_at("malformed", _unquoted(exc.problem or exc.context), line=line)
        return None
    except (yaml.YAMLError, RecursionError) as exc:
        deep = isinstance(exc, RecursionError)
        why = "nested too deeply" if deep else "holds characters that no YAML file may hold"
        findings.problem_at("malformed", why)
        return None
    found: list[yaml.MappingNode] = []
    for root in roots:
        if root is None or root.tag == _NULL:
            continue
        if not isinstance(root, yaml.MappingNode):
            findings.problem_at("malformed", "not a mapping of keys to values", line=line_of(root))
            return None
        found.append(root)
    return found


def is_nothing(node: yaml.Node) -> bool:
    return bool(node.tag == _NULL)


def line_of(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


class Nodes:
    """One pass over the nodes of a file; counts what comes out."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._visited = 0

    def scalar(self, key: str, node: yaml.ScalarNode) -> str | None:
        """The text as it was written; what is none becomes a problem."""
        if node.tag == _NULL:
            self.problem(key, node, 'has no value; write "" for an empty one')
            return None
        if node.tag not in _SCALARS:
            self.problem(key, node, "has a YAML tag, which is not supported")
            return None
        return str(node.value)

    def entries(
        self, node: yaml.MappingNode, prefix: str, depth: int
    ) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """Keys and values of a mapping, merged ones (`<<`) last; no key twice."""
        if depth > DEPTH_MAX:
            raise TooMuch(f"nested more than {DEPTH_MAX} levels deep", line_of(node))
        merged: list[yaml.Node] = []
        lines: dict[str, int] = {}
        for key_node, value in node.value:
            self.count(key_node)
            if key_node.tag == _MERGE:
                several = isinstance(value, yaml.SequenceNode)
                merged.extend(value.value if several else [value])
            elif not isinstance(key_node, yaml.ScalarNode) or not key_node.value:
                self.problem(prefix or "malformed", key_node, "a key is plain text")
            elif key_node.value in lines:
                whole = f"{prefix}.{key_node.value}" if prefix else key_node.value
                earlier = lines[key_node.value]
                self.problem(whole, key_node, f"is already set on line {earlier}")
            else:
                lines[key_node.value] = line_of(key_node)
                yield key_node.value, key_node, value
        for other in merged:
            if not isinstance(other, yaml.MappingNode):
                self.problem(prefix or "malformed", other, "`<<` needs a mapping")
                continue
            for key, key_node, value in self.entries(other, prefix, depth + 1):
                if key not in lines:
                    lines[key] = line_of(key_node)
                    yield key, key_node, value

    def count(self, node: yaml.Node) -> None:
        self._visited += 1
        if self._visited > KEYS_MAX:
            raise TooMuch(f"holds more than {KEYS_MAX} keys and values", line_of(node))

    def problem(self, key: str, node: yaml.Node, sentence: str) -> None:
        self._findings.problem_at(key, sentence, line=line_of(node))


def _unquoted(said: str | None) -> str:
    """The parser's words without what it quotes: a password may begin with `*` or `!`."""
    if said is not None and "alias" in said:
        return "an unknown YAML alias; put a value that begins with * in quotes"
    if said is not None and r"'\t'" in said:
        return "a tab; YAML is indented with spaces"
    return re.sub(r"'[^'<][^']+'", "…", " ".join((said or "not YAML").split()))
