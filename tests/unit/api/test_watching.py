"""Alarms, silences, canaries and verdicts by HTTP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from heliograph.api import watching
from heliograph.api.access import Caller, Grant, Role
from heliograph.api.app import make_app
from heliograph.api.state import ApiState, known_caller
from heliograph.clock import now_ms
from heliograph.health.alarms import Alarm, alarm_id
from heliograph.health.conditions import Kind
from heliograph.health.note import AlarmsNote, alarms_entry, silences_of
from heliograph.health.verdict import Cutover, FlowVerdict, Reason, Word
from heliograph.ledger.canary_note import Canary, CanaryNote, arrived, canary_entry
from heliograph.ledger.fence import Fence
from heliograph.ledger.leadership import Fenced, Leaderships, Leading, Standby
from heliograph.model import Idle
from tests.unit.api.pretend import AB, BA, LANES, PretendLedgers, at, live

LAG = Alarm(kind=Kind.LAG, subject="orders", text="late", raised_ms=10)
ID = alarm_id("A->B", "lag:orders")


@pytest.fixture
def ledgers() -> PretendLedgers:
    made = PretendLedgers()
    over = replace(LAG, subject="logs", ended_ms=20, told="ended")
    made.noted.append(alarms_entry(AlarmsNote(alarms=(LAG, over))))
    canary = Canary(flow="A->B", source="A", sequence=3, sent_ms=1_000, interval_s=60, driver="h")
    note = CanaryNote(
        at_ms=1,
        interval_s=60,
        sequence=4,
        sent_ms=now_ms(),
        topic="A.heliograph-canary-A",
        tracks=(arrived(None, canary, 1_041),),
    )
    made.noted.append(canary_entry(note))
    return made


def client_of(mirror: Any) -> TestClient:
    return TestClient(make_app(ApiState(live=mirror)), raise_server_exceptions=False)


@pytest.fixture
def client(ledgers: PretendLedgers) -> TestClient:
    return client_of(live(ledgers=ledgers))


def test_open_alarms_are_listed_and_those_that_ended_on_request(client: TestClient) -> None:
    found = client.get("/v1/alarms").json()
    whole = client.get("/v1/alarms?history=true").json()

    (alarm,) = found["alarms"]
    assert (alarm["id"], alarm["alarm"], alarm["state"]) == (ID, "lag:orders", "open")
    assert alarm["silenced"] is None
    assert [each["state"] for each in whole["alarms"]] == ["open", "ended"]
    assert [each["flow"] for each in found["problems"]] == ["B->A"]


def test_an_alarm_is_silenced_and_the_silence_lifted(
    client: TestClient, ledgers: PretendLedgers
) -> None:
    made = client.post(f"/v1/alarms/{ID}/silence", json={"for_s": 60, "why": "known"})
    shown = client.get("/v1/alarms").json()
    over = client.delete(f"/v1/silences/{made.json()['id']}")
    after = client.get("/v1/alarms").json()
    again = client.delete(f"/v1/silences/{made.json()['id']}")

    assert (made.status_code, made.json()["alarm"], made.json()["why"]) == (
        201,
        "lag:orders",
        "known",
    )
    assert shown["alarms"][0]["silenced"]["id"] == made.json()["id"]
    assert [each["id"] for each in shown["silences"]] == [made.json()["id"]]
    assert (over.status_code, over.json()["lifted_by"]) == (200, made.json()["who"])
    assert (after["alarms"][0]["silenced"], after["silences"]) == (None, [])
    assert again.status_code == 404
    assert len(silences_of(ledgers._read(AB))) == 1


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/alarms/0000000000/silence", {"for_s": 60}, 404),
        (f"/v1/alarms/{ID}/silence", {}, 400),
        (f"/v1/alarms/{ID}/silence", {"for_s": 60, "until_ms": 5}, 400),
        (f"/v1/alarms/{ID}/silence", {"until_ms": 5}, 400),
        (f"/v1/alarms/{ID}/silence", {"for_s": 60, "why": "\x1b"}, 400),
        ("/v1/alarms/lag/silence", {"for_s": 60}, 400),
    ],
)
def test_what_cannot_be_silenced_is_refused(
    client: TestClient, ledgers: PretendLedgers, path: str, body: Any, status: int
) -> None:
    before = len(ledgers.noted)

    answer = client.post(path, json=body)

    assert answer.status_code == status, answer.text
    assert len(ledgers.noted) == before


def test_who_may_only_look_silences_nothing(ledgers: PretendLedgers) -> None:
    app = make_app(ApiState(live=live(ledgers=ledgers)))
    looker = Caller(name="ann", grants=(Grant(role=Role.LOOK),))
    app.dependency_overrides[known_caller] = lambda: looker

    answer = TestClient(app).post(f"/v1/alarms/{ID}/silence", json={"for_s": 60})

    assert answer.status_code == 403
    assert silences_of(ledgers._read(AB)) == ()


def test_the_canary_of_a_flow_is_shown_with_its_tracks(client: TestClient) -> None:
    (found,) = client.get("/v1/canary?flow=A-%3EB").json()["canaries"]

    assert (found["sequence"], found["topic"]) == (4, "A.heliograph-canary-A")
    (track,) = found["tracks"]
    assert (track["sequence"], track["latency_ms"], sum(track["counts"])) == (3, 41, 1)


def test_verdicts_are_those_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(config: Any, _: object) -> list[FlowVerdict]:
        cutover = Cutover(reasons=("no drill was made",))
        reasons = (Reason(word=Word.BEHIND, text="late"),)
        return [
            FlowVerdict(flow=flow.id, word=Word.BEHIND, reasons=reasons, cutover=cutover)
            for flow in config.flows
        ]

    monkeypatch.setattr(watching, "read_verdicts", read)

    body = client_of(live()).get("/v1/verdict?flow=B-%3EA").json()

    assert body["flows"] == [
        {
            "flow": "B->A",
            "verdict": "behind",
            "reasons": [{"word": "behind", "text": "late"}],
            "cutover": {"ready": False, "reasons": ["no drill was made"], "remarks": []},
        }
    ]


def test_a_flow_has_its_verdict_where_this_driver_leads_it() -> None:
    ledgers = PretendLedgers()
    leaderships = Leaderships([AB, BA])
    leaderships[AB], leaderships[BA] = Leading(), Standby()

    def word(lanes: Any, flow: str = "A-%3EB") -> str | None:
        mirror = live(lanes, leaderships=leaderships, ledgers=ledgers)
        found: str | None = client_of(mirror).get(f"/v1/flows/{flow}").json()["verdict"]
        return found

    stalled, idle = word(LANES), word((at(0, Idle()),))
    standing_by = word(LANES, "B-%3EA")
    leaderships[AB] = Fenced(Fence(at_ms=1, why="failed over"))
    fenced = word((at(0, Idle()),))

    assert (stalled, idle, standing_by, fenced) == ("stalled", "healthy", None, "stalled")
