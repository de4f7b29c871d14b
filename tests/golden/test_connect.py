"""Transforms and predicates as a file names them, against what Connect's own classes made of the
same records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heliograph.config.schema import FlowConfig
from heliograph.errors import ConfigError
from heliograph.model import TopicName
from heliograph.topics.routes import renamed, routes_of
from heliograph.transform.lane import LaneTransform
from heliograph.transform.record import Where
from tests.unit.config.texts import with_lines

FOLDER = Path(__file__).parent / "connect"
CASES = [
    pytest.param(case, answer, id=f"{number}-{case['type']}")
    for number, (case, answer) in enumerate(
        zip(
            json.loads((FOLDER / "cases.json").read_text()),
            json.loads((FOLDER / "answers-4.3.1.json").read_text()),
            strict=True,
        )
    )
]
JAVA = "org.apache.kafka.connect.transforms."


def flow_of(case: dict[str, Any]) -> FlowConfig:
    """With the case's transform, as a file has it; raises `ConfigError`."""
    keys = {"type": JAVA + case["type"], **case["keys"]}
    lines = ["A->B.transforms = t"]
    if "predicate" in case:
        keys |= {"predicate": "p", "negate": str(case["negate"]).lower()}
        lines += ["A->B.predicates = p", f"A->B.predicates.p.type = {JAVA}predicates."]
        lines[-1] += case["predicate"]
        lines += [
            f"A->B.predicates.p.{k} = {escaped(v)}" for k, v in case["predicate_keys"].items()
        ]
    lines += [f"A->B.transforms.t.{name} = {escaped(value)}" for name, value in keys.items()]
    return with_lines("\n".join(lines) + "\n").flows[0]


def escaped(value: str) -> str:
    """As a file of properties holds it."""
    return value.replace("\\", "\\\\")


@pytest.mark.parametrize(("case", "answer"), CASES)
def test_what_a_file_asks_for_is_what_connect_does(
    case: dict[str, Any], answer: dict[str, Any]
) -> None:
    if answer.get("refused"):
        # What Connect's task dies of with the first record is refused before anything runs.
        with pytest.raises(ConfigError):
            flow_of(case)
        return
    flow, value = flow_of(case), case["value"]
    topic = renamed(routes_of(flow.transforms), TopicName("orders"), TopicName(case["topic"]))
    transform = LaneTransform.of(flow.transforms, Where("orders", case["topic"], 0))
    headers = tuple((name, b"") for name in case["headers"])
    content = (1, None, None if value is None else value.encode(), headers)
    made = content if transform is None else transform.apply([0], [content]).contents[0]

    assert (made is None) == bool(answer.get("dropped"))
    if made is not None:
        assert made[:3] == content[:3]
        assert {"topic": topic, "headers": [name for name, _ in made[3]]} == answer
