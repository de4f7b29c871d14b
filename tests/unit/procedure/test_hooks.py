"""Hooks do what they say, in time, with no secret, and fail without raising."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import quote
from typing import ClassVar

import pytest

from heliograph.config.secrets import Secret
from heliograph.config.sections import RecoveryConfig
from heliograph.model import ClusterAlias, FlowId
from heliograph.procedure.hooks import (
    OUTPUT_BYTES_MAX,
    HookEvent,
    HookOutcome,
    What,
    event_json,
    run_hooks,
)

TOKEN = "hunter2-token"


def event(what: What = "after failover") -> HookEvent:
    return HookEvent(
        what=what,
        flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")),
        at_ms=1_769_832_180_000,
        primary=ClusterAlias("B"),
        bootstrap_servers=("b1:9092", "b2:9092"),
        detail={"groups": 3, "lost": [{"partition": "orders-0", "records": 12}]},
    )


def python(script: str, *arguments: str) -> str:
    """A command line that runs `script` without a shell."""
    return " ".join(quote(word) for word in (sys.executable, "-c", script, *arguments))


def after(command: str, *, timeout_s: int = 30) -> HookOutcome:
    config = RecoveryConfig(after_command=command, hook_timeout_s=timeout_s)
    (outcome,) = run_hooks(config, event())
    return outcome


class Receiver:
    """A web server on loopback that answers as told and keeps what it was sent."""

    def __init__(self) -> None:
        self.status, self.wait_s, self.location = 200, 0.0, ""
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            timeout: ClassVar[int] = 10

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                receiver.requests.append(("POST", self.path, dict(self.headers), body))
                time.sleep(receiver.wait_s)
                self.send_response(receiver.status)
                if receiver.location:
                    self.send_header("Location", receiver.location)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                receiver.requests.append(("GET", self.path, dict(self.headers), b""))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def config(self, *, timeout_s: int = 30) -> RecoveryConfig:
        return RecoveryConfig(
            webhook_url=Secret(f"http://127.0.0.1:{self.port}/hook/path-word?key=query-word"),
            webhook_token=Secret(TOKEN),
            hook_timeout_s=timeout_s,
        )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
    made = Receiver()
    yield made
    made.close()


def test_a_command_gets_the_event_on_its_input_and_in_its_environment(tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    script = (
        "import json, os, sys; read = sys.stdin.read(); "
        "json.dump([json.loads(read), dict(os.environ)], open(sys.argv[1], 'w')); print('moved')"
    )

    outcome = after(python(script, str(seen)))

    sent, environment = json.loads(seen.read_text())
    assert outcome.ok
    assert outcome.name == "failover.after.command"
    assert outcome.told.startswith("exit status 0 after ")
    assert outcome.told.endswith(": moved")
    assert sent == json.loads(event_json(event()))
    assert sent["detail"]["lost"] == [{"partition": "orders-0", "records": 12}]
    assert environment["HELIOGRAPH_EVENT"] == "after failover"
    assert environment["HELIOGRAPH_FLOW"] == "A->B"
    assert environment["HELIOGRAPH_PRIMARY"] == "B"
    assert environment["HELIOGRAPH_BOOTSTRAP"] == "b1:9092,b2:9092"


def test_a_command_sees_nothing_else_of_our_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SASL_PASSWORD", "hunter3")
    seen = tmp_path / "seen.json"
    script = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"

    after(python(script, str(seen)))

    # Python itself may add its locale; everything that is ours is named.
    ours = set(json.loads(seen.read_text())) - {"LC_CTYPE"}
    assert ours == {
        "PATH",
        "HOME",
        "HELIOGRAPH_EVENT",
        "HELIOGRAPH_FLOW",
        "HELIOGRAPH_PRIMARY",
        "HELIOGRAPH_BOOTSTRAP",
    }


def test_no_shell_reads_a_command(tmp_path: Path) -> None:
    made = tmp_path / "made"

    outcome = after(f"echo $HOME '; touch' {made} > {made}")

    assert outcome.told.endswith(f": $HOME ; touch {made} > {made}")
    assert not made.exists()


def test_a_command_that_fails_is_told_with_its_last_lines() -> None:
    script = (
        "import sys; [print('line', n, flush=True) for n in range(9)]; "
        "print('bad', file=sys.stderr); sys.exit(3)"
    )

    outcome = after(python(script))

    assert not outcome.ok
    assert outcome.told.startswith("exit status 3 after ")
    assert outcome.told.endswith(": line 5 / line 6 / line 7 / line 8 / bad")


def test_what_a_command_prints_is_bounded_and_cannot_steer_a_terminal() -> None:
    script = r"import sys; sys.stdout.write('x' * 3_000_000 + '\x1b[2Jend')"

    outcome = after(python(script))

    assert outcome.ok
    assert len(outcome.told) < OUTPUT_BYTES_MAX + 100
    assert outcome.told.endswith("x[2Jend")


def test_a_command_that_does_not_exist_is_an_outcome() -> None:
    outcome = after("/no/such/program --now")

    assert outcome == HookOutcome(
        name="failover.after.command",
        ok=False,
        told="cannot be run: No such file or directory",
    )


def test_a_command_that_never_reads_its_input_does_not_hold_us_up() -> None:
    large = HookEvent(
        what="after failover",
        flow=event().flow,
        at_ms=0,
        primary=ClusterAlias("B"),
        bootstrap_servers=("b:1",),
        detail={"text": "x" * 1_000_000},
    )

    (outcome,) = run_hooks(RecoveryConfig(after_command="true"), large)

    assert outcome.ok


def test_a_command_that_does_not_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = (
        "import os, subprocess, sys, time; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "open(sys.argv[1], 'w').write(f'{os.getpid()} {child.pid}'); "
        "print('waiting', flush=True); time.sleep(60)"
    )
    began_s = time.monotonic()

    outcome = after(python(script, str(pids)), timeout_s=2)

    assert not outcome.ok
    assert outcome.told == "did not end in 2 s and was killed: waiting"
    assert time.monotonic() - began_s < 10
    for pid in pids.read_text().split():
        wait_until_gone(int(pid))


def wait_until_gone(pid: int) -> None:
    deadline_s = time.monotonic() + 10
    while is_running(pid):
        assert time.monotonic() < deadline_s, f"{pid} still runs"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        # A zombie waits for whoever adopted it; it runs no more.
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_what_a_command_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = (
        "import subprocess, sys; "
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(20)']); "
        "open(sys.argv[1], 'w').write(str(child.pid)); print('left one')"
    )
    began_s = time.monotonic()

    outcome = after(python(script, str(pid)))

    assert outcome.ok
    assert outcome.told.endswith(": left one")
    assert time.monotonic() - began_s < 10
    assert is_running(int(pid.read_text()))
    os.kill(int(pid.read_text()), 9)


def test_the_webhook_is_sent_the_event_with_its_token(receiver: Receiver) -> None:
    (outcome,) = run_hooks(receiver.config(), event("drill failed"))

    ((method, path, headers, body),) = receiver.requests
    assert outcome == HookOutcome(
        name="failover.webhook.url", ok=True, told="127.0.0.1: answered 200", only_tells=True
    )
    assert (method, path) == ("POST", "/hook/path-word?key=query-word")
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body) == json.loads(event_json(event("drill failed")))


@pytest.mark.parametrize(("status", "ok"), [(204, True), (401, False), (503, False)])
def test_only_an_answer_of_2xx_is_success(receiver: Receiver, status: int, ok: bool) -> None:
    receiver.status = status

    (outcome,) = run_hooks(receiver.config(), event())

    assert (outcome.ok, outcome.told) == (ok, f"127.0.0.1: answered {status}")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_takes_the_token_elsewhere(receiver: Receiver, status: int) -> None:
    receiver.status = status
    receiver.location = f"http://localhost:{receiver.port}/elsewhere"

    (outcome,) = run_hooks(receiver.config(), event())

    assert not outcome.ok
    assert outcome.told == f"127.0.0.1: answered {status}, a redirect, which is not followed"
    assert len(receiver.requests) == 1


def test_a_webhook_that_does_not_answer_is_given_up_in_time(receiver: Receiver) -> None:
    receiver.wait_s = 3.0
    began_s = time.monotonic()

    (outcome,) = run_hooks(receiver.config(timeout_s=1), event())

    assert not outcome.ok
    assert outcome.told.startswith("127.0.0.1: no answer ")
    assert time.monotonic() - began_s < 2.5


def test_no_outcome_of_a_webhook_quotes_its_secrets(receiver: Receiver) -> None:
    port = receiver.port
    receiver.close()
    words = (TOKEN, "path-word", "query-word", "user-word", "spoilt-word")
    urls = (
        f"http://127.0.0.1:{port}/path-word?key=query-word",
        f"http://user-word:query-word@127.0.0.1:{port}/",
        "file:///path-word",
        "http://[::1/path-word",
    )
    tokens = (TOKEN, "spoilt-word\n")

    outcomes = [
        outcome
        for url in urls
        for token in tokens
        for outcome in run_hooks(
            RecoveryConfig(webhook_url=Secret(url), webhook_token=Secret(token)), event()
        )
    ]

    assert len(outcomes) == 8
    assert not any(outcome.ok for outcome in outcomes)
    assert not any(word in outcome.told for outcome in outcomes for word in words)


def test_the_bootstrap_file_names_the_new_primary(tmp_path: Path) -> None:
    path = tmp_path / "primary.properties"
    path.write_text("bootstrap.servers=a1:9092\n")
    path.chmod(0o640)

    (outcome,) = run_hooks(RecoveryConfig(bootstrap_file=str(path)), event())

    assert outcome.ok
    assert outcome.told == f"{path} names B"
    assert path.read_text() == (
        "# B is primary since 2026-01-31T04:03:00Z (after failover, flow A->B)\n"
        "bootstrap.servers=b1:9092,b2:9092\n"
    )
    assert path.stat().st_mode & 0o777 == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["primary.properties"]


def test_whoever_has_the_bootstrap_file_open_reads_the_old_one_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "primary.properties"
    path.write_text("bootstrap.servers=a1:9092\n")

    with path.open() as reader:
        run_hooks(RecoveryConfig(bootstrap_file=str(path)), event())
        read = reader.read()

    assert read == "bootstrap.servers=a1:9092\n"
    assert "b1:9092" in path.read_text()


def test_a_link_to_the_bootstrap_file_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "real.properties", tmp_path / "link.properties"
    real.write_text("bootstrap.servers=a1:9092\n")
    link.symlink_to(real)

    run_hooks(RecoveryConfig(bootstrap_file=str(link)), event())

    assert link.is_symlink()
    assert "bootstrap.servers=b1:9092,b2:9092\n" in real.read_text()


def test_a_bootstrap_file_that_cannot_be_written_is_an_outcome(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "primary.properties"

    (outcome,) = run_hooks(RecoveryConfig(bootstrap_file=str(path)), event())

    assert not outcome.ok
    assert outcome.told == f"{path}: No such file or directory"


def every_hook(receiver: Receiver, path: Path) -> RecoveryConfig:
    return receiver.config().model_copy(
        update={
            "before_command": "true",
            "after_command": "false",
            "bootstrap_file": str(path / "primary"),
        }
    )


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("before failover", ["failover.before.command", "failover.webhook.url"]),
        (
            "after failover",
            ["failover.bootstrap.file", "failover.after.command", "failover.webhook.url"],
        ),
        (
            "after failback",
            ["failover.bootstrap.file", "failover.after.command", "failover.webhook.url"],
        ),
        ("drill failed", ["failover.webhook.url"]),
        ("audit differs", ["failover.webhook.url"]),
    ],
)
def test_each_event_sets_off_its_hooks_and_none_keeps_the_next_from_running(
    receiver: Receiver, tmp_path: Path, what: What, names: list[str]
) -> None:
    outcomes = run_hooks(every_hook(receiver, tmp_path), event(what))

    assert [outcome.name for outcome in outcomes] == names
    failed = [outcome.name for outcome in outcomes if not outcome.ok]
    assert failed == [name for name in names if name == "failover.after.command"]


def test_no_hooks_are_no_outcomes() -> None:
    assert run_hooks(RecoveryConfig(), event()) == ()
