"""Every route: who may ask, and what is refused in one body."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from heliograph.api.access import TRIES_MAX, TRIES_S, FailedTries, Tokens
from heliograph.api.app import make_app
from heliograph.api.guard import BODY_BYTES_MAX
from heliograph.api.operations import Operations
from heliograph.api.state import ApiState
from heliograph.driver.changes import ConfigStatus
from heliograph.ledger.fence import Fence
from heliograph.ledger.leadership import Fenced, Leaderships, Leading
from tests.unit.api.pretend import AB, BA, live
from tests.unit.api.serving import (
    DECIDING,
    LOOK,
    ONE_FLOW,
    OPEN,
    OPERATE,
    RECOVER,
    RECOVERING,
    TOGETHER,
    app_of,
    bearer,
    client_of,
    error_of,
    filled,
    paths,
)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    path = tmp_path_factory.mktemp("access") / "tokens"
    path.write_text(
        f"ann look {LOOK}\nbob operate {OPERATE}\ncid recover {RECOVER}\n"
        f"dan look,recover:A->B {ONE_FLOW}\n".replace("look,recover", "look:A->B,recover")
    )
    path.chmod(0o600)
    return Tokens(path)


@pytest.fixture(scope="module")
def shut(tokens: Tokens) -> TestClient:
    """Needs a token, and takes any number of wrong ones: a minute passes between two of them."""
    minutes = itertools.count(0, TRIES_S)
    state = ApiState(live=live(), tokens=tokens, tries=FailedTries(lambda: next(minutes)))
    return client_of(make_app(state), has_tokens=True)


@pytest.fixture(scope="module")
def open_state() -> ApiState:
    return ApiState(live=live())


@pytest.fixture(scope="module")
def client(open_state: ApiState) -> TestClient:
    return client_of(make_app(open_state))


def test_ready_says_why_not(tokens: Tokens) -> None:
    troubled = live(problems={AB: "cluster B: no answer in time"})
    fenced = Leaderships([AB, BA])
    fenced[AB], fenced[BA] = Fenced(Fence(at_ms=1, why="failed over")), Leading()

    starting = client_of(app_of(live(None))).get("/ready")
    trouble = client_of(app_of(troubled)).get("/ready")
    on_purpose = client_of(app_of(live(problems={AB: "failed over"}, leaderships=fenced))).get(
        "/ready"
    )
    hidden = client_of(app_of(troubled, tokens), has_tokens=True).get("/ready")

    assert (starting.status_code, starting.json()["reasons"]) == (
        503,
        ["the mirror is starting: Spark is up"],
    )
    assert (trouble.status_code, trouble.json()["reasons"]) == (
        503,
        ["A->B: cluster B: no answer in time"],
    )
    assert on_purpose.json() == {"ready": True, "reasons": []}
    assert hidden.json() == {"ready": False, "reasons": []}


# -- who may


@pytest.mark.parametrize(("method", "path"), [pair for pair in paths() if pair[1] not in OPEN])
def test_every_other_route_needs_a_token(method: str, path: str, shut: TestClient) -> None:
    missing = shut.request(method, filled(path))
    wrong = shut.request(method, filled(path), headers=bearer("x" * 20))

    assert error_of(missing).code == error_of(wrong).code == "not_authenticated"
    assert missing.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", RECOVERING)
@pytest.mark.parametrize(("token", "role"), [(LOOK, "look"), (OPERATE, "operate")])
def test_a_verb_needs_its_role(path: str, token: str, role: str, shut: TestClient) -> None:
    response = shut.post(filled(path), headers=bearer(token))

    assert error_of(response).code == "not_allowed"
    assert response.json()["details"] == {"role": "recover", "flow": "A->B"}


@pytest.mark.parametrize("path", [*DECIDING, "/v1/decisions"])
def test_to_decide_needs_the_role_operate_for_the_flow(path: str, shut: TestClient) -> None:
    body = {"flow": "A->B", "verb": "pause"} if path == "/v1/decisions" else {}
    role = "recover" if path.endswith(":rewind") else "operate"

    response = shut.post(filled(path), headers=bearer(LOOK), json=body)

    assert error_of(response).code == "not_allowed"
    assert response.json()["details"] == {"role": role, "flow": "A->B"}


def test_to_rewind_needs_the_role_recover(shut: TestClient) -> None:
    body = {"flow": "A->B", "verb": "rewind", "topics": ["orders"], "offset": "earliest"}

    response = shut.post("/v1/decisions", headers=bearer(OPERATE), json=body)

    assert error_of(response).code == "not_allowed"
    assert response.json()["details"] == {"role": "recover", "flow": "A->B"}


def test_several_decisions_need_the_role_of_each(shut: TestClient) -> None:
    rewind = {"verb": "rewind", "topics": ["orders"], "offset": "earliest"}
    body = {"decisions": [{"verb": "pause"}, rewind]}

    responses = [
        shut.post(filled(TOGETHER), headers=bearer(each), json=body) for each in (LOOK, OPERATE)
    ]

    assert [error_of(each).code for each in responses] == ["not_allowed", "not_allowed"]
    assert [each.json()["details"]["role"] for each in responses] == ["operate", "recover"]


@pytest.mark.parametrize(
    "body", [{}, {"decisions": []}, {"decisions": [{}]}, {"decisions": [{"verb": "pause"}] * 13}]
)
def test_several_decisions_that_cannot_be_are_refused(
    body: dict[str, Any], client: TestClient
) -> None:
    assert error_of(client.post(filled(TOGETHER), json=body)).status == 400


def test_to_withdraw_needs_the_role_operate(shut: TestClient) -> None:
    response = shut.delete("/v1/decisions/0123456789", headers=bearer(LOOK))

    assert error_of(response).code == "not_allowed"


def test_a_token_for_one_flow_sees_and_does_nothing_to_another(shut: TestClient) -> None:
    headers = bearer(ONE_FLOW)

    listed = shut.get("/v1/flows", headers=headers).json()["flows"]
    lanes = shut.get("/v1/lanes", headers=headers).json()
    other = shut.get("/v1/flows/B->A", headers=headers)
    verb = shut.post("/v1/flows/B->A:failover", headers=headers)

    assert [each["flow"] for each in listed] == ["A->B"]
    assert {row["flow"] for row in lanes["lanes"]} == {"A->B"}
    assert other.status_code == verb.status_code == 403


def test_wrong_tokens_are_bounded_in_rate(tokens: Tokens) -> None:
    client = client_of(app_of(tokens=tokens), has_tokens=True)

    for _ in range(TRIES_MAX):
        assert client.get("/v1/flows", headers=bearer("x" * 20)).status_code == 401
    response = client.get("/v1/flows", headers=bearer(LOOK))

    assert error_of(response).code == "too_many_failures"
    assert 0 < int(response.headers["retry-after"]) <= 60


# -- what bad input gets


@pytest.mark.parametrize(("method", "path"), paths())
def test_an_unknown_parameter_or_method_is_refused(
    method: str, path: str, client: TestClient
) -> None:
    if path not in OPEN:
        assert error_of(client.request(method, filled(path) + "?flw=1")).code == "bad_request"
    assert error_of(client.request("TRACE", filled(path))).code == "method_not_allowed"
    assert error_of(client.request(method, filled(path) + "/no")).status in (404, 405)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "body.flow"),
        ({"flow": "A->B"}, "body.verb"),
        ({"flow": "A->B", "verb": "reset"}, "body.verb"),
        ({"flow": "A->B", "verb": "rewind", "topics": ["orders"]}, "says where to"),
        ({"flow": "A->B", "verb": "rewind", "offset": 4}, "topics by their names"),
        ({"flow": "A->B", "verb": "rewind", "topics": ["a"], "offset": -1}, "body.offset"),
        ({"flow": "A->B", "verb": "rewind", "topics": ["a"], "offset": "latest"}, "body.offset"),
        ({"flow": "A->B", "verb": "pause", "offset": 4}, "has no offset"),
        ({"flow": "A->B", "verb": "pause", "topics": ["ord(ers"]}, "neither a name nor a regex"),
        ({"flow": "A->B", "verb": "pause", "partitions": [1]}, "name the topic"),
        ({"flow": "A->B", "verb": "pause", "partitions": [-1]}, "greater than"),
        ({"flow": "A->B", "verb": "pause", "until_ms": 1}, "in the past"),
        ({"flow": "A->B", "verb": "pause", "until_ms": 1, "for_s": 1}, "two ways"),
        ({"flow": "A->B", "verb": "throttle", "bytes_per_s": 0}, "greater than"),
        ({"flow": "A->B", "verb": "pause", "bytes_per_s": 5}, "has no rate"),
        ({"flow": "A->B", "verb": "move", "topics": ["orders"]}, "one slot"),
        ({"flow": "A->B", "verb": "pause", "why": "x" * 513}, "at most 512"),
        ({"flow": "A->B", "verb": "pause", "why": "two\nlines"}, "cannot be printed"),
        ({"flow": "A->B", "verb": "pause", "topics": ["t"] * 257}, "at most 256"),
    ],
)
def test_a_decision_that_cannot_be_is_refused(
    body: dict[str, Any], sentence: str, client: TestClient
) -> None:
    response = client.post("/v1/decisions", json=body)

    assert error_of(response).status == 400
    assert sentence in response.json()["message"]


@pytest.mark.parametrize("path", [*RECOVERING, "/v1/flows/{flow}:pause"])
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[" * 50_000, {}, 400),
        (b'{"topic": ["a"]}', {}, 400),
        (b'{"topics": "orders"}', {}, 400),
        (b'{"topics": ["ord(ers"]}', {}, 400),
        (b"[]", {}, 400),
        (b"x" * (BODY_BYTES_MAX + 1), {}, 413),
        (b"a=b", {"content-type": "application/x-www-form-urlencoded"}, 415),
        (b"", {"if-match": "no tag"}, 400),
        (b"", {"if-match": '"old"'}, 412),
        (b"", {"origin": "http://evil.example"}, 403),
        (b"", {"host": "evil.example"}, 403),
    ],
)
def test_bad_requests_change_nothing_and_are_told_in_a_sentence(
    path: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
    client: TestClient,
    open_state: ApiState,
) -> None:
    response = client.post(
        filled(path), content=body, headers={"content-type": "application/json", **headers}
    )

    assert error_of(response).status == status
    assert open_state.operations.all == ()


def test_a_body_without_a_length_is_bounded(client: TestClient) -> None:
    response = client.post(
        "/v1/flows/A->B:failover",
        content=iter([b"x" * 40_000, b"x" * 40_000]),
        headers={"content-type": "application/json"},
    )

    assert error_of(response).code == "body_too_large"


def test_a_bug_is_told_without_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Operations, "all", property(lambda _: 1 / 0))

    response = client_of(app_of()).get("/v1/operations")

    assert error_of(response).code == "bug"
    assert "division" not in response.text


def test_metrics_are_for_those_who_may_look_and_of_their_flows_alone(shut: TestClient) -> None:
    nobody = shut.get("/metrics")
    everything = shut.get("/metrics", headers=bearer(LOOK))
    one = shut.get("/metrics", headers=bearer(ONE_FLOW))

    assert nobody.status_code == 401
    assert everything.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert 'source="B"' in everything.text
    assert 'source="A"' in one.text and 'source="B"' not in one.text


def test_a_configuration_that_is_not_followed_says_why_to_those_who_may_look_at_every_flow(
    tokens: Tokens,
) -> None:
    at = ConfigStatus(applied_ms=5, changes=("A->B: topics: a -> b",), problem="line 9: unknown")
    asked = client_of(app_of(replace(live(), changed=lambda: at), tokens), has_tokens=True)

    every = asked.get("/v1/config", headers=bearer(LOOK)).json()
    one = asked.get("/v1/config", headers=bearer(ONE_FLOW)).json()

    assert every == {
        "followed": False,
        "problem": "line 9: unknown",
        "applied_ms": 5,
        "changes": ["A->B: topics: a -> b"],
    }
    assert one == {"followed": False, "problem": None, "applied_ms": 5, "changes": []}
