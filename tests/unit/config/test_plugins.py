"""Policies and filters by import path are looked at when the file is read, with their line."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tests.unit.config.texts import problems_with, with_lines

OWN = "tests.unit.topics.own_classes:"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("replication.policy.class", "Suffixed"),
        ("topic.filter.class", "EndsIn"),
        ("group.filter.class", "EndsIn"),
        ("config.property.filter.class", "EndsIn"),
    ],
)
def test_a_python_class_is_taken_by_its_import_path_and_travels_as_text(
    key: str, name: str
) -> None:
    config = with_lines(f"A->B.{key} = {OWN}{name}\n")

    assert config.notes == ()
    assert OWN + name in repr(config.flows)
    assert pickle.loads(pickle.dumps(config)) == config
    assert len(pickle.dumps(config.clusters)) < 10_000


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            f"topic.filter.class = {OWN}HalfAPolicy",
            f"is `{OWN}HalfAPolicy`, a class without `should_mirror`",
        ),
        (
            f"group.filter.class = {OWN}Nobody",
            f"is `{OWN}Nobody`, but `tests.unit.topics.own_classes` has no `Nobody`",
        ),
        (f"topic.filter.class = {OWN}NOT_A_CLASS", f"is `{OWN}NOT_A_CLASS`, not a class"),
        (
            "replication.policy.class = no_such_module:Policy",
            "is `no_such_module:Policy`, whose module cannot be imported: "
            "ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            "config.property.filter.class = a-b:C",
            "is `a-b:C`, not `module:Class`",
        ),
        (
            "topic.filter.class = com.acme.Filter",
            "is `com.acme.Filter`, a Java class that cannot run here; "
            "`org.apache.kafka.connect.mirror.DefaultTopicFilter` can, "
            "or a Python class written `module:Class`",
        ),
    ],
)
def test_a_class_that_cannot_be_used_is_reported_with_its_line(line: str, sentence: str) -> None:
    assert problems_with(line) == [f"line 5  {line.split(' ')[0]}: {sentence}"]


def test_a_module_that_raises_while_it_is_imported_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raises_on_import.py").write_text("raise RuntimeError('not today')\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert problems_with("topic.filter.class = raises_on_import:Filter") == [
        "line 5  topic.filter.class: is `raises_on_import:Filter`, "
        "whose module cannot be imported: RuntimeError: not today"
    ]
