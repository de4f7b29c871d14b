"""Every request of kcctl, Kafbat UI and Strimzi's operator, as their own clients declare them.

Facts of their public sources, in rows of our own: kcctl at 4381ff6 (its REST interface, whose paths
may end with a slash), Kafbat UI at ab8c9ce (its OpenAPI contract), Strimzi's operator (the statuses
that its client compares literally). A client fails on any status that its row does not name, and on
a body that is no JSON of the kind it reads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from heliograph.ledger.trail import Change
from tests.unit.api.connecting import app_of, client_of, config_of, kept
from tests.unit.api.pretend_herder import PretendHerder

OK = range(200, 300)
"""What a JAX-RS client, or one made of an OpenAPI file, takes for success."""


@dataclass(frozen=True, kw_only=True)
class Call:
    method: str
    path: str
    ok: Any = OK
    answer: type[object] | None = None
    """What the body is read as; None where it is not read."""
    body: Any = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


CONFIG = config_of()
NEW = config_of(source_cluster_alias="C")
LEVEL = {"level": "DEBUG"}
LOGGER = "/admin/loggers/heliograph.api.problems"
"""Which loggers there are is each worker's own matter: Heliograph's are its own."""
KCCTL = (
    Call(method="GET", path="/", answer=dict),
    Call(method="GET", path="/connector-plugins", answer=list),
    Call(method="GET", path="/connector-plugins?connectorsOnly=false", answer=list),
    Call(method="GET", path="/connector-plugins/MirrorSourceConnector/config", answer=list),
    Call(
        method="PUT",
        path="/connector-plugins/MirrorSourceConnector/config/validate",
        body=CONFIG,
        answer=dict,
    ),
    Call(method="GET", path="/connectors/", answer=list),
    Call(method="POST", path="/connectors/", body={"name": "new", "config": NEW}, answer=dict),
    Call(method="GET", path="/connectors/src", answer=dict),
    Call(method="POST", path="/connectors/src/restart"),
    Call(
        method="POST",
        path="/connectors/src/restart?includeTasks=true&onlyFailed=false",
        answer=dict,
    ),
    Call(method="PUT", path="/connectors/src/pause"),
    Call(method="PUT", path="/connectors/src/resume"),
    Call(method="PUT", path="/connectors/src/stop"),
    Call(method="DELETE", path="/connectors/src"),
    Call(method="GET", path="/connectors?expand=info&expand=status", answer=dict),
    Call(method="GET", path="/connectors/src/status", answer=dict),
    Call(method="GET", path="/connectors/src/topics", answer=dict),
    Call(method="GET", path="/connectors/src/config", answer=dict),
    Call(method="PUT", path="/connectors/src/config", body=CONFIG, answer=dict),
    Call(method="POST", path="/connectors/src/tasks/0/restart"),
    Call(method="GET", path="/connectors/src/tasks", answer=list),
    Call(method="PUT", path=LOGGER, body=LEVEL, answer=list),
    Call(method="PUT", path=f"{LOGGER}?scope=cluster", body=LEVEL),
    Call(method="GET", path=LOGGER, answer=dict),
    Call(method="GET", path="/admin/loggers", answer=dict),
)
KAFBAT = (
    Call(method="GET", path="/", answer=dict),
    Call(method="GET", path="/connectors?expand=status&expand=info", answer=dict),
    Call(method="GET", path="/connectors?search=src&expand=info", answer=dict),
    Call(method="POST", path="/connectors", body={"name": "new", "config": NEW}, answer=dict),
    Call(method="GET", path="/connectors/src", answer=dict),
    Call(method="DELETE", path="/connectors/src"),
    Call(method="GET", path="/connectors/src/config", answer=dict),
    Call(method="PUT", path="/connectors/src/config", body=CONFIG, answer=dict),
    Call(method="GET", path="/connectors/src/status", answer=dict),
    Call(method="POST", path="/connectors/src/restart?includeTasks=true&onlyFailed=true"),
    Call(method="PUT", path="/connectors/src/pause"),
    Call(method="PUT", path="/connectors/src/resume"),
    Call(method="PUT", path="/connectors/src/stop"),
    Call(method="GET", path="/connectors/src/tasks", answer=list),
    Call(method="GET", path="/connectors/src/topics", answer=dict),
    Call(method="GET", path="/connectors/src/tasks/0/status", answer=dict),
    Call(method="POST", path="/connectors/src/tasks/0/restart"),
    Call(method="GET", path="/connector-plugins", answer=list),
    Call(
        method="PUT",
        path="/connector-plugins/MirrorSourceConnector/config/validate",
        body=CONFIG,
        answer=dict,
    ),
)
STRIMZI = (
    Call(method="PUT", path="/connectors/src/config", ok=(200, 201), body=CONFIG, answer=dict),
    Call(method="PUT", path="/connectors/new/config", ok=(200, 201), body=NEW, answer=dict),
    Call(
        method="POST",
        path="/connectors",
        ok=(201,),
        body={"name": "new", "config": NEW, "initial_state": "STOPPED"},
        answer=dict,
    ),
    Call(method="GET", path="/connectors/src", ok=(200, 201), answer=dict),
    Call(method="GET", path="/connectors/src/config", ok=(200, 201), answer=dict),
    Call(method="DELETE", path="/connectors/src", ok=(204,)),
    Call(method="GET", path="/connectors/src/status", ok=(200,), answer=dict),
    Call(method="PUT", path="/connectors/src/pause", ok=(202,)),
    Call(method="PUT", path="/connectors/src/resume", ok=(202,)),
    Call(method="PUT", path="/connectors/src/stop", ok=(204,)),
    Call(method="GET", path="/connectors", ok=(200,), answer=list),
    Call(method="GET", path="/connector-plugins", ok=(200,), answer=list),
    Call(
        method="POST",
        path="/connectors/src/restart?includeTasks=true&onlyFailed=false",
        ok=(202,),
        answer=dict,
    ),
    Call(
        method="POST",
        path="/connectors/src/restart?includeTasks=false&onlyFailed=false",
        ok=(204,),
    ),
    Call(method="POST", path="/connectors/src/tasks/0/restart", ok=(204,)),
    Call(method="GET", path="/connectors/src/topics", ok=(200,), answer=dict),
    Call(method="GET", path="/admin/loggers", ok=(200,), answer=dict),
    Call(method="PUT", path="/admin/loggers/root", ok=(200, 204), body=LEVEL, answer=list),
)


@pytest.fixture(autouse=True)
def levels() -> Iterator[None]:
    """As they were: tests share their loggers."""
    names = ("heliograph", *(n for n in logging.root.manager.loggerDict if "heliograph." in n))
    before = {name: logging.getLogger(name).level for name in names}
    root = logging.root.level
    yield
    logging.root.setLevel(root)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(autouse=True)
def no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no cluster whose ledger could keep it."""

    async def kept_nowhere(*_: object) -> bool:
        return True

    monkeypatch.setattr("heliograph.api.trail.noted", kept_nowhere)


@pytest.mark.parametrize(
    ("client", "call"),
    [
        *(("kcctl", call) for call in KCCTL),
        *(("Kafbat UI", call) for call in KAFBAT),
        *(("Strimzi", call) for call in STRIMZI),
    ],
    ids=str,
)
def test_a_request_is_answered_as_its_client_reads_it(client: str, call: Call) -> None:
    calling = client_of(app_of(PretendHerder(kept("src"))))

    response = calling.request(
        call.method,
        call.path,
        json=call.body,
        headers={"Accept": "application/json"},
        follow_redirects=False,
    )

    assert response.status_code in call.ok, f"{client}: {response.status_code} {response.text}"
    if call.answer is not None:
        assert response.headers["content-type"].partition(";")[0] == "application/json"
        assert isinstance(response.json(), call.answer), response.text
    if response.status_code == 204:
        assert response.content == b""


def test_strimzi_finds_a_deleted_connector_gone_at_once() -> None:
    """Its client asks for the status until it is 404, ten times at most."""
    client = client_of(app_of(PretendHerder(kept("src"))))

    deleted = client.delete("/connectors/src")
    status = client.get("/connectors/src/status")

    assert (deleted.status_code, status.status_code) == (204, 404)
    assert status.json()["error_code"] == 404


def test_kcctl_is_told_the_reason_of_an_error_in_the_words_it_prints() -> None:
    client = client_of(app_of(PretendHerder(kept("src"))))

    for response in (
        client.get("/connectors/nobody"),
        client.post("/connectors/", json={"name": "src", "config": CONFIG}),
        client.put("/connectors/nobody/pause"),
    ):
        body = response.json()
        assert body.keys() == {"error_code", "message"}
        assert body["error_code"] == response.status_code


def test_a_change_over_rest_is_kept_with_who_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_changes: list[tuple[str, Change]] = []

    async def keep(config: object, flow: object, change: Change) -> bool:
        kept_changes.append((str(flow), change))
        return True

    monkeypatch.setattr("heliograph.api.trail.noted", keep)
    client = client_of(app_of(PretendHerder(kept("src"))))

    client.put("/connectors/src/pause")
    client.delete("/connectors/src")
    client.get("/connectors")

    assert [(flow, change.verb, change.outcome) for flow, change in kept_changes] == [
        ("A->B", "pause", "done"),
        ("A->B", "delete", "done"),
    ]
    assert all(change.who and "src" in change.what for _, change in kept_changes)
