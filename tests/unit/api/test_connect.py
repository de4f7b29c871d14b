"""Kafka Connect's dialect: status codes, bodies and texts that its tools compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.routing import Route

from heliograph.api.ureplicator import Controller, make_ureplicator_app
from heliograph.driver.live import LiveMirror
from heliograph.ledger.fence import Fence
from heliograph.ledger.leadership import Fenced, Leaderships, Leading, Standby
from heliograph.model import Awaited, Waiting
from tests.unit.api.connecting import MIRROR, app_of, client_of, kept, message, two_connectors
from tests.unit.api.pretend import AB, BA, LANES, at, live
from tests.unit.api.pretend_herder import PretendHerder

STATES = {"RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING"}
PAGE = Path(__file__).parents[3] / "docs/reference/connect.md"
WAITING = Waiting(awaited=Awaited.SOURCE, since_ms=1)


@pytest.fixture
def herder() -> PretendHerder:
    return two_connectors()


@pytest.fixture
def client(herder: PretendHerder) -> TestClient:
    return client_of(app_of(herder))


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
        (live((at(0, WAITING),)), "RUNNING", ["RUNNING"]),
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
