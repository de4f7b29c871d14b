"""Connect's REST over connectors that a test has, and what its answers say."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient
from starlette.applications import Starlette

from heliograph.api.access import Tokens
from heliograph.api.connect import ConnectState
from heliograph.api.connect_worker import make_connect_app
from heliograph.api.dialects import answer_in
from heliograph.api.guard import guarded
from heliograph.config.api import Address
from heliograph.connect.model import Connector
from tests.unit.api.pretend_herder import PretendHerder

HERE = Address("127.0.0.1", 8083)
URL = f"http://{HERE}"
MIRROR = "org.apache.kafka.connect.mirror."


def config_of(plugin: str = "MirrorSourceConnector", **more: Any) -> dict[str, Any]:
    return {
        "connector.class": MIRROR + plugin,
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": "127.0.0.1:1",
        "target.cluster.bootstrap.servers": "127.0.0.1:2",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def kept(name: str, plugin: str = "MirrorSourceConnector", **more: Any) -> Connector:
    config = {key: str(value) for key, value in config_of(plugin, **more).items()}
    return Connector(name=name, config={**config, "name": name})


def app_of(herder: Any, tokens: Tokens | None = None) -> Starlette:
    return make_connect_app(ConnectState(herder=herder, tokens=tokens), has_health=True)


def client_of(app: Any, *, has_tokens: bool = False) -> TestClient:
    return TestClient(
        guarded(app, HERE, has_tokens=has_tokens, answers=answer_in),
        base_url=URL,
        raise_server_exceptions=False,
    )


def two_connectors() -> PretendHerder:
    return PretendHerder(kept("src"), kept("cp", "MirrorCheckpointConnector"))


def message(response: Any, status: int) -> str:
    body = response.json()
    assert response.status_code == status, response.text
    assert set(body) == {"error_code", "message"}
    assert body["error_code"] == status
    text: str = body["message"]
    return text
