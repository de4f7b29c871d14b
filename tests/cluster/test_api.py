"""`heliograph run --api`: a real mirror is looked at, decided on and failed over by HTTP."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from heliograph.decisions.decision import Verb
from heliograph.driver.giving_way import FIRST_BYTES_PER_S
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, mirror_runs
from tests.kit.topics import wait_until

_RECORDS = 500
_TOKEN = "t" * 20
_FLOW_VERBS: dict[Verb, dict[str, Any]] = {
    Verb.STOP: {},
    Verb.START: {},
    Verb.DRAIN: {"slots": [1]},
    Verb.THROTTLE_SOURCE: {"bytes_per_s": 9},
    Verb.THROTTLE_TARGET: {"bytes_per_s": 9},
}
_TOPIC_VERBS: dict[Verb, dict[str, Any]] = {
    Verb.PIN: {"slots": [0]},
    Verb.MOVE: {"slots": [0]},
    Verb.REWIND: {"offset": 3},
}
"""What the others are asked for with the topic."""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def test_a_mirror_is_looked_at_decided_on_and_failed_over_by_http(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("api"), partitions=2)
    number = name.rpartition("-")[2]
    source, target = f"apA{number}", f"apB{number}"
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann recover {_TOKEN}\n")
    tokens.chmod(0o600)
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {f"{source}->{target}": {"topics": name}},
    )
    port, controller = _free_port(), _free_port()
    keys = f"api.tokens.file = {tokens}\napi.ureplicator.listen = 127.0.0.1:{controller}\n"
    keys += f"{source}->{target}.critical.topics = none-.*\n"
    keys += f"{source}->{target}.critical.latency.ms = 5\n"
    file.write_text(file.read_text() + keys)
    way = route(file, (source, pair["A"]), (target, pair["B"]))
    produce(pair["A"], name, numbered(_RECORDS))
    flow = f"/v1/flows/{source}-%3E{target}"

    def call(
        method: str, path: str, body: Any = None, at: int = port
    ) -> tuple[int, dict[str, Any]]:
        request = Request(f"http://127.0.0.1:{at}{path}", method=method)
        request.add_header("Authorization", f"Bearer {_TOKEN}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with urlopen(request, timeout=60) as response:
                found = response.read()
                return response.status, {} if found in (b"", b"OK") else json.loads(found)
        except HTTPError as exc:
            return exc.code, json.load(exc)

    api = ("--slots", "2", "--api", f"127.0.0.1:{port}")
    with mirror_runs() as runs:
        run = MirrorRun(file, tmp_path / "run.log", *api, program=WITHOUT_SPARK)
        runs.append(run)
        run.await_copying()
        way.await_records(name, _RECORDS)

        asked = {"flow": f"{source}->{target}", "topics": [name]}

        def lanes_in(state: str) -> int:
            _, found = call("GET", f"/v1/lanes?topic={name}&state={state}")
            return int(found["total"])

        def slots() -> list[int]:
            return [lane["slot"] for lane in call("GET", "/v1/lanes")[1]["lanes"]]

        nowhere = {"topics": ["no-such-topic"]}

        def every_verb() -> set[int]:
            """What each verb answers that is only tried."""
            bodies = {verb: {"topics": [name], **_TOPIC_VERBS.get(verb, {})} for verb in Verb}
            asked = {**bodies, **_FLOW_VERBS}
            return {
                call("POST", f"{flow}:{verb}?dry_run=true", body)[0] for verb, body in asked.items()
            }

        def connector_state() -> str:
            return str(call("GET", f"{connector}/status")[1]["connector"]["state"])

        def offset_of(offset: int) -> dict[str, Any]:
            partition = {"cluster": source, "topic": name, "partition": 0}
            return {"offsets": [{"partition": partition, "offset": {"offset": offset}}]}

        def offsets() -> Any:
            return call("GET", f"{connector}/offsets")[1]

        wait_until(lambda: lanes_in("idle") == 2, "two idle lanes", timeout_s=30)
        connector = f"/connectors/{source}-%3E{target}.MirrorSourceConnector"
        connectors = call("GET", "/connectors?expand=status")[1]
        _, lanes = call("GET", "/v1/lanes")
        held = call("PUT", f"{connector}/pause")
        wait_until(lambda: lanes_in("paused") == 2, "two paused lanes", timeout_s=30)
        shown = connector_state()
        stopped = call("PUT", f"{connector}/stop")
        wait_until(lambda: connector_state() == "STOPPED", "a stopped connector", timeout_s=30)
        wait_until(lambda: not slots(), "no lanes", timeout_s=30)
        at_begin = offsets()
        reset = call("DELETE", f"{connector}/offsets")
        at_first = offsets()
        too_far = call("PATCH", f"{connector}/offsets", offset_of(10**6))
        altered = call("PATCH", f"{connector}/offsets", offset_of(_RECORDS - 2))
        at_last = offsets()
        resumed = call("PUT", f"{connector}/resume")
        wait_until(lambda: lanes_in("idle") == 2, "two idle lanes again", timeout_s=30)
        running_again = connector_state()
        changed = call("DELETE", connector)
        ready = call("GET", "/ready")
        held_back = call("GET", "/v1/slots")[1]["held_back_bytes_per_s"]
        _, losses = call("GET", "/v1/losses")
        _, groups = call("GET", "/v1/groups")
        _, why = call("GET", f"/v1/why?topic={name}")
        paused, decision = call("POST", f"{flow}:pause", {"topics": [name], "why": "a test"})
        wait_until(lambda: lanes_in("paused") == 2, "two paused lanes", timeout_s=10, poll_s=0.1)
        decided = call("GET", f"/v1/decisions?flow={source}-%3E{target}")[1]["decisions"]
        pinned, pin = call("POST", "/v1/decisions", {**asked, "verb": "pin", "slots": [1]})
        limited, _ = call("POST", "/v1/decisions", {**asked, "verb": "throttle", "bytes_per_s": 9})
        wait_until(lambda: set(slots()) == {1}, "both lanes in slot 1", timeout_s=20, poll_s=0.1)
        no_slot = call("POST", f"{flow}:pin", {"topics": [name], "slots": [7]})
        gone = call("DELETE", f"/v1/decisions/{decision['decision']['id']}")
        wait_until(lambda: lanes_in("paused") == 0, "no paused lane", timeout_s=10, poll_s=0.1)
        again_gone = call("DELETE", f"/v1/decisions/{decision['decision']['id']}")
        moves = [
            {"verb": "move", "topics": [name], "partitions": [each], "slots": [each]}
            for each in (0, 1)
        ]
        half = call("POST", f"{flow}:together", {"decisions": [moves[0], {**moves[1], **nowhere}]})
        moved, together = call("POST", f"{flow}:together", {"decisions": moves})
        wait_until(lambda: slots() == [0, 1], "each lane in its slot", timeout_s=20, poll_s=0.1)
        for each in (pin, *together["decisions"]):
            call("DELETE", f"/v1/decisions/{each['decision']['id']}")
        every_slot = call("POST", f"{flow}:drain", {"slots": [0, 1]})
        drained, drain = call("POST", f"{flow}:drain", {"slots": [0]})
        wait_until(lambda: set(slots()) == {1}, "slot 0 without lanes", timeout_s=20, poll_s=0.1)
        call("DELETE", f"/v1/decisions/{drain['decision']['id']}")
        blacklist = f"/blacklist?topic={name}&partition=1&opt="
        call("POST", f"{blacklist}blacklist", at=controller)
        wait_until(lambda: lanes_in("paused") == 1, "a paused lane", timeout_s=10, poll_s=0.1)
        listed = call("GET", "/blacklist", at=controller)[1]["blacklist"]
        call("POST", f"{blacklist}whitelist", at=controller)
        wait_until(lambda: lanes_in("paused") == 0, "no paused lane", timeout_s=10, poll_s=0.1)
        from_running = every_verb()
        call("POST", f"{flow}:pause", {})
        from_paused = every_verb()
        call("POST", f"{flow}:resume", {})
        call("POST", f"{flow}:stop")
        wait_until(lambda: not slots(), "no lanes", timeout_s=30)
        from_stopped = every_verb()
        call("POST", f"{flow}:start")
        back = {"topics": [name], "offset": "earliest", "why": "from the beginning"}
        planned, would = call("POST", f"{flow}:rewind?dry_run=true", back)
        rewound, rewind = call("POST", f"{flow}:rewind", back)
        way.await_records(name, 2 * _RECORDS + 1)
        status, plan = call("POST", f"{flow}:failover?dry_run=true")
        begun, operation = call("POST", f"{flow}:failover", {})
        again, running = call("POST", f"{flow}:promote")

        def is_over() -> bool:
            nonlocal operation
            _, operation = call("GET", f"/v1/operations/{operation['id']}")
            return bool(operation["state"] != "running")

        wait_until(is_over, "the failover", timeout_s=60)
        wait_until(lambda: call("GET", flow)[1]["state"] == "fenced", "a fenced flow", timeout_s=30)
        from_fenced = every_verb()
        code = run.stop()

    (status_of,) = (each["status"] for each in connectors.values())
    assert (status_of["connector"]["state"], status_of["tasks"][0]["state"]) == ("RUNNING",) * 2
    assert (held[0], stopped[0], resumed[0]) == (202, 204, 202)
    assert (shown, running_again) == ("PAUSED", "RUNNING")
    # Rewinds: the last record is copied once more.
    assert at_begin == offset_of(_RECORDS - 1)
    assert (reset[0], at_first) == (200, {"offsets": []})
    assert (too_far[0], altered[0]) == (400, 200)
    assert at_last == offset_of(_RECORDS - 2)
    assert listed == [{"partition": 1, "topic": name}]
    assert changed[0] == 403
    assert held_back == FIRST_BYTES_PER_S
    assert (half[0], "mirrors no topic" in half[1]["message"]) == (400, True)
    assert (moved, [each["written"] for each in together["decisions"]]) == (201, [True, True])
    assert (drained, every_slot[0]) == (201, 400)
    assert "stop the flow instead" in every_slot[1]["message"]
    assert (planned, would["written"], rewound, rewind["written"]) == (200, False, 201, True)
    assert rewind["decision"]["verb"] == "rewind"
    assert ready == (200, {"ready": True, "reasons": []})
    assert sum(lane["records"] for lane in lanes["lanes"]) == _RECORDS
    assert {lane["target_topic"] for lane in lanes["lanes"]} == {way.renamed(name)}
    assert (losses["losses"], losses["problems"]) == ([], [])
    assert groups["flows"][0]["problems"] == []
    (answer,) = why["flows"]
    assert (answer["standing"], answer["target_topic"]) == ("mirrored", way.renamed(name))
    assert answer["reasons"][0]["line"] is not None
    assert (paused, pinned, limited, gone[0], again_gone[0]) == (201, 201, 201, 200, 404)
    assert [(each["verb"], each["who"], each["why"]) for each in decided] == [
        ("resume", "ann", "Kafka Connect's REST"),
        ("start", "ann", "Kafka Connect's REST"),
        ("pause", "ann", "a test"),
    ]
    assert from_running == from_paused == from_stopped == from_fenced == {200}
    assert (no_slot[0], "there is no slot 7" in no_slot[1]["message"]) == (400, True)
    assert (status, plan["refusal"]) == (200, None)
    assert plan["plan"]["steps"] == ["check", "fence", "groups", "switch"]
    assert (begun, again, running["code"]) == (202, 409, "operation_running")
    assert operation["state"] == "done", operation
    assert [step["state"] for step in operation["steps"]] == ["done"] * 4
    (result,) = operation["result"]["topics"]
    assert (result["topic"], result["lost_records_min"]) == (name, 0)
    # All its flows are fenced, which a run says with its exit code.
    assert code == 3
    with socket.create_server(("127.0.0.1", port)):
        pass
