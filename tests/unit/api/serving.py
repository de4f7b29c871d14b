"""The API over a mirror that a test has: clients, tokens, and the routes there are."""

from __future__ import annotations

from functools import cache

import httpx2 as httpx
from fastapi import FastAPI
from fastapi.testclient import TestClient

from heliograph.api import deciding
from heliograph.api.access import Tokens
from heliograph.api.app import make_app
from heliograph.api.guard import guarded
from heliograph.api.problems import ErrorBody
from heliograph.api.recovery import VERBS
from heliograph.api.state import ApiState
from heliograph.config.api import Address
from heliograph.driver.live import LiveMirror
from tests.unit.api.pretend import live

HERE = Address("127.0.0.1", 8080)
URL = f"http://{HERE}"
LOOK, OPERATE, RECOVER, ONE_FLOW = ("l" * 20, "o" * 20, "r" * 20, "f" * 20)
OPEN = {"/health", "/ready"}


def app_of(mirror: LiveMirror | None = None, tokens: Tokens | None = None) -> FastAPI:
    return make_app(ApiState(live=mirror or live(), tokens=tokens))


def client_of(app: FastAPI, *, has_tokens: bool = False) -> TestClient:
    return TestClient(
        guarded(app, HERE, has_tokens=has_tokens), base_url=URL, raise_server_exceptions=False
    )


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@cache
def paths() -> tuple[tuple[str, str], ...]:
    """Method and path of every route, with parameters that exist."""
    spec = app_of().openapi()
    return tuple(
        (method.upper(), path) for path, methods in spec["paths"].items() for method in methods
    )


def filled(path: str) -> str:
    values = {"flow": "A->B", "topic": "orders", "partition": "0", "operation": "none"}
    values |= dict.fromkeys(("decision", "alarm", "silence"), "9876543210")
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def error_of(response: httpx.Response) -> ErrorBody:
    body = ErrorBody.model_validate(response.json())
    assert body.status == response.status_code
    assert body.message
    assert "\n" not in body.message
    return body


RECOVERING = [f"/v1/flows/{{flow}}:{verb.name}" for verb in VERBS]
ASKING = ("/v1/groups", "/v1/verdict", "/v1/why")
"""These ask the clusters."""
DECIDING = [f"/v1/flows/{{flow}}:{verb}" for verb in deciding.VERBS]
TOGETHER = "/v1/flows/{flow}:together"
