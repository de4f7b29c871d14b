"""uReplicator's controller: its texts, its JSON, and what blacklisting does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from heliograph.api.access import Tokens
from heliograph.api.guard import guarded
from heliograph.api.ureplicator import Controller, make_ureplicator_app
from heliograph.clock import now_ms
from heliograph.config.api import Address
from heliograph.decisions.orders import standing_of
from heliograph.driver.live import LiveMirror
from tests.unit.api.pretend import AB, LANES, PretendLedgers, live

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
        (
            "POST",
            "/topics/back?src=B",
            404,
            "Failed to add new topic: back, it is already existed!",
        ),
        ("DELETE", "/topics/no", 404, "Failed to delete not existed topic: no"),
        ("POST", "/blacklist", 400, "Parameter topic, partition and opt are required."),
        ("POST", "/blacklist?topic=a&partition=x&opt=blacklist", 400, "Parameter partition should"),
        ("POST", "/blacklist?topic=a&partition=0&opt=x", 400, "Invalid parameter opt"),
        ("POST", "/instances", 200, "Skipped rebalancing cluster\n"),
        ("GET", "/health", 200, "OK\n"),
        ("GET", "/nothing", 404, "Not Found"),
    ],
)
def test_texts_are_the_controllers(method: str, path: str, status: int, text: str) -> None:
    response = client_of().request(method, path)

    assert response.status_code == status
    assert response.text.startswith(text)


def test_a_topic_in_a_body_is_read() -> None:
    client = client_of()

    added = client.post("/topics?src=B", json={"topic": "back", "numPartitions": 8})
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


def decided(ledgers: PretendLedgers) -> list[str]:
    """Beside the pause of orders-0 that is there from the beginning."""
    standing = standing_of(ledgers.decided(AB), now_ms())
    return [f"{each.verb} {each.scope} by {each.who}" for each in standing if each.at_ms > 1]


def test_a_blacklisted_partition_is_paused_by_a_decision_until_it_is_whitelisted() -> None:
    ledgers = PretendLedgers()
    client = client_of(live(ledgers=ledgers))
    path = "/blacklist?topic=orders&partition=1&opt="

    black = said(client.post(f"{path}blacklist"))
    listed = client.get("/blacklist").json()
    view = client.get("/topics/orders").json()["externalView"]["1"]
    paused = decided(ledgers)
    white = said(client.post(f"{path}whitelist"))

    assert (black, white) == ((200, "OK"), (200, "OK"))
    before = {"partition": 0, "topic": "orders"}
    assert listed == {"blacklist": [before, {"partition": 1, "topic": "orders"}]}
    assert view == {"slot-0": "OFFLINE"}
    assert paused == ["pause orders: partition 1 by unnamed"]
    assert client.get("/blacklist").json() == {"blacklist": [before]}
    assert decided(ledgers) == ["resume orders: partition 1 by unnamed"]
    assert client.post("/blacklist?topic=no&partition=1&opt=blacklist").status_code == 404


def test_to_whitelist_what_is_not_blacklisted_changes_nothing() -> None:
    ledgers = PretendLedgers()
    client = client_of(live(ledgers=ledgers))

    assert said(client.post("/blacklist?topic=orders&partition=2&opt=whitelist")) == (200, "OK")

    assert ledgers.noted == []


def test_a_topic_is_added_and_deleted_by_decisions() -> None:
    ledgers = PretendLedgers()
    client = client_of(live(ledgers=ledgers))
    new = {"topic": "new", "numPartitions": 8}

    missing = said(client.post("/topics", json=new))
    added = said(client.post("/topics?src=A&dst=B", json=new))
    deleted = said(client.delete("/topics/orders"))
    odd = client.post("/topics?src=A&dst=B", json={"topic": "a.*", "numPartitions": 1})

    assert missing[0] == 400
    assert missing[1].startswith("Missing parameters for whitelisting topic new")
    text = "Successfully add new topic: {topic: new, partition: 8, pipeline: null}"
    assert added == (200, text)
    assert deleted == (200, "Successfully finished delete topic: orders")
    assert decided(ledgers) == ["include new by unnamed", "exclude orders by unnamed"]
    assert odd.status_code == 400


def test_a_change_that_the_ledger_does_not_take_is_told() -> None:
    client = client_of()

    change = client.post("/blacklist?topic=back&partition=0&opt=blacklist")

    assert (change.status_code, change.json()["code"]) == (503, "cluster_unreachable")


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
    assert client.delete("/topics/orders", headers=ann).status_code == 403
    new = {"topic": "new", "numPartitions": 8}
    assert client.post("/topics?src=A", json=new, headers=ann).status_code == 403
    assert client.get("/health").status_code == 200
