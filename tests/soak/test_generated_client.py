"""A client that a generator made of `/v1/openapi.json` works a real driver; nobody wrote any of it.

Every answer must come back from the client's types as it was on the wire: a field that the document
leaves out, or gives another type, would be lost on the way. The generator is installed into an
environment of its own, since it wants another typer than Heliograph.
"""

from __future__ import annotations

import importlib
import json
import re
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.groups import commit
from tests.kit.mirror import lasting_topic, write_config
from tests.kit.records import numbered, produce
from tests.kit.runs import WITHOUT_SPARK, MirrorRun, mirror_runs
from tests.kit.topics import wait_until

_TOKEN = "t" * 20
_GENERATOR = "openapi-python-client==0.29.1"
_PACKAGE = "made_by_a_generator"
_GENERATE_S_MAX = 240


class Made:
    """The generated package, and a client of it."""

    def __init__(self, url: str, spec: dict[str, Any]) -> None:
        self.spec = spec
        client = importlib.import_module(f"{_PACKAGE}.client")
        self._client = client.AuthenticatedClient(base_url=url, token=_TOKEN)
        self._stranger = client.Client(base_url=url)

    def close(self) -> None:
        for client in (self._client, self._stranger):
            client.get_httpx_client().close()

    def model(self, name: str) -> Any:
        return getattr(importlib.import_module(f"{_PACKAGE}.models"), name)

    def __call__(self, name: str, *of: Any, known: bool = True, **asked: Any) -> Any:
        """The answer to one operation; its `parsed` is compared with what was sent."""
        module = importlib.import_module(f"{_PACKAGE}.api.default.{re.sub('-', '_', name)}")
        client = self._client if known else self._stranger
        answer = module.sync_detailed(*of, client=client, **asked)
        if answer.headers["content-type"] == "application/json":
            assert answer.parsed is not None, (name, answer.status_code)
            assert answer.parsed.to_dict() == json.loads(answer.content), name
        return answer


def _run(folder: Path, *argv: str) -> None:
    done = subprocess.run(
        argv, cwd=folder, capture_output=True, text=True, timeout=_GENERATE_S_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _spec(url: str) -> dict[str, Any]:
    request = Request(f"{url}/v1/openapi.json", headers={"Authorization": f"Bearer {_TOKEN}"})
    with urlopen(request, timeout=60) as response:
        return dict(json.load(response))


@contextmanager
def generated(url: str, folder: Path) -> Iterator[Made]:
    spec = _spec(url)
    (folder / "openapi.json").write_text(json.dumps(spec))
    (folder / "generate.yaml").write_text("post_hooks: []\n")
    environment = folder / "generator"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    _run(folder, python, "-m", "pip", "install", "--quiet", _GENERATOR)
    argv = ["--path", "openapi.json", "--output-path", _PACKAGE, "--config", "generate.yaml"]
    generate = ("generate", "--meta", "none", "--fail-on-warning", *argv)
    _run(folder, str(environment / "bin" / "openapi-python-client"), *generate)
    (libraries,) = environment.glob("lib/python*/site-packages")
    with pytest.MonkeyPatch.context() as patched:
        # Behind all others: only what the client needs and is not here is taken from there.
        patched.setattr(sys, "path", [*sys.path, str(folder), str(libraries)])
        made = Made(url, spec)
        try:
            yield made
        finally:
            made.close()


def test_a_generated_client_looks_decides_and_fails_over(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("made"), partitions=2)
    number = name.rpartition("-")[2]
    source, target = f"mdA{number}", f"mdB{number}"
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann recover {_TOKEN}\n")
    tokens.chmod(0o600)
    file = write_config(
        tmp_path / "mm2.properties",
        {source: pair["A"], target: pair["B"]},
        {f"{source}->{target}": {"topics": f"{name}.*", "groups": f"{name}.*"}},
    )
    file.write_text(f"{file.read_text()}api.tokens.file = {tokens}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
    flow = f"{source}->{target}"
    produce(pair["A"], name, numbered(10))
    commit(pair["A"], f"{name}-readers", name, {0: 2})

    with mirror_runs() as runs:
        run = MirrorRun(
            file, tmp_path / "run.log", "--slots", "2", "--api", listen, program=WITHOUT_SPARK
        )
        runs.append(run)
        run.await_copying()
        with generated(f"http://{listen}", tmp_path) as made:
            wait_until(
                lambda: made("lanes", state=made.model("LanesStateType0").IDLE).parsed.total == 2,
                "two idle lanes",
                timeout_s=30,
            )
            looks = {
                each["get"]["operationId"]: made(each["get"]["operationId"])
                for path, each in made.spec["paths"].items()
                if "get" in each and "{" not in path and path != "/v1/why"
            }
            looks["why"] = made("why", topic=name)
            first = made("lanes", flow=flow, page_size=1).parsed
            second = made("lanes", page_token=first.next_page_token, page_size=1).parsed
            lane = made("lane", flow, name, 1).parsed
            unknown = made("flow", "A->nowhere"), made("lanes", page_token="made up")
            stranger = made("flows", known=False)

            seen = made("flow", flow)
            pausing = made.model("DecideBody")(topics=[name], why="a test")
            paused = made("pause_flow", flow, body=pausing, if_match=seen.headers["etag"])
            wait_until(
                lambda: made("flow", flow).parsed.decisions != [], "a decision", timeout_s=10
            )
            late = made("resume_flow", flow, body=pausing, if_match=seen.headers["etag"])
            decided = made("decisions", flow=flow, history=True).parsed
            would = made("resume_flow", flow, body=pausing, dry_run=True)
            resumed = made("resume_flow", flow, body=pausing, if_match=would.headers["etag"])
            withdrawn = made("withdraw_decision", resumed.parsed.decision.id)
            nowhere = made("rewind_flow", flow, body=pausing)

            def tag() -> str:
                return str(made("flow", flow).headers["etag"])

            wait_until(lambda: made("flow", flow).parsed.decisions == [], "none", timeout_s=10)
            plan = made("failover_flow", flow, dry_run=True, if_match=tag())
            begun = made("failover_flow", flow, if_match=plan.headers["etag"])

            def is_over() -> bool:
                nonlocal begun
                begun = made("operation", begun.parsed.id)
                return bool(begun.parsed.state != "running")

            wait_until(is_over, "the failover", timeout_s=60, poll_s=0.2)
            over = made("operations").parsed.operations
            history = made("history").parsed
        run.stop()

    assert {name: int(each.status_code) for name, each in looks.items()} == dict.fromkeys(
        looks, 200
    )
    assert {"flows", "topics", "lanes", "groups", "slots", "losses", "drills", "audits"} < set(
        looks
    )
    (group,) = looks["groups"].parsed.flows[0].groups
    assert group.group == f"{name}-readers"
    assert "heliograph_" in looks["metrics"].content.decode()
    assert [first.total, len(first.lanes), len(second.lanes)] == [2, 1, 1]
    assert {first.lanes[0].partition, second.lanes[0].partition} == {0, 1}
    assert (lane.topic, lane.partition, lane.state) == (name, 1, "idle")
    refused = [*unknown, stranger, late, nowhere]
    assert [int(each.status_code) for each in refused] == [404, 400, 401, 412, 400]
    assert [each.parsed.code for each in refused][2:4] == ["not_authenticated", "changed_since"]
    assert [int(each.status_code) for each in (paused, would, resumed, withdrawn)] == [
        201,
        200,
        201,
        200,
    ]
    assert [(each.verb, each.why) for each in decided.decisions] == [("pause", "a test")]
    assert (plan.parsed.verb, plan.parsed.refusal) == ("failover", None)
    assert (begun.parsed.state, [each.id for each in over]) == ("done", [begun.parsed.id])
    assert [each.state for each in begun.parsed.steps] == ["done"] * 4
    assert "failover" in {each.verb for each in history.changes}
