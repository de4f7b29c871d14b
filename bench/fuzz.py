"""The REST API of a real driver meets anything, for as long as asked; `make fuzz MINUTES=60`.

    python -m bench.fuzz [--minutes 60] [--seed 4711]

Two brokers, a mirror under a light load, and schemathesis against its `/v1`: first as a token that
may operate, then as one that may fail over too; then Connect's dialect, by bodies of hypothesis. At
the end every decision is withdrawn, topics come back, and records must be equal on both sides.
Writes bench/results/operate/fuzz.json.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from tests.kit.inside import carry
from tests.kit.mirror import lasting_topic, route, write_config
from tests.kit.runs import MirrorRun, mirror_runs
from tests.kit.topics import wait_until
from tests.unit.api.test_connect_fuzz import CONFIGS, PATCHED, ROUTES, VALUES

from heliograph_tools.bench.machine import this_machine
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters

RESULTS: Final = Path(__file__).parent / "results" / "operate" / "fuzz.json"
_TOPICS: Final = ("fuzzed-a", "fuzzed-b")
_RECORDS_PER_S: Final = 50
_TOKENS: Final = {"look": "l" * 20, "operate": "o" * 20, "recover": "r" * 20}
_CHECKS: Final = (
    # What wrong tokens get is bounded in rate, and tested elsewhere; a page token or a tag that is
    # made up is refused, as is a verb about a topic that is not there.
    "ignored_auth",
    "positive_data_acceptance",
)
_SHARES: Final = {"any flow": 0.2, "operate": 0.35, "recover": 0.3, "connect": 0.15}
_KNOWN: Final = """[parameters]
"path.flow" = "A->B"
"path.topic" = "fuzzed-a"
"path.partition" = 0
"""
"""Names that are there, so that requests come further than to a 404."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    what: str
    seconds: float
    requests: int
    findings: list[str] = field(default_factory=list)


@contextmanager
def _load(cluster: LocalCluster) -> Iterator[None]:
    producer, stop = Producer({**cluster.librdkafka_config, "acks": "all"}), threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(1 / _RECORDS_PER_S):
            producer.produce(_TOPICS[number % 2], b"%d" % number, partition=number % 3)
            producer.poll(0)
            number += 1

    writing = threading.Thread(target=write, daemon=True)
    writing.start()
    try:
        yield
    finally:
        stop.set()
        writing.join()
        producer.flush(30)


def fuzz_v1(url: str, role: str, seconds: float, seed: int, folder: Path, *, known: bool) -> Round:
    """By its own description; findings are in schemathesis's words."""
    began_s = time.monotonic()
    name = f"{role}-{'known' if known else 'any'}"
    report, settings_ = folder / f"{name}.ndjson", folder / f"{name}.toml"
    settings_.write_text(_KNOWN if known else "")
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "schemathesis"),
            *("--config-file", str(settings_)),
            "run",
            f"{url}/v1/openapi.json",
            *("--header", f"Authorization: Bearer {_TOKENS[role]}"),
            *("--max-time", str(max(1, int(seconds)))),
            *("--seed", str(seed)),
            *("--exclude-checks", ",".join(_CHECKS)),
            # They take a token and need none: a probe has none.
            *("--exclude-path", "/ready", "--exclude-path", "/health"),
            *("--report", "ndjson", "--report-ndjson-path", str(report)),
            *("--suppress-health-check", "all"),
            "--continue-on-failure",
            "--no-color",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "COLUMNS": "160"},
    )
    (folder / f"{name}.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    return Round(
        what=f"/v1 as {role}, {'names that are there' if known else 'any names'}",
        seconds=round(time.monotonic() - began_s, 1),
        requests=_requests(report, done.stdout),
        findings=_findings(done.stdout) if done.returncode else [],
    )


def _requests(report: Path, said: str) -> int:
    """As many as the report has answers of; otherwise as many cases as it says it made."""
    if report.exists():
        with report.open(encoding="utf-8") as lines:
            found = sum(line.count('"status_code"') for line in lines)
        if found:
            return found
    generated = re.search(r"([\d,]+) generated", said)
    return int(generated[1].replace(",", "")) if generated else 0


def _findings(said: str) -> list[str]:
    """The heads of what it found, and what it said of each."""
    failures = said.partition("FAILURES")[2].partition(" WARNINGS ")[0].partition(" SUMMARY ")[0]
    if not failures:
        return said.strip().splitlines()[-20:]
    kept = [line.rstrip() for line in failures.splitlines() if line.strip(" _=")]
    return kept[:400]


def _count(findings: list[str]) -> int:
    """Schemathesis has a head such as `- ST201 …` for each; otherwise a line is one."""
    heads = [line for line in findings if re.match(r"- ST\d+ ", line)]
    return len(heads) or len(findings)


def fuzz_connect(url: str, seconds: float, seed: int) -> Round:
    """Connect's routes; any answer of 500 and more is a finding."""
    began_s, statuses, findings = time.monotonic(), Counter[int](), list[str]()
    names = call(url, "GET", "/connectors")[1]

    def once(seed_of_round: int) -> None:
        @seeded(seed_of_round)
        @settings(
            max_examples=200,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(routed=ROUTES, body=VALUES | CONFIGS | PATCHED)
        def meet(routed: tuple[str, str], body: Any) -> None:
            if time.monotonic() - began_s > seconds:
                return
            method, path = routed
            if isinstance(names, list) and names:
                path = path.replace("/src/", f"/{urllib.parse.quote(str(names[0]), safe='')}/")
            status, answer = call(url, method, path, body)
            statuses[status] += 1
            if status >= 500 or (status >= 400 and not _is_connects(answer)):
                findings.append(
                    f"{status} {method} {path} {json.dumps(body)[:300]}: {answer}"[:900]
                )

        meet()

    number = seed
    while time.monotonic() - began_s < seconds:
        once(number)
        number += 1
    return Round(
        what="Connect's dialect",
        seconds=round(time.monotonic() - began_s, 1),
        requests=statuses.total(),
        findings=findings[:50],
    )


def _is_connects(answer: Any) -> bool:
    return isinstance(answer, dict) and answer.keys() == {"error_code", "message"}


def call(
    url: str, method: str, path: str, body: Any = None, role: str = "recover"
) -> tuple[int, Any]:
    request = urllib.request.Request(url + path, method=method)
    request.add_header("Authorization", f"Bearer {_TOKENS[role]}")
    if body is not None:
        request.add_header("Content-Type", "application/json")
        request.data = json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.status, _parsed(response.read())
    except urllib.error.HTTPError as exc:
        return exc.code, _parsed(exc.read())


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text.decode(errors="replace")[:200]


def _undo(url: str, flow: str) -> None:
    """Nothing that was decided or failed over holds any more."""
    for each in call(url, "GET", "/v1/decisions")[1]["decisions"]:
        call(url, "DELETE", f"/v1/decisions/{each['id']}")
    quoted = urllib.parse.quote(flow, safe="")

    def running() -> list[str]:
        operations = call(url, "GET", "/v1/operations")[1]["operations"]
        return [each["id"] for each in operations if each["state"] == "running"]

    wait_until(lambda: not running(), "operations to end", timeout_s=300, poll_s=1.0)
    for _ in range(5):
        now = call(url, "GET", f"/v1/flows/{quoted}")[1]
        topics = [each["topic"] for each in now["failed_over"]]
        if now["fence"] is None and not topics:
            return
        body = {"topics": topics} if now["fence"] is None else {}
        call(url, "POST", f"/v1/flows/{quoted}:reverse", body)
        wait_until(lambda: not running(), "the way back", timeout_s=300, poll_s=1.0)
    raise AssertionError(f"still failed over: {now}")


def fuzz(root: Path, minutes: float, seed: int) -> dict[str, Any]:
    with local_clusters([ClusterSpec(alias="A"), ClusterSpec(alias="B")], root=root) as made:
        for name in _TOPICS:
            lasting_topic(made["A"], name, partitions=3)
        tokens = root / "tokens"
        tokens.write_text("".join(f"{role} {role} {text}\n" for role, text in _TOKENS.items()))
        tokens.chmod(0o600)
        file = write_config(
            root / "mm2.properties",
            {"A": made["A"], "B": made["B"]},
            {"A->B": {"topics": "fuzzed-.*"}},
        )
        file.write_text(f"{file.read_text()}api.tokens.file = {tokens}\n")
        with socket.create_server(("127.0.0.1", 0)) as taken:
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with mirror_runs() as runs, _load(made["A"]):
            listen = url.removeprefix("http://")
            narrow = ("--master", "local[2]", "--slots", "2")
            run = MirrorRun(file, root / "run.log", *narrow, "--api", listen)
            runs.append(run)
            run.await_copying()
            seconds = {what: minutes * 60 * share for what, share in _SHARES.items()}
            rounds = [
                fuzz_v1(url, "operate", seconds["any flow"], seed, root, known=False),
                fuzz_v1(url, "operate", seconds["operate"], seed + 1, root, known=True),
                fuzz_connect(url, seconds["connect"], seed),
                fuzz_v1(url, "recover", seconds["recover"], seed + 2, root, known=True),
            ]
            health = call(url, "GET", "/health")[0]
            _undo(url, "A->B")
            bugs = [line for line in run.said.splitlines() if "bug in" in line or "a bug" in line]
            code = run.stop()
        carry(file)
        way = route(file, ("A", made["A"]), ("B", made["B"]))
        equal = sum(way.assert_arrives(name) for name in _TOPICS)
    return {
        "minutes": minutes,
        "seed": seed,
        "requests": sum(each.requests for each in rounds),
        "findings": sum(_count(each.findings) for each in rounds),
        "rounds": [asdict(each) for each in rounds],
        "health_after": health,
        "bugs_in_the_log": bugs[:50],
        "exit_code": code,
        "equal_records": equal,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    asked.add_argument("--minutes", type=float, default=60.0)
    asked.add_argument("--seed", type=int, default=secrets.randbelow(2**24))
    asked.add_argument("--results", type=Path, default=RESULTS)
    asked.add_argument("--keep", type=Path, help="a folder for all that was said")
    given_ = asked.parse_args()
    print(f"seed {given_.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="heliograph-fuzz-") as folder:
        root = given_.keep or Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        found = fuzz(root, given_.minutes, given_.seed)
    given_.results.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": asdict(this_machine()), **found}
    given_.results.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{found['requests']:,} requests, {found['findings']} findings", flush=True)
    if found["findings"] or found["bugs_in_the_log"] or found["health_after"] != 200:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
