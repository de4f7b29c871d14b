"""Answers fit the contract by which Kafbat UI's client was generated: fields, types, closed sets.

A client generated from it fails on a state it does not know, and shows an empty page.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.api.connecting import app_of, client_of, config_of, kept
from tests.unit.api.pretend_herder import PretendHerder

TASK_STATES = ("RUNNING", "FAILED", "PAUSED", "RESTARTING", "UNASSIGNED")
TASK = {"connector": str, "task": int}
TASK_STATUS = {"id": int, "state": TASK_STATES, "worker_id": str, "trace?": str, "version": str}
CONNECTOR = {"name": str, "config": {...: str}, "tasks": [TASK], "type": ("source",)}
STATUS = {
    "name": str,
    "connector": {
        "state": (*TASK_STATES, "STOPPED"),
        "worker_id": str,
        "trace?": str,
        "version": str,
    },
    "tasks": [TASK_STATUS],
    "type": ("source",),
}
DEFINITION = {
    "name": str,
    "type": ("BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"),
    "required": bool,
    "default_value": (str, None),
    "importance": ("LOW", "MEDIUM", "HIGH"),
    "documentation": str,
    "group": (str, None),
    "width": ("SHORT", "MEDIUM", "LONG", "NONE"),
    "display_name": str,
    "dependents": [str],
    "order": int,
}
VALUE = {
    "name": str,
    "value": (str, None),
    "recommended_values": [str],
    "errors": [str],
    "visible": bool,
}
VALIDATED = {
    "name": str,
    "error_count": int,
    "groups": [str],
    "configs": [{"definition": DEFINITION, "value": VALUE}],
}
PLUGIN = {"class": str, "type": ("source",), "version": str}
ROUTES = {
    "/": {"version": str, "commit": str, "kafka_cluster_id": str},
    "/connectors": [str],
    "/connectors?expand=info&expand=status": {...: {"info": CONNECTOR, "status": STATUS}},
    "/connectors/src": CONNECTOR,
    "/connectors/src/config": {...: str},
    "/connectors/src/status": STATUS,
    "/connectors/src/tasks": [{"id": TASK, "config": {...: str}}],
    "/connectors/src/tasks/0/status": TASK_STATUS,
    "/connectors/src/topics": {...: {"topics": [str]}},
    "/connector-plugins": [PLUGIN],
    "/connector-plugins/MirrorSourceConnector/config": [DEFINITION],
    "/admin/loggers": {...: {"level": str, "last_modified": (int, None)}},
}


def fits(found: Any, shape: Any) -> bool:
    match shape:
        case list():
            return isinstance(found, list) and all(fits(each, shape[0]) for each in found)
        case tuple():
            return any(found is None if one is None else fits(found, one) for one in shape)
        case str():
            return bool(found == shape)
        case type():
            return isinstance(found, shape) and (shape is bool or not isinstance(found, bool))
    assert isinstance(shape, dict)
    if not isinstance(found, dict):
        return False
    if ... in shape:
        return all(isinstance(k, str) and fits(v, shape[...]) for k, v in found.items())
    needed = {key for key in shape if not key.endswith("?")}
    known = {key.removesuffix("?"): value for key, value in shape.items()}
    return needed <= found.keys() <= known.keys() and all(
        fits(value, known[key]) for key, value in found.items()
    )


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("verb", ["", "pause", "stop"])
def test_every_answer_fits_the_contract(path: str, verb: str) -> None:
    client = client_of(app_of(PretendHerder(kept("src"))))
    if verb:
        client.put(f"/connectors/src/{verb}")

    response = client.get(path)

    if verb == "stop" and "/tasks/0" in path:
        assert response.status_code == 404
        return
    assert response.status_code == 200
    assert fits(response.json(), ROUTES[path]), response.json()


def test_a_validation_fits_the_contract() -> None:
    client = client_of(app_of(PretendHerder()))

    body = client.put(
        "/connector-plugins/MirrorSource/config/validate", json=config_of(tasks_max="many")
    ).json()

    assert fits(body, VALIDATED), body
