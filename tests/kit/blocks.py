"""Every fenced block of README, tutorial and guides, and what of it can be checked without brokers.

A block is named by its page and its first line, so that a new one beside it changes no other's
name; blocks of one page that begin alike are told apart by a number.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NewType

import typer
import yaml

from heliograph.config.load import load_config
from heliograph.errors import ConfigError
from tests.kit.tutorial import fences
from tests.unit.api.serving import paths

ROOT: Final = Path(__file__).parents[2]
BlockName = NewType("BlockName", str)
_COMMAND: Final = re.compile(r"^[$#] (.+)$", re.MULTILINE)
_BARE: Final = re.compile(r"^(?:\S*/)?(?:heliograph|make) .+$", re.MULTILINE)
_CURL: Final = re.compile(r"curl .*?localhost:\d+(/[^\s'\"]*)")
_CONTINUED: Final = re.compile(r"\\\n\s*")
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
"""Of whichever click it is that typer uses."""
_SECRET: Final = re.compile(r"\$\{\w+:[^}]+\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    name: BlockName
    page: str
    language: str
    body: str

    @property
    def commands(self) -> list[str]:
        """What is typed, without comments; continued lines are one."""
        text = _CONTINUED.sub(" ", self.body)
        typed = _COMMAND if self.language == "console" else _BARE
        lines = [found.group().lstrip("$# ") for found in typed.finditer(text)]
        return lines if self.language in ("console", "sh", "") else []


def pages() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "docs/tutorial.md",
        *sorted((ROOT / "docs/guides").glob("*.md")),
    ]


def blocks_of(page: Path) -> list[Block]:
    """In their order."""
    seen: Counter[str] = Counter()
    found = []
    for fence in fences(page.read_text(encoding="utf-8")):
        first = next((line.strip() for line in fence.body.splitlines() if line.strip()), "")
        seen[first] += 1
        number = f" ({seen[first]})" if seen[first] > 1 else ""
        name = BlockName(f"{page.name}: {first}{number}")
        found.append(Block(name=name, page=page.name, language=fence.language, body=fence.body))
    return found


def all_blocks() -> dict[BlockName, Block]:
    return {block.name: block for page in pages() for block in blocks_of(page)}


def problems_of(block: Block, commands: Mapping[str, Any], folder: Path) -> list[str]:
    """What a reader who typed or copied the block would be told is wrong, as far as it is known."""
    found = [problem for line in block.commands for problem in _typed_wrong(line, commands, folder)]
    checks: dict[str, Callable[[Block, Path], list[str]]] = {
        "python": _python_problems,
        "properties": _properties_problems,
        "json": lambda each, _: _loading(json.loads, each.body),
        "yaml": lambda each, _: _loading(yaml.safe_load, each.body),
    }
    if block.language in checks:
        found += checks[block.language](block, folder)
    return found


def _typed_wrong(line: str, commands: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """`heliograph` by its own parser, `curl` by the routes that there are."""
    for path in _CURL.findall(line):
        if not _is_route(path.partition("?")[0]):
            yield f"no route: {path}"
    words = shlex.split(line.partition("&&")[0], comments=True)
    if words[:1] == ["make"] and f"\n{words[1]}:" not in (ROOT / "Makefile").read_text():
        yield f"make has no {words[1]}"
    if not words or Path(words[0]).name != "heliograph" or words[1:] == ["--version"]:
        return
    name = next((name for name in (" ".join(words[1:3]), words[1]) if name in commands), None)
    if name is None:
        yield f"no command: {line}"
        return
    arguments = words[1 + len(name.split()) :]
    for word in arguments:
        if re.fullmatch(r"[\w.-]+\.(?:properties|json)", word):
            (folder / word).touch()
    try:
        commands[name].make_context(name, arguments)
    except _UsageError as exc:
        yield f"{line}: {exc}"


def _is_route(path: str) -> bool:
    if path.startswith("/connectors"):
        return True  # Connect's own, of which docs/reference/connect.md has a test
    known = {re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route)) for _, route in paths()}
    return any(re.fullmatch(route, path) for route in known)


def _python_problems(block: Block, _: Path) -> list[str]:
    """It compiles, and what it imports or takes of `heliograph` is there."""
    tree = ast.parse(block.body)
    problems = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = importlib.import_module(node.module)
            problems += [
                f"{node.module} has no {each.name}"
                for each in node.names
                if not hasattr(module, each.name)
            ]
        elif isinstance(node, ast.Import):
            for each in node.names:
                importlib.import_module(each.name)
        elif (
            isinstance(node, ast.Attribute)
            and ast.unparse(node.value) == "heliograph"
            and not hasattr(importlib.import_module("heliograph"), node.attr)
        ):
            problems.append(f"heliograph has no {node.attr}")
    return problems


def _properties_problems(block: Block, folder: Path) -> list[str]:
    """As a part of a file that is whole otherwise."""
    if re.search(r"^bootstrap\.servers", block.body, re.MULTILINE):
        return []  # of a Java client, whose keys are Kafka's
    body = _SECRET.sub("user:password", block.body)
    aliases = sorted(set(re.findall(r"^(\w+)->(\w+)\.", body, re.MULTILINE)))
    names = aliases[0] if aliases else ("A", "B")
    whole = [] if "clusters =" in body else [f"clusters = {', '.join(names)}"]
    whole += [
        f"{alias}.bootstrap.servers = 127.0.0.1:9092"
        for alias in names
        if f"{alias}.bootstrap.servers" not in body
    ]
    file = folder / "block.properties"
    file.write_text("\n".join([*whole, body]), encoding="utf-8")
    try:
        load_config(file)
    except ConfigError as exc:
        return str(exc).splitlines()
    return []


def _loading(load: Callable[[str], object], text: str) -> list[str]:
    try:
        load(text)
    except ValueError as exc:
        return [str(exc)]
    return []
