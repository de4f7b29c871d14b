"""The REST API of a real driver meets anything, for as long as asked; `make fuzz MINUTES=60`.

    python -m bench.fuzz [--minutes 60] [--seed 4711] [--add]

Two brokers, a mirror under a light load, and schemathesis against its `/v1`: first as a token that
may operate, then as one that may fail over too; then Connect's dialect, and rewinds and decisions
made together, by bodies of hypothesis. At the end every decision is withdrawn, topics come back,
and records must be equal on both sides; the topic that may be rewound is so once more, from its
beginning, and must end in all that its source has. Writes bench/results/operate/fuzz.json; with
`--add` one more piece into fuzz-pieces.json, which has pieces of one source tree only.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from tests.kit.inside import carry
from tests.kit.mirror import Route, lasting_topic, route, write_config
from tests.kit.records import read_all
from tests.kit.runs import MirrorRun, mirror_runs
from tests.kit.topics import wait_until
from tests.unit.api.test_connect_fuzz import CONFIGS, PATCHED, ROUTES, VALUES

from heliograph.decisions.decision import Verb
from heliograph_tools.bench.machine import source_tree, this_machine
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters

RESULTS: Final = Path(__file__).parent / "results" / "operate"
_TOPICS: Final = ("fuzzed-a", "fuzzed-b")
_REWOUND: Final = "fuzzed-again"
"""The one topic that may be rewound: records of the others must be there once."""
_RECORDS_PER_S: Final = 50
_TOKENS: Final = {"look": "l" * 20, "operate": "o" * 20, "recover": "r" * 20}
_CHECKS: Final = (
    # What wrong tokens get is bounded in rate, and tested elsewhere; a page token or a tag that is
    # made up is refused, as is a verb about a topic that is not there.
    "ignored_auth",
    "positive_data_acceptance",
)
_SHARES: Final = {
    "any flow": 0.15,
    "operate": 0.3,
    "recover": 0.25,
    "connect": 0.15,
    "decisions": 0.15,
}
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
    statuses: dict[str, int] | None = None
    """Answers by status, where they were counted."""
    findings: list[str] = field(default_factory=list)


@contextmanager
def _load(cluster: LocalCluster) -> Iterator[None]:
    producer, stop = Producer({**cluster.librdkafka_config, "acks": "all"}), threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(1 / _RECORDS_PER_S):
            topic = (*_TOPICS, _REWOUND)[number % 3]
            producer.produce(topic, b"%d" % number, partition=number // 3 % 3)
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
    names = call(url, "GET", "/connectors")[1]

    def routed(routed: tuple[str, str]) -> tuple[str, str]:
        method, path = routed
        if isinstance(names, list) and names:
            path = path.replace("/src/", f"/{urllib.parse.quote(str(names[0]), safe='')}/")
        return method, path

    requests = st.tuples(ROUTES.map(routed), VALUES | CONFIGS | PATCHED)
    return _by_hypothesis("Connect's dialect", url, requests, _is_connects, seconds, seed)


def fuzz_decisions(url: str, seconds: float, seed: int) -> Round:
    """Rewinds, and decisions that act at once, about topics that are there or not."""
    flow = f"/v1/flows/{urllib.parse.quote('A->B', safe='')}"
    topics = st.lists(st.sampled_from([_REWOUND, "fuzzed-.*", "gone", "("]), max_size=2)
    partitions = st.lists(st.integers(0, 3) | st.just(2**31), max_size=3)
    rewind = st.fixed_dictionaries(
        {"topics": topics, "offset": st.integers(-1, 5_000) | st.just("earliest") | VALUES},
        optional={"partitions": partitions, "why": VALUES},
    )
    other = st.fixed_dictionaries(
        {"verb": st.sampled_from([*Verb, "rewound"]), "topics": topics},
        optional={
            "partitions": partitions,
            "slots": st.lists(st.integers(0, 2), max_size=2),
            "bytes_per_s": st.integers(0, 2**40),
            "for_s": st.integers(0, 30),
            "offset": st.integers(0, 5_000),
        },
    )
    again = rewind.map(lambda body: {**body, "verb": "rewind"})
    together = st.fixed_dictionaries({"decisions": st.lists(other | again, max_size=4) | VALUES})
    dry = st.sampled_from(["", "", "?dry_run=true"])
    requests = st.one_of(
        st.tuples(dry.map(lambda ask: ("POST", f"{flow}:rewind{ask}")), rewind),
        st.tuples(dry.map(lambda ask: ("POST", f"{flow}:together{ask}")), together),
        st.tuples(
            dry.map(lambda ask: ("POST", f"/v1/decisions{ask}")),
            again.map(lambda body: {**body, "flow": "A->B"}),
        ),
    )
    return _by_hypothesis("rewinds and decisions together", url, requests, _is_v1s, seconds, seed)


def _by_hypothesis(
    what: str,
    url: str,
    requests: st.SearchStrategy[tuple[tuple[str, str], Any]],
    is_error: Callable[[Any], bool],
    seconds: float,
    seed: int,
) -> Round:
    """Until the time is over; an answer of 500 and more is a finding, or an error with another
    body than errors have."""
    began_s, statuses, findings = time.monotonic(), Counter[int](), list[str]()

    def once(seed_of_round: int) -> None:
        @seeded(seed_of_round)
        @settings(
            max_examples=200,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        @given(request=requests)
        def meet(request: tuple[tuple[str, str], Any]) -> None:
            if time.monotonic() - began_s > seconds:
                return
            (method, path), body = request
            status, answer = call(url, method, path, body)
            statuses[status] += 1
            if status >= 500 or (status >= 400 and not is_error(answer)):
                findings.append(
                    f"{status} {method} {path} {json.dumps(body)[:300]}: {answer}"[:900]
                )

        meet()

    number = seed
    while time.monotonic() - began_s < seconds:
        once(number)
        number += 1
    return Round(
        what=what,
        seconds=round(time.monotonic() - began_s, 1),
        requests=statuses.total(),
        statuses={str(status): statuses[status] for status in sorted(statuses)},
        findings=findings[:50],
    )


def _is_connects(answer: Any) -> bool:
    return isinstance(answer, dict) and answer.keys() == {"error_code", "message"}


def _is_v1s(answer: Any) -> bool:
    return isinstance(answer, dict) and answer.keys() == {"status", "code", "message", "details"}


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


def _rewind_once_more(url: str) -> None:
    body = {"topics": [_REWOUND], "offset": "earliest", "why": "all of it, for the comparison"}
    flow = urllib.parse.quote("A->B", safe="")
    status, answer = call(url, "POST", f"/v1/flows/{flow}:rewind", body)
    assert status in (200, 201), answer

    def holding() -> list[str]:
        return [each["verb"] for each in call(url, "GET", "/v1/decisions")[1]["decisions"]]

    wait_until(lambda: "rewind" not in holding(), "the rewind", timeout_s=120, poll_s=0.5)


def _all_again(way: Route) -> int:
    """How many records the topic that was rewound ends in: all that its source has, in order."""
    wanted = read_all(way.source, _REWOUND)
    found = read_all(way.target, way.renamed(_REWOUND))
    for number, records in wanted.items():
        last = [each.value for each in found[number]][-len(records) :]
        assert last == [each.value for each in records], f"{_REWOUND}-{number} differs"
    return sum(map(len, wanted.values()))


def _with_pieces(file: Path, piece: dict[str, Any]) -> dict[str, Any]:
    """What the file has of the same source tree, and one more piece, summed."""
    there = json.loads(file.read_text())["pieces"] if file.exists() else []
    tree = piece["source_tree"]
    pieces = [*(each for each in there if each.get("source_tree") == tree), piece]
    sums = ("minutes", "requests", "findings", "equal_records", "equal_records_again")
    return {**{name: sum(each[name] for each in pieces) for name in sums}, "pieces": pieces}


def fuzz(root: Path, minutes: float, seed: int) -> dict[str, Any]:
    with local_clusters([ClusterSpec(alias="A"), ClusterSpec(alias="B")], root=root) as made:
        for name in (*_TOPICS, _REWOUND):
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
                fuzz_decisions(url, seconds["decisions"], seed),
                fuzz_v1(url, "recover", seconds["recover"], seed + 2, root, known=True),
            ]
            health = call(url, "GET", "/health")[0]
            _undo(url, "A->B")
            _rewind_once_more(url)
            bugs = [line for line in run.said.splitlines() if "bug in" in line or "a bug" in line]
            code = run.stop()
        carry(file)
        way = route(file, ("A", made["A"]), ("B", made["B"]))
        equal = sum(way.assert_arrives(name) for name in _TOPICS)
        again = _all_again(way)
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
        "equal_records_again": again,
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    asked.add_argument("--minutes", type=float, default=60.0)
    asked.add_argument("--seed", type=int, default=secrets.randbelow(2**24))
    asked.add_argument("--results", type=Path)
    asked.add_argument("--add", action="store_true", help="to the pieces that the file has")
    asked.add_argument("--keep", type=Path, help="a folder for all that was said")
    given_ = asked.parse_args()
    print(f"seed {given_.seed}", flush=True)
    tree = source_tree(Path(__file__).parent)
    with tempfile.TemporaryDirectory(prefix="heliograph-fuzz-") as folder:
        root = given_.keep or Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        found = fuzz(root, given_.minutes, given_.seed)
    results = given_.results or RESULTS / ("fuzz-pieces.json" if given_.add else "fuzz.json")
    results.parent.mkdir(parents=True, exist_ok=True)
    document = {"source_tree": tree, "machine": asdict(this_machine()), **found}
    if given_.add:
        document = _with_pieces(results, document)
    results.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"{found['requests']:,} requests, {found['findings']} findings", flush=True)
    if found["findings"] or found["bugs_in_the_log"] or found["health_after"] != 200:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
