"""Kafka Connect's dialect: connectors are put, checked and described by their configurations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from heliograph.api.guard import BODY_BYTES_MAX
from heliograph.connect.model import TargetState
from heliograph.connect.plugins import Plugin, definitions_of
from tests.unit.api.connecting import (
    MIRROR,
    app_of,
    client_of,
    config_of,
    kept,
    message,
    two_connectors,
)
from tests.unit.api.pretend_herder import PretendHerder

SECRET = "hunter2"


@pytest.fixture
def herder() -> PretendHerder:
    return two_connectors()


@pytest.fixture
def client(herder: PretendHerder) -> TestClient:
    return client_of(app_of(herder))


def test_post_creates_and_says_where(herder: PretendHerder, client: TestClient) -> None:
    asked = {
        "name": "C->B.MirrorSourceConnector",
        "config": config_of(source_cluster_alias="C", tasks_max=4, enabled=True),
        "initial_state": "STOPPED",
    }
    response = client.post("/connectors", json=asked)

    assert response.status_code == 201
    assert response.headers["location"] == "/connectors/C-%3EB.MirrorSourceConnector"
    body = response.json()
    assert body["config"]["tasks.max"] == "4"
    assert body["config"]["enabled"] == "true"
    assert body["config"]["name"] == asked["name"]
    assert body["tasks"] == []
    assert herder.kept[str(asked["name"])].target_state is TargetState.STOPPED
    assert client.get(response.headers["location"]).json()["name"] == asked["name"]


def test_put_creates_with_201_and_changes_with_200(
    herder: PretendHerder, client: TestClient
) -> None:
    hb = config_of("MirrorHeartbeatConnector")
    created = client.put("/connectors/hb/config", json=hb)
    changed = client.put("/connectors/hb/config", json={**hb, "tasks.max": 1})
    same = client.put("/connectors/hb/config", json={**hb, "tasks.max": "1"})

    assert [each.status_code for each in (created, changed, same)] == [201, 200, 200]
    assert created.headers["location"] == "/connectors/hb"
    assert same.json()["config"]["tasks.max"] == "1"
    assert herder.puts == 2


def test_patch_changes_some_keys_and_null_removes_one(client: TestClient) -> None:
    first = client.patch("/connectors/src/config", json={"tasks.max": 3, "topics": "a"})
    second = client.patch("/connectors/src/config", json={"topics": None})

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["config"]["topics"] == "a"
    assert "topics" not in second.json()["config"]
    assert second.json()["config"]["tasks.max"] == "3"


def test_delete_is_204_and_gone(client: TestClient) -> None:
    response = client.delete("/connectors/src")

    assert (response.status_code, response.content) == (204, b"")
    assert message(client.get("/connectors/src"), 404) == "Connector src not found"


def test_a_secret_is_never_shown_and_survives_a_form_that_sends_its_mask_back(
    herder: PretendHerder, client: TestClient
) -> None:
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="u" password="{SECRET}";'
    )
    key = "source.cluster.sasl.jaas.config"
    herder.kept["src"] = kept(
        "src",
        source_cluster_security_protocol="SASL_PLAINTEXT",
        source_cluster_sasl_mechanism="PLAIN",
    )
    herder.kept["src"] = replace(
        herder.kept["src"], config={**herder.kept["src"].config, key: jaas}
    )
    texts = [
        client.get(path).text
        for path in (
            "/connectors?expand=info&expand=status",
            "/connectors/src",
            "/connectors/src/config",
            "/connectors/src/tasks",
            "/connectors/src/tasks-config",
        )
    ]
    shown = client.get("/connectors/src/config").json()
    back = client.put("/connectors/src/config", json={**shown, "tasks.max": 9})
    validated = client.put(
        "/connector-plugins/MirrorSource/config/validate", json={**shown, key: jaas}
    )

    assert SECRET not in "".join([*texts, back.text, validated.text])
    assert shown[key] == "********"
    assert (back.status_code, validated.json()["error_count"]) == (200, 0)
    stored = herder.kept["src"].config
    assert (stored[key], stored["tasks.max"]) == (jaas, "9")


def test_a_reference_to_a_provider_is_no_secret(herder: PretendHerder, client: TestClient) -> None:
    key, reference = "source.cluster.ssl.keystore.password", "${file:/etc/secrets:word}"
    config = herder.kept["src"].config
    herder.kept["src"] = replace(
        herder.kept["src"], config={**config, key: reference, "a.password": f"x{reference}"}
    )

    shown = client.get("/connectors/src/config").json()

    assert (shown[key], shown["a.password"]) == (reference, "********")


def test_a_name_that_is_taken_is_409(client: TestClient) -> None:
    response = client.post("/connectors", json={"name": "src", "config": config_of()})

    assert message(response, 409) == "Connector src already exists"


def test_a_configuration_with_mistakes_lists_them_all(client: TestClient) -> None:
    config = config_of(source_cluster_alias="X", tasks_max="many", topics="(")

    text = message(client.put("/connectors/new/config", json=config), 400)

    lines = text.split("\n")
    assert lines[0] == ("Connector configuration is invalid and contains the following 2 error(s):")
    assert lines[1].startswith("tasks.max: is `many`")
    assert lines[-1] == (
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('{"name": "x", "config": {"a": "b"}}', "Connector config {a=b, name=x} contains no con"),
        ('{"name": "x", "config": {"connector.class": "a.B"}}', "Failed to find any class that i"),
        ('{"name": "x", "config": {"name": "y"}}', "Connector name configuration (y) doesn't ma"),
        ('{"name": "x", "config": {"a": [1]}}', "the value of 'a' is a list or an object"),
        ('{"name": "x", "config": {"a": null}}', "Connector configuration is invalid and contai"),
        ('{"name": 7}', "Connector config {name=7} contains no connector type"),
        ('{"name": {}}', "the name of a connector is text"),
        ("[]", "the body is not a JSON object"),
        ("{", "the body is not JSON"),
        ('{"a": NaN}', "the body is not JSON: NaN is no number of JSON"),
        ("[" * 20_000, "the body is not JSON"),
        ('{"name": "\\ud800"}', "the body is not JSON: it is not UTF-8"),
        ('{"name": "x", "initial_state": "ASLEEP"}', "initial_state is none of RUNNING, PAUSED"),
    ],
)
def test_bad_bodies_are_400_and_change_nothing(
    herder: PretendHerder, client: TestClient, body: str, sentence: str
) -> None:
    before = dict(herder.kept)

    response = client.post(
        "/connectors", content=body, headers={"Content-Type": "application/json"}
    )

    assert message(response, 400).startswith(sentence), response.text
    assert herder.kept == before


def test_what_the_guard_refuses_is_told_in_connects_words(client: TestClient) -> None:
    large = client.put("/connectors/src/config", content=b"x" * (BODY_BYTES_MAX + 1))
    text = client.post("/connectors", content="a=b", headers={"Content-Type": "text/plain"})
    foreign = client.get("/connectors", headers={"Origin": "http://elsewhere"})

    assert message(large, 413)
    assert message(text, 415)
    assert message(foreign, 403)
    assert message(client.request("DELETE", "/connectors"), 405) == "HTTP 405 Method Not Allowed"


# -- plugins


def test_the_plugins_are_mirrormakers_three(client: TestClient) -> None:
    found = client.get("/connector-plugins?connectorsOnly=false").json()

    assert [each["class"] for each in found] == [plugin.class_path for plugin in Plugin]
    assert {(each["type"], each["version"]) for each in found} == {("source", "4.3.1")}


@pytest.mark.parametrize("plugin", list(Plugin))
def test_a_plugin_tells_its_keys_as_kafbats_contract_has_them(
    client: TestClient, plugin: Plugin
) -> None:
    found = client.get(f"/connector-plugins/{plugin.removesuffix('Connector')}/config").json()

    assert len(found) == len(definitions_of(plugin))
    types = {"BOOLEAN", "CLASS", "DOUBLE", "INT", "LIST", "LONG", "PASSWORD", "SHORT", "STRING"}
    for each in found:
        assert each["type"] in types
        assert each["importance"] in {"LOW", "MEDIUM", "HIGH"}
        assert each["width"] in {"SHORT", "MEDIUM", "LONG", "NONE"}
        assert each["documentation"]
        assert isinstance(each["order"], int)
    names = {each["name"] for each in found}
    assert ("groups" in names) == (plugin is Plugin.CHECKPOINT)
    assert ("emit.heartbeats.interval.seconds" in names) == (plugin is Plugin.HEARTBEAT)
    assert ("sync.topic.acls.enabled" in names) == (plugin is Plugin.SOURCE)
    assert {"name", "connector.class", "tasks.max", "source.cluster.alias"} <= names


@pytest.mark.parametrize("path", ["MirrorSourceConnector", "MirrorSource", f"{MIRROR}MirrorSource"])
def test_validate_tells_mistakes_beside_their_keys(client: TestClient, path: str) -> None:
    config = {**config_of(source_cluster_alias="X", tasks_max="many"), "name": "new"}

    body = client.put(f"/connector-plugins/{path}/config/validate", json=config).json()

    assert (body["name"], body["error_count"]) == (MIRROR + "MirrorSourceConnector", 1)
    rows = {row["value"]["name"]: row["value"] for row in body["configs"]}
    assert rows["tasks.max"]["errors"] == ["tasks.max: is `many`, not a whole number"]
    assert rows["topics"] == {
        "name": "topics",
        "value": ".*",
        "recommended_values": [],
        "errors": [],
        "visible": True,
    }


def test_validate_refuses_another_class_than_it_was_asked_for(client: TestClient) -> None:
    path = "/connector-plugins/MirrorHeartbeat/config/validate"
    other = client.put(path, json=config_of())
    none = client.put(path, json={"a": "b"})

    assert message(other, 400) == (
        f"Included connector type {MIRROR}MirrorSourceConnector does not match request type "
        "MirrorHeartbeat"
    )
    assert message(none, 400) == "Connector config {a=b} contains no connector type"
