"""Kafka Connect's dialect: who may do what, and its connectors beside `/v1`, decided on by both."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.routing import Route

from heliograph.api.access import TRIES_MAX, Tokens
from heliograph.api.app import make_app
from heliograph.api.dialects import Dialects
from heliograph.api.state import ApiState
from heliograph.clock import now_ms
from heliograph.connect.of_file import FileConnectors
from heliograph.connect.plugins import Plugin
from heliograph.decisions.orders import standing_of
from heliograph.driver.live import LiveMirror
from tests.unit.api.connecting import app_of, client_of, config_of, kept, message, two_connectors
from tests.unit.api.pretend import AB, PretendLedgers, live
from tests.unit.api.pretend_herder import PretendHerder

LOOK, OPERATE, RECOVER, ONE_FLOW = ("l" * 20, "o" * 20, "r" * 20, "f" * 20)


@pytest.fixture
def herder() -> PretendHerder:
    return two_connectors()


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    path = tmp_path / "tokens"
    path.write_text(
        f"ann look {LOOK}\nbob operate {OPERATE}\n"
        f"cid operate:A->B {ONE_FLOW}\neve recover {RECOVER}\n"
    )
    path.chmod(0o600)
    return Tokens(path)


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(token: str) -> dict[str, str]:
    shown = base64.b64encode(f"anyone:{token}".encode()).decode()
    return {"Authorization": f"Basic {shown}"}


_CHANGES: list[tuple[str, str, Any]] = [
    ("POST", "/connectors", {"name": "n", "config": config_of()}),
    ("PUT", "/connectors/src/config", config_of()),
    ("PATCH", "/connectors/src/config", {"tasks.max": 2}),
    ("DELETE", "/connectors/src", None),
    ("PUT", "/connectors/src/pause", None),
    ("PUT", "/connectors/src/resume", None),
    ("PUT", "/connectors/src/stop", None),
    ("POST", "/connectors/src/restart", None),
    ("POST", "/connectors/src/tasks/0/restart", None),
    ("PUT", "/connectors/src/topics/reset", None),
    ("PATCH", "/connectors/src/offsets", {"offsets": []}),
    ("DELETE", "/connectors/src/offsets", None),
    ("PUT", "/connector-plugins/MirrorSource/config/validate", config_of()),
    ("PUT", "/admin/loggers/heliograph", {"level": "INFO"}),
]


@pytest.mark.parametrize(("method", "path", "body"), _CHANGES)
def test_every_change_needs_operate(
    herder: PretendHerder, tokens: Tokens, method: str, path: str, body: Any
) -> None:
    client = client_of(app_of(herder, tokens), has_tokens=True)
    before = dict(herder.kept)

    nobody = client.request(method, path, json=body)
    looker = client.request(method, path, json=body, headers=basic(LOOK))

    assert message(nobody, 401)
    assert "does not have the role operate" in message(looker, 403)
    assert herder.kept == before


def test_every_changing_route_is_in_that_list(herder: PretendHerder) -> None:
    app = app_of(herder)
    found = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method not in ("GET", "HEAD")
    }
    tried = {
        (
            method,
            path.replace("src", "{name}")
            .replace("/tasks/0", "/tasks/{task:int}")
            .replace("MirrorSource", "{plugin}")
            .replace("loggers/heliograph", "loggers/{logger}"),
        )
        for method, path, _ in _CHANGES
    }

    assert found == tried


def test_a_role_for_one_flow_reaches_only_its_connectors(tokens: Tokens) -> None:
    other = kept("other", source_cluster_alias="B", target_cluster_alias="A")
    herder = PretendHerder(kept("src"), other)
    client = client_of(app_of(herder, tokens), has_tokens=True)

    assert client.get("/connectors", headers=bearer(ONE_FLOW)).json() == ["src"]
    assert client.put("/connectors/src/pause", headers=bearer(ONE_FLOW)).status_code == 202
    assert message(client.get("/connectors/other", headers=bearer(ONE_FLOW)), 403)
    moved = client.patch(
        "/connectors/src/config",
        json={"source.cluster.alias": "B", "target.cluster.alias": "A"},
        headers=bearer(ONE_FLOW),
    )
    assert message(moved, 403)


def test_wrong_tokens_are_bounded(herder: PretendHerder, tokens: Tokens) -> None:
    client = client_of(app_of(herder, tokens), has_tokens=True)

    codes = [
        client.get("/connectors", headers=basic("w" * 20)).status_code for _ in range(TRIES_MAX + 1)
    ]

    assert codes == [401] * TRIES_MAX + [429]
    assert client.get("/health").status_code == 200


# -- beside /v1


SOURCE = "/connectors/A-%3EB.MirrorSourceConnector"
CHECKPOINT = "/connectors/A-%3EB.MirrorCheckpointConnector"


def of_file(mirror: LiveMirror, tokens: Tokens | None = None) -> TestClient:
    herder = FileConnectors(mirror, "127.0.0.1:8083")
    app = Dialects(make_app(ApiState(live=mirror, tokens=tokens)), app_of(herder, tokens))
    return client_of(app, has_tokens=tokens is not None)


def state_of(client: TestClient, connector: str) -> tuple[str, set[str]]:
    body = client.get(f"{connector}/status").json()
    return body["connector"]["state"], {task["state"] for task in body["tasks"]}


def decided(ledgers: PretendLedgers) -> list[tuple[str, str, str]]:
    """Beside the pause of one partition that is there from the beginning."""
    standing = standing_of(ledgers.decided(AB), now_ms())
    return [(each.verb, str(each.scope), each.who) for each in standing if each.at_ms > 1]


def test_flows_of_a_file_are_connectors_beside_v1() -> None:
    client = of_file(live())

    change = client.put("/connectors/A->B.MirrorSourceConnector/config", json=config_of())

    names = client.get("/connectors").json()
    assert names == [f"{flow}.{plugin}" for flow in ("A->B", "B->A") for plugin in Plugin]
    assert "come from its file; change the file" in message(change, 403)
    assert client.get("/v1/flows").status_code == 200
    assert client.get("/health").json()["message"] == "the driver works"
    assert json.loads(client.get("/v1/nothing").text)["code"] == "not_found"


def test_a_connector_of_a_file_is_paused_stopped_and_resumed_by_decisions(tokens: Tokens) -> None:
    ledgers = PretendLedgers()
    client = of_file(live(ledgers=ledgers), tokens)
    client.headers.update(bearer(OPERATE))
    seen: list[tuple[int, Any, Any, Any]] = []

    for verb in ("pause", "pause", "stop", "resume", "resume", "stop", "pause"):
        code = client.put(f"{SOURCE}/{verb}").status_code
        made = [(each[0], each[1]) for each in decided(ledgers)]
        seen.append((code, state_of(client, SOURCE), state_of(client, CHECKPOINT)[0], made))

    pause, stop = ("pause", "every topic"), ("stop", "every topic")
    resume, start = ("resume", "every topic"), ("start", "every topic")
    paused, stopped = ("PAUSED", {"PAUSED"}), ("STOPPED", set[str]())
    assert seen == [
        (202, paused, "RUNNING", [pause]),
        (202, paused, "RUNNING", [pause]),
        (204, stopped, "STOPPED", [pause, stop]),
        (202, ("RUNNING", {"FAILED"}), "RUNNING", [resume, start]),
        (202, ("RUNNING", {"FAILED"}), "RUNNING", [resume, start]),
        (204, stopped, "STOPPED", [resume, stop]),
        (202, paused, "RUNNING", [pause, start]),
    ]
    assert {who for _, _, who in decided(ledgers)} == {"bob"}
    assert {each.why for each in ledgers.decided(AB) if each.at_ms > 1} == {"Kafka Connect's REST"}
    only_source = client.put(f"{CHECKPOINT}/resume")
    assert "only the MirrorSourceConnector of its flow" in message(only_source, 403)


def test_a_connector_that_was_never_paused_is_resumed_without_a_word() -> None:
    ledgers = PretendLedgers()

    assert of_file(live(ledgers=ledgers)).put(f"{SOURCE}/resume").status_code == 202

    assert ledgers.noted == []


def test_a_pause_that_was_decided_elsewhere_is_the_connectors() -> None:
    client = of_file(live())

    client.post("/v1/flows/A->B:pause", json={"topics": ["orders"], "why": "a part of it"})
    part = state_of(client, SOURCE)[0]
    client.post("/v1/flows/A->B:pause", json={"for_s": 3600})
    whole = state_of(client, SOURCE)[0]
    client.put(f"{SOURCE}/resume")

    assert (part, whole, state_of(client, SOURCE)[0]) == ("RUNNING", "PAUSED", "RUNNING")


def test_a_connector_whose_ledger_does_not_take_it_says_connects_sentence() -> None:
    ledgers = PretendLedgers()
    ledgers.silent.add(AB)
    client = of_file(live(ledgers=ledgers))

    said = message(client.put(f"{SOURCE}/pause"), 500)

    assert said == "Error writing target state to Kafka: cluster A: no answer in time"
    assert state_of(client, SOURCE)[0] == "RUNNING"


def test_to_alter_offsets_of_a_file_s_connector_needs_the_role_of_a_rewind(tokens: Tokens) -> None:
    client = of_file(live(ledgers=PretendLedgers()), tokens)
    lane = {"cluster": "A", "topic": "orders", "partition": 0}
    body = {"offsets": [{"partition": lane, "offset": None}]}
    codes: dict[str, list[int]] = {}

    for role in (OPERATE, RECOVER):
        client.headers.update(bearer(role))
        patched = client.patch(f"{SOURCE}/offsets", json=body)
        deleted = client.delete(f"{SOURCE}/offsets")
        codes[role] = [patched.status_code, deleted.status_code]

    # Those who may are told that it has to be stopped first.
    assert codes == {OPERATE: [403, 403], RECOVER: [400, 400]}


def test_a_restart_leaves_a_lane_alone_that_a_decision_pauses() -> None:
    tried: list[Any] = []
    client = of_file(live(resume=lambda lanes: tried.extend(lanes)))

    assert client.post(f"{SOURCE}/restart").status_code == 204
    partitions = [lane.source.partition for lane in tried]
    client.put(f"{SOURCE}/pause")
    client.post(f"{SOURCE}/restart")

    assert partitions == [1, 2, 3]
    assert len(tried) == len(partitions)
