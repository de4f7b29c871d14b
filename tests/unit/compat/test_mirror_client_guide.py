"""The guide to the mirror client names what exists, and its examples are Python."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

from heliograph import mirror_client
from heliograph.mirror_client import MirrorClient

GUIDE = (Path(__file__).parents[3] / "docs/guides/mirror-client.md").read_text()


def test_every_public_method_is_in_the_guides_table() -> None:
    rows = [line.split(" | ")[1] for line in GUIDE.splitlines() if line.startswith("| ")]
    named = {name for row in rows for name in re.findall(r"`(\w+)", row)}

    public = {name for name in vars(MirrorClient) if not name.startswith("_")}

    # How a client is made and ended is told in the text; one is the other with a count.
    assert public - {"of", "close", "read_heartbeats"} == named


def test_every_function_of_the_module_is_in_the_guide() -> None:
    functions = [
        name
        for name in mirror_client.__all__
        if inspect.isfunction(getattr(mirror_client, name)) and f"`{name}`" not in GUIDE
    ]

    assert functions == []


def test_the_examples_are_python_that_imports_what_is_there() -> None:
    examples = [ast.parse(code) for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)]
    imports = [node for code in examples for node in ast.walk(code)]

    for node in imports:
        if isinstance(node, ast.ImportFrom) and node.module:
            module = __import__(node.module, fromlist=["*"])
            assert all(hasattr(module, alias.name) for alias in node.names)
    assert len(examples) >= 3
