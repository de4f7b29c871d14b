"""Canaries over real brokers: along a chain, through a stop, past a restart; and who is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.health import watch
from heliograph.health.listing import FlowAlarms, alarms_of, kept_in
from heliograph.ledger.canary_note import CanaryNote, canary_note, decode
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.cluster.test_cli import heliograph
from tests.kit.clusters import TopicNames
from tests.kit.inside import InsideMirror, running_inside
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce, read_all
from tests.kit.topics import admin_of, wait_until

_INTERVAL_S = 1
_LATE_S = 6
_SECONDS = 60.0


@contextmanager
def receiver() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A webhook: its URL, and what was posted to it."""
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append({**json.loads(body), "token": self.headers["Authorization"]})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Tests say enough."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", posted
        server.shutdown()
        thread.join()


def noted(file: Path, flow: FlowId) -> CanaryNote | None:
    ledgers = LedgerService(load_config(file).clusters)
    try:
        return ledgers.ask(flow, canary_note)
    finally:
        ledgers.close()


def alarms(file: Path, flow: FlowId) -> FlowAlarms:
    ledgers = LedgerService(load_config(file).clusters)
    try:
        return alarms_of(ledgers.ask(flow, kept_in), flow, now_ms())
    finally:
        ledgers.close()


def stepped(inside: InsideMirror, flow: FlowId, what: str) -> None:
    inside.jobs[flow, what].step()


def test_canaries_go_along_a_chain_past_a_restart_and_a_stop_is_told_once(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_RECENT_S", 0.0)
    number = topic("n").rpartition("-")[2]
    a, b, c = (f"{name}{number}" for name in ("cnA", "cnB", "cnC"))
    name = lasting_topic(pair["A"], topic("orders"))
    produce(pair["A"], name, numbered(10))
    with receiver() as (url, posted):
        settings = {
            "canary.enabled": "true",
            "canary.interval.seconds": str(_INTERVAL_S),
            "canary.topic.replication.factor": "1",
            "alarms.canary.seconds": str(_LATE_S),
            "alarms.clear.seconds": "1",
            "alarms.webhook.url": url,
            "alarms.webhook.token": "t" * 20,
            "refresh.topics.interval.seconds": "1",
        }
        file = write_config(
            tmp_path / "mm2.properties",
            {a: pair["A"], b: pair["B"], c: pair["A"]},
            {
                f"{a}->{b}": {"topics": name, **settings},
                f"{b}->{c}": {"topics": "none", **settings},
            },
        )
        ab = route(file, (a, pair["A"]), (b, pair["B"]))
        bc = route(file, (b, pair["B"]), (c, pair["A"]))
        own, passing = str(ab.flow), str(bc.flow)

        def told(flow: str, since: int = 0) -> list[str]:
            """What was posted of the canary's alarm."""
            events = [event for event in posted[since:] if event["flow"] == flow]
            found = [each for event in events for each in event["detail"]["alarms"]]
            return [each["state"] for each in found if each["alarm"] == "canary"]

        with running_inside(file, periodic=True, leased=True):

            def arrived() -> bool:
                here, there = noted(file, ab.flow), noted(file, bc.flow)
                if here is None or there is None:
                    return False
                track, passed = here.track(own), there.track(own)
                return (
                    track is not None
                    and track.seen >= 3
                    and track.latency_ms is not None
                    and passed is not None
                    and passed.hop_ms is not None
                    and there.track(passing) is not None
                    and not _open(file, ab.flow)
                )

            wait_until(arrived, "canaries along the chain", timeout_s=_SECONDS, poll_s=0.5)
            told_before = len(posted)
            decided = heliograph(
                "pause", str(file), "--flow", own, "--topic", f"heliograph-canary-{a}", "--json"
            )
            wait_until(lambda: bool(told(own, told_before)), "the alarm", timeout_s=_SECONDS)
            paused = noted(file, ab.flow)
            open_ones = _open(file, ab.flow)
            said = heliograph("alarms", str(file), "--flow", own, "--json")
            judged = heliograph("verdict", str(file), "--flow", own, "--json")
            heliograph("resume", str(file), "--flow", own, "--topic", f"heliograph-canary-{a}")

            wait_until(lambda: "ended" in told(own, told_before), "its end", timeout_s=_SECONDS)
        first = noted(file, ab.flow)
        with running_inside(file, periodic=True, leased=True):

            def went_on() -> bool:
                now = noted(file, ab.flow)
                return now is not None and first is not None and now.sequence >= first.sequence + 2

            wait_until(went_on, "canaries after a restart", timeout_s=_SECONDS, poll_s=0.5)
        last = noted(file, ab.flow)

    assert decided.code == 0, decided.err
    mine = [event for event in posted if event["flow"] == own]
    states = told(own)
    assert told(own, told_before)[:2] == ["raised", "ended"]
    assert states == (["raised", "ended"] * len(states))[: len(states)]
    assert {event["token"] for event in posted} == {f"Bearer {'t' * 20}"}
    assert (mine[0]["event"], mine[0]["v"]) == ("alarms", 1)
    assert paused is not None
    assert paused.waiting_ms is not None
    assert "canary" in open_ones
    assert said.code == 3
    assert "canary" in {row["alarm"] for row in said.document["flows"][0]["alarms"]}
    (flow,) = judged.document["flows"]
    assert (judged.code, flow["verdict"]) == (3, "behind"), flow
    assert any("canary is late" in reason["text"] for reason in flow["reasons"])
    assert not flow["cutover"]["ready"]
    assert last is not None
    track = last.track(own)
    assert track is not None
    assert (track.missing, track.late, track.repeated) == (0, 0, 0)
    assert sum(track.counts) == len(track.recent)
    records = read_all(pair["A"], f"heliograph-canary-{a}")[0]
    sequences = [found.sequence for each in records if (found := decode(each.value)) is not None]
    assert sequences == list(range(len(sequences)))
    assert f"{b}.{a}.heliograph-canary-{a}" in _topics(pair["A"])
    assert f"{c}.heliograph-canary-{b}" not in _topics(pair["B"])


def _topics(cluster: LocalCluster) -> set[str]:
    return set(admin_of(cluster).list_topics(timeout=10).topics)


def test_a_silence_holds_for_the_driver_that_comes_next_and_what_was_told_is_not_told_again(
    pair: dict[str, LocalCluster],
    topic: TopicNames,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_RECENT_S", 0.0)
    name = lasting_topic(pair["A"], topic("silent"))
    number = name.rpartition("-")[2]
    a, b = f"siA{number}", f"siB{number}"
    produce(pair["A"], name, numbered(10))
    with receiver() as (url, posted):
        file = write_config(
            tmp_path / "mm2.properties",
            {a: pair["A"], b: pair["B"]},
            {
                f"{a}->{b}": {
                    "topics": name,
                    "alarms.ledger.bytes": "1",
                    "alarms.standby": "expected",
                    "alarms.standby.seconds": "1",
                    "alarms.webhook.url": url,
                }
            },
        )
        flow = route(file, (a, pair["A"]), (b, pair["B"])).flow

        def told() -> list[str]:
            return [each["alarm"] for event in posted for each in event["detail"]["alarms"]]

        # Before anything was mirrored.
        silenced = heliograph(
            "silence", str(file), "standby", "--until", "2h", "--why", "a test", "--json"
        )
        with closing(InsideMirror(file)) as driver:
            driver.catch_up()

            def both() -> bool:
                stepped(driver, flow, "alarms")
                return _open(file, flow) == {"ledger", "standby"}

            wait_until(both, "both alarms", timeout_s=30, poll_s=0.3)
        with closing(InsideMirror(file)) as successor:
            successor.catch_up()
            for _ in range(3):
                stepped(successor, flow, "alarms")
            still, told_by_then = _open(file, flow), told()
            heliograph("silence", str(file), "--lift", silenced.document["silences"][0]["id"])
            stepped(successor, flow, "alarms")
        listed = heliograph("alarms", str(file), "--json").document["flows"][0]

    assert silenced.code == 0, silenced.err
    assert still == {"ledger", "standby"}
    assert told_by_then == ["ledger"]
    assert told() == ["ledger", "standby"]
    assert [row["silenced"] for row in listed["alarms"]] == [None, None]
    assert listed["silences"] == []


def _open(file: Path, flow: FlowId) -> set[str]:
    return {row.alarm for row in alarms(file, flow).alarms if row.state == "open"}
