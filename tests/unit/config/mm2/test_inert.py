"""A key that is said to have no effect has none, and a field that exists is read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import heliograph
from heliograph.config.keys import Key
from heliograph.config.mm2.inert import (
    FLOW_ROWS,
    JAVA_ONLY_SECURITY,
    REST_ROWS,
    WORKER_ROWS,
)
from heliograph.config.schema import ClusterConfig, EngineConfig, FlowConfig, MirrorConfig
from heliograph.config.sections import Section
from tests.unit.config.texts import with_lines

PACKAGE = Path(heliograph.__file__).parent
TREES = {
    path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text())
    for path in PACKAGE.rglob("*.py")
}
INERT = (*FLOW_ROWS, *WORKER_ROWS, *REST_ROWS)


def test_nothing_else_in_the_package_names_an_inert_key() -> None:
    """A key without a field can only be read by its name. `connect` is Connect's own side, where
    these keys are a worker's and a connector's; `doctor` has a check of the name."""
    inert = {key.name for key in INERT} | JAVA_ONLY_SECURITY

    named = {
        (module, node.value)
        for module, tree in TREES.items()
        if module != "config/mm2/inert.py" and not module.startswith(("connect/", "doctor/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in inert
    }

    assert named == set()


@pytest.mark.parametrize("key", INERT, ids=lambda key: key.name)
def test_an_inert_key_fills_no_field(key: Key) -> None:
    assert key.path == ()


@pytest.mark.parametrize(
    "line",
    [
        "A->B.name = mirror-1",
        "A->B.exactly.once.support = required",
        "B.offset.storage.partitions = 5",
        "offset.storage.replication.factor = 1",
        "B.exactly.once.source.support = enabled",
    ],
)
def test_a_key_that_adopt_or_release_or_the_loader_heeds_is_not_noted_as_inert(line: str) -> None:
    assert with_lines(line).notes == ()


@pytest.mark.parametrize("model", [MirrorConfig, ClusterConfig, EngineConfig, FlowConfig])
def test_every_field_of_the_model_is_read_somewhere(model: type[Section]) -> None:
    read = {
        node.attr
        for module, tree in TREES.items()
        if module not in ("config/schema.py", "config/sections.py", "config/security.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    # Read by methods of the model itself.
    read |= {"role_security", "pairs", "chosen", "consumer", "producer", "admin"}
    read |= {"dead_letter_topic"}

    assert unread(model, read) == []


def unread(model: type[Section], read: set[str]) -> list[str]:
    found: list[str] = []
    for name, field in model.model_fields.items():
        if isinstance(field.default, Section):
            found += [f"{name}.{inner}" for inner in unread(type(field.default), read)]
        if name not in read:
            found.append(name)
    return found
