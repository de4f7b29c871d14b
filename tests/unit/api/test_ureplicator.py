"""uReplicator's controller: its texts, its JSON, and what blacklisting does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from heliograph.api.access import Tokens
from heliograph.api.guard import guarded
from heliograph.api.ureplicator import Controller, make_ureplicator_app
from heliograph.config.api import Address
from heliograph.driver.run import LiveMirror
from tests.unit.api.pretend import LANES, live

HERE = Address("127.0.0.1", 9000)


def client_of(mirror: LiveMirror | None = None, tokens: Tokens | None = None) -> TestClient:
    controller = Controller(live=mirror or live(), tokens=tokens)
    return TestClient(
        guarded(make_ureplicator_app(controller), HERE, has_tokens=tokens is not None),
        base_url=f"http://{HERE}",
    )


def said(response: Any) -> tuple[int, str]:
    return response.status_code, response.text


def test_topics_are_told_as_text() -> None:
    assert said(client_of().get("/topics")) == (200, "Current serving topics: [back, orders]")
    assert said(client_of(live(())).get("/topics")) == (
        200,
        "No topic is added in MirrorMaker Controller!",
    )


def test_a_topic_is_told_with_its_workers() -> None:
    body = client_of().get("/topics/back").json()

    assert body == {
        "topic": "back",
        "externalView": {"0": {"slot-0": "ONLINE"}},
        "idealState": {"0": {"slot-0": "ONLINE"}},
        "serverToPartitionMapping": {"slot-0": {"0": "ONLINE"}},
        "serverToNumPartitionsMapping": {"slot-0": 1},
    }
    assert client_of().get("/topics/orders").json()["externalView"]["2"] == {"slot-0": "ERROR"}


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/topics/no", 404, "Failed to get ExternalView for topic: no, it is not existed!"),
        ("POST", "/topics/back", 404, "Failed to add new topic: back, it is already existed!"),
        ("DELETE", "/topics/no", 404, "Failed to delete not existed topic: no"),
        ("POST", "/blacklist", 400, "Parameter topic, partition and opt are required."),
        ("POST", "/blacklist?topic=a&partition=x&opt=blacklist", 400, "Parameter partition should"),
        ("POST", "/blacklist?topic=a&partition=0&opt=x", 400, "Invalid parameter opt"),
        ("POST", "/instances", 200, "Skipped rebalancing cluster\n"),
        ("GET", "/health", 200, "OK\n"),
        ("POST", "/topics/new", 403, "Failed to add new topic: new, the topics are those of the"),
        ("DELETE", "/topics/back", 403, "Failed to delete topic: back, the topics are those of"),
        ("GET", "/nothing", 404, "Not Found"),
    ],
)
def test_texts_are_the_controllers(method: str, path: str, status: int, text: str) -> None:
    response = client_of().request(method, path)

    assert response.status_code == status
    assert response.text.startswith(text)


def test_a_topic_in_a_body_is_read() -> None:
    client = client_of()

    added = client.post("/topics", json={"topic": "back", "numPartitions": 8})
    wrong = client.post("/topics", json=["back"])

    assert said(added) == (404, "Failed to add new topic: back, it is already existed!")
    assert wrong.status_code == 400


def test_workers_are_slots_with_their_bytes_each_second() -> None:
    body = client_of().get("/instances").json()

    assert body["allInstances"] == ["slot-0"]
    assert body["blacklisted"] == []
    assert body["instances"]["slot-0"][0] == "back.0:12"
    assert body["instances"]["slot-0"][-1] == "TOTALWORKLOAD.5:60"
    assert client_of().get("/instances/slot-7").json()["instances"] == {}


def test_what_makes_no_progress_is_what_is_stalled() -> None:
    body = client_of().get("/noprogress").json()

    row = {"topic": "orders", "partition": 2, "idealWorker": "slot-0", "actualWorker": "slot-0"}
    assert body == {"topics": [row]}
    assert client_of(live(LANES[:2])).get("/noprogress").json() == {}


def test_a_blacklisted_partition_is_paused_until_it_is_whitelisted() -> None:
    paused: list[Any] = []
    resumed: list[Any] = []
    client = client_of(
        live(pause=lambda ids: paused.extend(ids), resume=lambda ids: resumed.extend(ids))
    )
    path = "/blacklist?topic=orders&partition=1&opt="

    black = said(client.post(f"{path}blacklist"))
    listed = client.get("/blacklist").json()
    view = client.get("/topics/orders").json()["externalView"]["1"]
    white = said(client.post(f"{path}whitelist"))

    assert (black, white) == ((200, "OK"), (200, "OK"))
    assert listed == {"blacklist": [{"partition": 1, "topic": "orders"}]}
    assert view == {"slot-0": "OFFLINE"}
    assert client.get("/blacklist").json() == {"blacklist": []}
    assert [str(lane.source) for lane in (*paused, *resumed)] == ["orders-1", "orders-1"]
    assert client.post("/blacklist?topic=no&partition=1&opt=blacklist").status_code == 404


def test_a_mirror_that_starts_is_unhealthy() -> None:
    assert said(client_of(live(None)).get("/health")) == (503, "Unhealthy\n")


def test_tokens_are_asked_for_and_changes_need_operate(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"ann look {'l' * 20}\n")
    file.chmod(0o600)
    client = client_of(tokens=Tokens(file))
    ann = {"Authorization": f"Bearer {'l' * 20}"}

    assert client.get("/topics").status_code == 401
    assert client.get("/topics", headers=ann).status_code == 200
    change = "/blacklist?topic=orders&partition=1&opt=blacklist"
    assert client.post(change, headers=ann).status_code == 403
    assert client.post("/instances", headers=ann).status_code == 403
    assert client.get("/health").status_code == 200
