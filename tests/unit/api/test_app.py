"""Every route: what it shows, to whom, and that its errors have one body."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from heliograph.api import (
    asking,
    deciding,
    metrics,
    reading,
    recovery,
    remembered,
    watching,
)
from heliograph.api.bodies import HistoryBody, LanesBody, TopicsBody
from heliograph.api.page import routes as page
from heliograph.api.state import looking, only_known_parameters
from heliograph.ledger.fence import Fence
from heliograph.ledger.leadership import Leaderships, Leading
from heliograph.model import Awaited, LaneProgress, TopicName, Waiting
from tests.unit.api.pretend import AB, BA, LANES, PASSWORD, at, live
from tests.unit.api.serving import (
    ASKING,
    DECIDING,
    RECOVERING,
    TOGETHER,
    app_of,
    client_of,
    error_of,
    filled,
    paths,
)

PAGE = Path(__file__).parents[3] / "docs/reference/api.md"


@pytest.fixture(scope="module")
def client() -> TestClient:
    return client_of(app_of())


GETS = [path for method, path in paths() if method == "GET"]
POSTS = [path for method, path in paths() if method == "POST"]
SILENCING = "/v1/alarms/{alarm}/silence"


@pytest.mark.parametrize("path", [path for path in GETS if path not in ASKING])
def test_every_route_that_looks_answers_and_shows_no_secret(path: str, client: TestClient) -> None:
    response = client.get(filled(path))

    assert response.status_code == (404 if "{operation}" in path else 200), response.text
    assert PASSWORD not in response.text
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in response.headers
    assert response.headers["cache-control"] == "no-store"


def test_lanes_are_the_worst_first_and_have_the_documented_fields(client: TestClient) -> None:
    body = client.get("/v1/lanes").json()

    LanesBody.model_validate(body, strict=False)
    assert [(row["flow"], row["partition"]) for row in body["lanes"]] == [
        ("A->B", 2),
        ("A->B", 3),
        ("A->B", 1),
        ("A->B", 0),
        ("B->A", 0),
    ]
    worst = body["lanes"][0]
    assert (worst["state"], worst["reason"], worst["detail"]) == (
        "stalled",
        "corrupt batch",
        "bad CRC",
    )
    assert (worst["target_topic"], worst["slot"], worst["bytes_per_s"]) == ("A.orders", 0, 12.3)


def test_a_lane_that_waits_says_for_what_and_since_when() -> None:
    waits = at(7, Waiting(awaited=Awaited.SOURCE, since_ms=5))
    body = client_of(app_of(live((at(0), waits)))).get("/v1/lanes?state=waiting").json()

    LanesBody.model_validate(body, strict=False)
    (row,) = body["lanes"]
    assert (row["partition"], row["state"], row["reason"]) == (7, "waiting", "source answer")
    assert (row["since_ms"], row["detail"]) == (5, "a fetch from the source is not answered")
    assert (row["lag_records"], row["retrying"]) == (None, None)


@pytest.mark.parametrize(
    ("query", "partitions"),
    [("?state=stalled", [2]), ("?flow=B->A", [0]), ("?topic=orders&state=idle", [0])],
)
def test_lanes_are_filtered(query: str, partitions: list[int], client: TestClient) -> None:
    body = client.get(f"/v1/lanes{query}").json()

    assert [row["partition"] for row in body["lanes"]] == partitions


def test_pages_belong_to_one_moment(client: TestClient) -> None:
    found: list[tuple[str, int]] = []
    query = "?page_size=2"
    while True:
        body = client.get(f"/v1/lanes{query}").json()
        assert body["total"] == 5
        found += [(row["flow"], row["partition"]) for row in body["lanes"]]
        if body["next_page_token"] is None:
            break
        query = f"?page_size=2&page_token={body['next_page_token']}"

    assert len(found) == len(set(found)) == 5


@pytest.mark.parametrize("token", ["nonsense", ".", "a.b", "a.-1", "x.99999999999"])
def test_a_page_token_that_is_none_is_refused(token: str, client: TestClient) -> None:
    response = client.get("/v1/lanes", params={"page_token": token})

    assert error_of(response).code == "page_unknown"


def test_topics_sum_up_their_lanes(client: TestClient) -> None:
    body = client.get("/v1/topics").json()

    TopicsBody.model_validate(body)
    orders = body["topics"][0]
    assert (orders["topic"], orders["lanes"], orders["records"]) == ("orders", 4, 40)
    assert orders["states"] == {"stalled": 1, "copying": 2, "idle": 1}
    assert orders["lag_records"] is None


def test_slots_show_what_lanes_may_copy_that_give_way_to_critical_ones() -> None:
    mirror = live()
    status = mirror.status()
    assert status is not None
    holding = replace(mirror, status=lambda: replace(status, held_back=4_000_000))

    free = client_of(app_of(mirror)).get("/v1/slots").json()
    held_back = client_of(app_of(holding)).get("/v1/slots").json()

    assert free["held_back_bytes_per_s"] is None
    assert held_back["held_back_bytes_per_s"] == 4_000_000


def test_losses_are_shown_beside_what_could_not_be_read(client: TestClient) -> None:
    body = client.get("/v1/losses").json()

    assert [(row["topic"], row["lost_offsets"]) for row in body["losses"]] == [("orders", [4, 9])]
    assert body["problems"] == [{"flow": "B->A", "problem": "cluster A: no answer in time"}]


def test_history_tells_who_changed_what_beside_what_could_not_be_read(client: TestClient) -> None:
    body = client.get("/v1/history").json()
    none = client.get("/v1/history?limit=0")

    HistoryBody.model_validate(body)
    assert [(row["flow"], row["who"], row["verb"]) for row in body["changes"]] == [
        ("A->B", "ann", "pause")
    ]
    assert body["problems"] == [{"flow": "B->A", "problem": "cluster A: no answer in time"}]
    assert error_of(none).status == 400


def test_a_flow_shows_the_topics_that_were_failed_over_alone_and_its_tag_knows_them() -> None:
    before = client_of(app_of(live())).get("/v1/flows/A-%3EB")
    alone = Leaderships([AB, BA])
    fence = Fence(at_ms=1, why="failed over to B", id="f1")
    alone[AB], alone[BA] = Leading({TopicName("orders"): fence}), Leading()

    after = client_of(app_of(live(leaderships=alone))).get("/v1/flows/A-%3EB")

    assert before.json()["failed_over"] == []
    assert after.json()["failed_over"] == [{"topic": "orders", "at_ms": 1, "why": fence.why}]
    assert after.json()["state"] == "leading"
    assert before.headers["etag"] != after.headers["etag"]


@pytest.mark.parametrize("verb", ["failover", "promote", "reverse", "restore"])
def test_the_topics_of_a_recovery_are_some_names_or_left_out(verb: str) -> None:
    client = client_of(app_of(live()))

    for topics in ([], ["t"] * 257, ["t" * 250], "orders", [1]):
        response = client.post(f"/v1/flows/A-%3EB:{verb}", json={"topics": topics})
        assert error_of(response).status == 400, topics


@pytest.mark.parametrize(
    ("lanes", "word"),
    [
        (LANES, "healthy"),
        (None, "starting"),
    ],
)
def test_health_is_about_the_driver_alone(
    lanes: tuple[LaneProgress, ...] | None, word: str
) -> None:
    # Made here: a mirror that was made when the tests were collected has been silent since.
    response = client_of(app_of(live(lanes))).get("/health")

    assert (response.status_code, response.json()["status"]) == (200, word)


def test_a_path_says_all_its_methods(client: TestClient) -> None:
    response = client.options("/v1/decisions")

    assert (response.status_code, response.headers["allow"]) == (405, "GET, POST")


def test_decisions_are_shown_with_a_tag_of_their_flow(client: TestClient) -> None:
    response = client.get("/v1/decisions?flow=A->B&history=true")
    lanes = client.get("/v1/lanes?topic=orders").json()["lanes"]

    (found,) = response.json()["decisions"]
    assert (found["id"], found["verb"], found["state"]) == ("0123456789", "pause", "holds")
    assert {row["partition"]: row["decisions"] for row in lanes}[0] == ["0123456789"]
    assert {row["partition"]: row["decisions"] for row in lanes}[1] == []
    stale = client.post(
        "/v1/decisions",
        json={"flow": "A->B", "verb": "resume"},
        headers={"if-match": '"old"'},
    )
    assert error_of(stale).code == "changed_since"
    assert error_of(client.delete("/v1/decisions/9876543210")).code == "not_found"


def test_flows_and_lanes_that_are_not_there_are_not_found(client: TestClient) -> None:
    for path in ("/v1/flows/A->C", "/v1/lanes/A->B/orders/9", "/v1/lanes?flow=X", "/nowhere"):
        assert error_of(client.get(path)).code == "not_found"


# -- the description and the page


def test_the_description_has_every_route_and_the_error_body() -> None:
    spec = app_of().openapi()

    served = {
        route.path_format
        for module in (reading, remembered, asking, watching, deciding, recovery, metrics)
        for route in module.routes.routes
        if isinstance(route, APIRoute)
    }
    assert served == set(spec["paths"])
    assert {*RECOVERING, *DECIDING, TOGETHER, "/v1/decisions", SILENCING} == set(POSTS)
    for path, methods in spec["paths"].items():
        for operation in methods.values():
            body: Any = operation["responses"]["default"]["content"]["application/json"]
            assert body["schema"]["$ref"].endswith("/ErrorBody"), path
            assert "422" not in operation["responses"]
            answers = [each for code, each in operation["responses"].items() if code < "300"]
            assert all(
                each["content"].get("application/json") != {"schema": {}} for each in answers
            )


def test_the_page_has_every_route() -> None:
    text = PAGE.read_text()

    missing = [f"{method} {path}" for method, path in paths() if f"`{method} {path}`" not in text]

    assert missing == []


def test_nothing_that_a_route_depends_on_is_called_on_a_thread() -> None:
    """Tokens and wrong tries have no locks, and five threads a request cost more than the rest."""
    modules = (reading, remembered, asking, watching, deciding, recovery, metrics, page)
    called = {
        each.call
        for module in modules
        for route in module.routes.routes
        if isinstance(route, APIRoute)
        for each in _dependencies(route.dependant)
    }

    assert looking in called
    assert {
        call
        for call in (*called, only_known_parameters)
        if not iscoroutinefunction(call) and not iscoroutinefunction(call.__call__)
    } == set()


def _dependencies(dependant: Any) -> Iterator[Any]:
    for each in dependant.dependencies:
        yield each
        yield from _dependencies(each)


def test_metrics_are_openmetrics_where_that_is_accepted(client: TestClient) -> None:
    response = client.get("/metrics", headers={"Accept": "application/openmetrics-text"})

    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


def test_lanes_and_the_names_of_others_are_told_on_request(client: TestClient) -> None:
    plain = client.get("/metrics").text
    asked = client.get("/metrics?lanes=true&compat=strimzi").text
    wrong = client.get("/metrics?compat=grafana")

    assert "heliograph_lane_" not in plain and "kafka_connect_" not in plain
    assert "heliograph_lane_lag_records" in asked
    assert "kafka_connect_worker_connector_count" in asked
    assert error_of(wrong).status == 400


def test_lag_is_told_in_one_shape_of_lanes_topics_and_flows(client: TestClient) -> None:
    lanes = client.get("/v1/lanes").json()["lanes"]
    topics = client.get("/v1/topics").json()["topics"]
    flows = client.get("/v1/flows").json()["flows"]

    shared = {"motion", "lag_records", "lag_bytes", "lag_s", "catch_up_s", "overrun_s", "trend"}
    assert all(shared <= row.keys() for row in (*lanes, *topics, *flows))
    by_lane = {(row["flow"], row["partition"]): row for row in lanes}
    assert by_lane["A->B", 2]["motion"] == "stalled"
    assert by_lane["A->B", 2]["lag_records"] is None
    assert (by_lane["A->B", 3]["lag_records"], by_lane["A->B", 3]["lag_bytes"]) == (7, 70)
