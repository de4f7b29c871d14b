"""Kafka Connect's dialect: status codes, bodies and texts that its tools compare."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Route

from heliograph.api.access import TRIES_MAX, Tokens
from heliograph.api.app import make_app
from heliograph.api.connect import ConnectState
from heliograph.api.connect_worker import make_connect_app
from heliograph.api.dialects import Dialects, answer_in
from heliograph.api.guard import BODY_BYTES_MAX, guarded
from heliograph.api.state import ApiState
from heliograph.api.ureplicator import Controller, make_ureplicator_app
from heliograph.clock import now_ms
from heliograph.config.api import Address
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.of_file import FileConnectors
from heliograph.connect.plugins import Plugin, definitions_of
from heliograph.decisions.orders import standing_of
from heliograph.driver.run import LiveMirror
from heliograph.ledger.fence import Fence
from heliograph.ledger.leadership import Fenced, Leaderships, Leading, Standby
from tests.unit.api.pretend import AB, BA, LANES, PretendLedgers, live
from tests.unit.api.pretend_herder import PretendHerder

HERE = Address("127.0.0.1", 8083)
URL = f"http://{HERE}"
SECRET = "hunter2"
LOOK, OPERATE, ONE_FLOW = ("l" * 20, "o" * 20, "f" * 20)
STATES = {"RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING"}
PAGE = Path(__file__).parents[3] / "docs/reference/connect.md"
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


@pytest.fixture
def herder() -> PretendHerder:
    return PretendHerder(kept("src"), kept("cp", "MirrorCheckpointConnector"))


@pytest.fixture
def client(herder: PretendHerder) -> TestClient:
    return client_of(app_of(herder))


def message(response: Any, status: int) -> str:
    body = response.json()
    assert response.status_code == status, response.text
    assert set(body) == {"error_code", "message"}
    assert body["error_code"] == status
    text: str = body["message"]
    return text


# -- what there is


def test_the_root_says_which_connect_it_is(client: TestClient) -> None:
    body = client.get("/").json()

    assert body["version"] == "4.3.1"
    assert body["kafka_cluster_id"] == "c" * 22
    assert client.get("/health").json() == {
        "status": "healthy",
        "message": "Worker has completed startup and is ready to handle requests.",
    }


def test_a_worker_that_starts_says_so(herder: PretendHerder, client: TestClient) -> None:
    herder.facts = replace(herder.facts, kafka_cluster_id=None)

    response = client.get("/health")

    assert response.status_code == 503
    assert response.json() == {"status": "starting", "message": "Worker is still starting up."}


def test_connectors_are_names_or_expanded_as_uis_ask(client: TestClient) -> None:
    assert client.get("/connectors").json() == ["src", "cp"]
    found = client.get("/connectors?expand=status&expand=info&expand=nonsense").json()

    assert set(found["src"]) == {"status", "info"}
    assert found["src"]["info"]["type"] == "source"
    assert found["src"]["info"]["tasks"] == [{"connector": "src", "task": 0}]
    assert found["cp"]["status"]["tasks"][0]["state"] == "RUNNING"


def test_a_stalled_lane_is_a_failed_task_with_its_reason(client: TestClient) -> None:
    body = client.get("/connectors/src/status").json()

    assert body["connector"]["state"] == "RUNNING"
    (task,) = body["tasks"]
    assert (task["id"], task["state"], task["worker_id"]) == (0, "FAILED", "127.0.0.1:8083")
    assert task["trace"] == "orders-2: corrupt batch: bad CRC"
    assert client.get("/connectors/src/tasks/0/status").json() == task


def test_tasks_name_the_partitions_they_carry(client: TestClient) -> None:
    (task,) = client.get("/connectors/src/tasks").json()

    assert task["id"] == {"connector": "src", "task": 0}
    assert task["config"]["task.class"] == MIRROR + "MirrorSourceTask"
    assert task["config"]["task.assigned.partitions"] == "orders-0,orders-1,orders-2,orders-3"
    assert set(client.get("/connectors/src/tasks-config").json()) == {"src-0"}


def test_topics_are_those_of_the_target_since_the_last_reset(client: TestClient) -> None:
    before = client.get("/connectors/src/topics").json()
    reset = client.put("/connectors/src/topics/reset")
    after = client.get("/connectors/src/topics").json()

    assert before == {"src": {"topics": ["A.orders"]}}
    assert (reset.status_code, reset.content) == (202, b"")
    assert after == {"src": {"topics": []}}


def test_topic_tracking_may_be_off(herder: PretendHerder, client: TestClient) -> None:
    herder.facts = replace(herder.facts, allows_topic_reset=False)
    reset = client.put("/connectors/src/topics/reset")
    herder.facts = replace(herder.facts, tracks_topics=False)
    topics = client.get("/connectors/src/topics")

    assert message(reset, 403) == "Topic tracking reset is disabled."
    assert message(topics, 403) == "Topic tracking is disabled."


def _led(value: Any) -> LiveMirror:
    leaderships = Leaderships([AB, BA])
    leaderships[AB] = value
    return live(leaderships=leaderships)


@pytest.mark.parametrize(
    ("mirror", "state", "tasks"),
    [
        (live(problems={AB: "cluster B: no answer"}), "FAILED", ["FAILED"]),
        (live(problems={AB: "acls: not allowed"}), "RUNNING", ["FAILED"]),
        (live(None), "RUNNING", ["UNASSIGNED"]),
        (live(()), "RUNNING", ["UNASSIGNED"]),
        (_led(Fenced(Fence(at_ms=1, why="failed over"))), "UNASSIGNED", ["UNASSIGNED"]),
        (_led(Standby()), "UNASSIGNED", ["UNASSIGNED"]),
        (_led(Leading()), "RUNNING", ["FAILED"]),
    ],
)
def test_every_state_is_one_that_clients_know(
    mirror: LiveMirror, state: str, tasks: list[str]
) -> None:
    client = client_of(app_of(PretendHerder(kept("src"), mirror=mirror)))

    body = client.get("/connectors/src/status").json()

    assert body["connector"]["state"] == state
    assert [task["state"] for task in body["tasks"]] == tasks
    assert {body["connector"]["state"], *tasks} <= STATES


def test_a_connector_that_cannot_run_is_failed_with_the_reason(herder: PretendHerder) -> None:
    herder.why = {"src": "topics: is `(`, not a regex"}

    body = client_of(app_of(herder)).get("/connectors/src/status").json()

    assert (body["connector"]["state"], body["tasks"]) == ("FAILED", [])
    assert body["connector"]["trace"] == "topics: is `(`, not a regex"


# -- configurations


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


# -- verbs


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/connectors/src/pause", 202),
        ("PUT", "/connectors/src/resume", 202),
        ("PUT", "/connectors/src/stop", 204),
        ("POST", "/connectors/src/restart", 204),
        ("POST", "/connectors/src/tasks/0/restart", 204),
    ],
)
def test_verbs_answer_with_the_codes_that_strimzi_compares(
    client: TestClient, method: str, path: str, status: int
) -> None:
    response = client.request(method, path)

    assert (response.status_code, response.content) == (status, b"")


def test_verbs_are_followed_by_the_state(client: TestClient) -> None:
    client.put("/connectors/src/pause")
    paused = client.get("/connectors/src/status").json()
    client.put("/connectors/src/stop")
    stopped = client.get("/connectors/src/status").json()
    client.put("/connectors/src/resume")
    running = client.get("/connectors/src/status").json()

    assert paused["connector"]["state"] == "PAUSED"
    assert {task["state"] for task in paused["tasks"]} == {"PAUSED"}
    assert (stopped["connector"]["state"], stopped["tasks"]) == ("STOPPED", [])
    assert running["connector"]["state"] == "RUNNING"


def test_a_restart_with_flags_answers_the_state_and_takes_only_what_failed(
    herder: PretendHerder, client: TestClient
) -> None:
    response = client.post("/connectors/src/restart?includeTasks=true&onlyFailed=true")

    assert response.status_code == 202
    assert response.json()["name"] == "src"
    assert herder.restarted == [[at.lane for at in LANES[:4]]]


def test_offsets_are_altered_only_while_stopped(client: TestClient) -> None:
    offsets = {
        "offsets": [
            {
                "partition": {"cluster": "A", "topic": "orders", "partition": 0},
                "offset": {"offset": 41},
            }
        ]
    }
    running = client.patch("/connectors/src/offsets", json=offsets)
    reset = client.delete("/connectors/src/offsets")
    empty = client.patch("/connectors/src/offsets", json={"offsets": []})

    expected = (
        "Connectors must be in the STOPPED state before their offsets can be modified. This can "
        "be done for the specified connector by issuing a 'PUT' request to the "
        "'/connectors/src/stop' endpoint"
    )
    assert message(running, 400) == expected
    assert message(reset, 400) == expected
    assert (
        message(empty, 400)
        == "Partitions / offsets need to be provided for an alter offsets request"
    )


@pytest.mark.parametrize(
    ("partition", "offset", "sentence"),
    [
        (
            {"topic": "t", "partition": 0},
            {"offset": 1},
            "Source partition {topic=t, partition=0} is missing the 'cluster' key, which is "
            "required",
        ),
        (
            {"cluster": "A", "topic": "t", "partition": -1},
            {"offset": 1},
            "Source partition {cluster=A, topic=t, partition=-1} has an invalid value -1 for the "
            "'partition' key, which cannot be negative",
        ),
        (
            {"cluster": "A", "topic": "t", "partition": "0"},
            {"offset": 1},
            "Source partition {cluster=A, topic=t, partition=0} has an invalid value 0 for the "
            "'partition' key, which must be an integer",
        ),
        (
            {"cluster": "A", "topic": "t", "partition": 0},
            {"offset": "x"},
            "Source offset {offset=x} for source partition {cluster=A, topic=t, partition=0} has "
            "an invalid value x for the 'offset' key, which must be an integer",
        ),
        (
            {"cluster": "A", "topic": "t", "partition": 0},
            {},
            "Source offset {} for source partition {cluster=A, topic=t, partition=0} is missing "
            "the 'offset' key, which is required",
        ),
    ],
)
def test_offsets_that_are_none_get_mirrormakers_own_sentence(
    client: TestClient, partition: Any, offset: Any, sentence: str
) -> None:
    client.put("/connectors/src/stop")

    asked = {"offsets": [{"partition": partition, "offset": offset}]}

    assert message(client.patch("/connectors/src/offsets", json=asked), 400) == sentence


# -- errors


@pytest.mark.parametrize(
    ("method", "path", "sentence"),
    [
        ("GET", "/connectors/no", "Connector no not found"),
        ("GET", "/connectors/no/config", "Connector no not found"),
        ("DELETE", "/connectors/no", "Connector no not found"),
        ("GET", "/connectors/no/offsets", "Connector no not found"),
        ("GET", "/connectors/no/status", "No status found for connector no"),
        ("GET", "/connectors/src/tasks/7/status", "No status found for task src-7"),
        ("PUT", "/connectors/no/pause", "Unknown connector no"),
        ("PUT", "/connectors/no/stop", "Unknown connector no"),
        ("POST", "/connectors/no/restart", "Unknown connector: no"),
        ("POST", "/connectors/src/tasks/7/restart", "Unknown task: src-7"),
        ("GET", "/connector-plugins/Nothing/config", "Unknown plugin Nothing."),
        ("GET", "/admin/loggers/nobody", "Logger nobody not found."),
        ("GET", "/nothing", "HTTP 404 Not Found"),
    ],
)
def test_what_is_not_there_has_connects_sentence(
    client: TestClient, method: str, path: str, sentence: str
) -> None:
    assert message(client.request(method, path), 404) == sentence


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


# -- plugins and loggers


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


def test_loggers_are_read_and_set(client: TestClient) -> None:
    path = "/admin/loggers/heliograph.connect.trial"
    try:
        affected = client.put(path, json={"level": "debug"})
        found = client.get(path).json()
        cluster = client.put(f"{path}?scope=cluster", json={"level": "INFO"})
    finally:
        client.put(path, json={"level": "INFO"})

    assert affected.status_code == 200
    assert found["level"] == "DEBUG"
    assert isinstance(found["last_modified"], int)
    assert (cluster.status_code, cluster.content) == (204, b"")
    assert client.get("/admin/loggers").json()["root"]["last_modified"] is None
    foreign = client.put("/admin/loggers/aiokafka", json={"level": "DEBUG"})
    assert message(foreign, 404) == "Logger aiokafka not found."
    wrong = client.put(path, json={"level": "LOUD"})
    assert message(wrong, 404) == "invalid log level 'LOUD'."
    assert (
        message(client.put(path, json={}), 400)
        == "Desired 'level' parameter was not specified in request."
    )


def test_the_page_has_every_route_of_both_dialects(herder: PretendHerder) -> None:
    page = PAGE.read_text()
    mirror = Controller(live=live())
    routes = [*app_of(herder).routes, *make_ureplicator_app(mirror).routes]
    short = {"{name}": "{n}", "{task:int}": "{i}", "{plugin}": "{p}", "{logger}": "{l}"}
    short |= {"{topic}": "{t}", "{instance}": "{i}"}

    missing: list[str] = []
    for route in routes:
        assert isinstance(route, Route)
        path = route.path
        for long, letter in short.items():
            path = path.replace(long, letter)
        last = path.rpartition("/")[2]
        rows = [line for line in page.splitlines() if path in line or f"`/{last}`" in line]
        missing += [
            f"{method} {path}"
            for method in (route.methods or set()) - {"HEAD"}
            if not any(method in row for row in rows)
        ]

    assert missing == []


# -- who may


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    path = tmp_path / "tokens"
    path.write_text(f"ann look {LOOK}\nbob operate {OPERATE}\ncid operate:A->B {ONE_FLOW}\n")
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


def test_a_restart_leaves_a_lane_alone_that_a_decision_pauses() -> None:
    tried: list[Any] = []
    client = of_file(live(resume=lambda lanes: tried.extend(lanes)))

    assert client.post(f"{SOURCE}/restart").status_code == 204
    partitions = [lane.source.partition for lane in tried]
    client.put(f"{SOURCE}/pause")
    client.post(f"{SOURCE}/restart")

    assert partitions == [1, 2, 3]
    assert len(tried) == len(partitions)
