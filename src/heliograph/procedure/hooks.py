"""Tell the world outside Kafka of a failover or alarms: commands, webhook, file. Driver only.

A hook that fails is an outcome, never an exception: the failover it belongs to is done or half
done by then, and whether to go on is its caller's decision.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.config.secrets import Secret
from heliograph.config.sections import RecoveryConfig
from heliograph.model import ClusterAlias, FlowId

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
What = Literal[
    "before failover", "after failover", "after failback", "drill failed", "audit differs", "alarms"
]

OUTPUT_BYTES_MAX: Final = 4_096
OUTPUT_LINES_MAX: Final = 5
_ANSWER_BYTES_MAX: Final = 4_096
_DRAIN_S: Final = 0.5
_PRIMARY_CHANGED: Final = ("after failover", "after failback")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEvent:
    what: What
    flow: FlowId
    at_ms: int
    primary: ClusterAlias
    """The cluster clients belong to once this event is over."""
    bootstrap_servers: tuple[str, ...]
    """Of the primary."""
    detail: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOutcome:
    name: str
    """The configuration key of the hook."""
    ok: bool
    told: str
    """One sentence, and the last lines a command printed."""
    only_tells: bool = False
    """Whether nothing waits for it: a chat that is down must not hold up a failover."""

    @property
    def is_in_the_way(self) -> bool:
        return not (self.ok or self.only_tells)


def hook_event(
    config: MirrorConfig,
    flow: FlowId,
    what: What,
    *,
    primary: ClusterAlias,
    detail: Mapping[str, Json],
) -> HookEvent:
    """What happened, now."""
    return HookEvent(
        what=what,
        flow=flow,
        at_ms=now_ms(),
        primary=primary,
        bootstrap_servers=config.clusters[primary].bootstrap_servers,
        detail=detail,
    )


def hooks_told(outcomes: Iterable[HookOutcome]) -> str:
    return "; ".join(f"{hook.name}: {hook.told}" for hook in outcomes)


def run_hooks(config: RecoveryConfig, event: HookEvent) -> tuple[HookOutcome, ...]:
    """Every hook the event sets off, one after the other, whether or not the one before failed.

    Blocks, each hook for `hook_timeout_s` at most: call it beside an event loop, not in it.
    """
    outcomes: list[HookOutcome] = []
    if config.before_command is not None and event.what == "before failover":
        outcomes.append(
            run_command(
                "failover.before.command", config.before_command, config.hook_timeout_s, event
            )
        )
    if event.what in _PRIMARY_CHANGED:
        # The file first: a command may be about to make clients read it.
        if config.bootstrap_file is not None:
            outcomes.append(_write_bootstrap(Path(config.bootstrap_file), event))
        if config.after_command is not None:
            outcomes.append(
                run_command(
                    "failover.after.command", config.after_command, config.hook_timeout_s, event
                )
            )
    if config.webhook_url is not None:
        webhook = Webhook(config.webhook_url, config.webhook_token, config.hook_timeout_s)
        outcomes.append(post("failover.webhook.url", webhook, event))
    return tuple(outcomes)


def event_json(event: HookEvent) -> bytes:
    """What commands read and the webhook is sent."""
    fields = {
        "v": 1,
        "event": event.what,
        "flow": str(event.flow),
        "at_ms": event.at_ms,
        "primary": event.primary,
        "bootstrap_servers": list(event.bootstrap_servers),
        "detail": dict(event.detail),
    }
    return json.dumps(fields).encode()


def run_command(name: str, command: str, timeout_s: int, event: HookEvent) -> HookOutcome:
    """Run it with the event on its stdin; kills it after the time. Blocks."""
    began_s = monotonic_s()
    # A file and not a pipe: a command that never reads its input must not keep us writing.
    with tempfile.TemporaryFile() as stdin:
        stdin.write(event_json(event))
        stdin.seek(0)
        try:
            child = subprocess.Popen(
                shlex.split(command),
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=_environment(event),
                start_new_session=True,
            )
        except (OSError, ValueError) as exc:
            return HookOutcome(name=name, ok=False, told=f"cannot be run: {_why(exc)}")
    output = _Tail(child)
    try:
        status = child.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        told = f"did not end in {timeout_s} s and was killed"
        return HookOutcome(name=name, ok=False, told=told + output.last_lines())
    seconds = monotonic_s() - began_s
    ended = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    told = f"{ended} after {seconds:.1f} s{output.last_lines()}"
    return HookOutcome(name=name, ok=status == 0, told=told)


def _environment(event: HookEvent) -> dict[str, str]:
    """Nothing of our own environment but where to look: the rest may hold the file's secrets."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {
        **kept,
        "HELIOGRAPH_EVENT": event.what,
        "HELIOGRAPH_FLOW": str(event.flow),
        "HELIOGRAPH_PRIMARY": event.primary,
        "HELIOGRAPH_BOOTSTRAP": ",".join(event.bootstrap_servers),
    }


class _Tail:
    """The end of what a child prints, read as it comes so that it never waits for us."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        self._pipe = child.stdout
        self._kept = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def last_lines(self) -> str:
        # What the child left running may hold the pipe open for days; it is not waited for.
        self._thread.join(_DRAIN_S)
        text = self._kept.decode("utf-8", "replace")
        # Escape sequences would reach the operator's terminal.
        lines = ["".join(c for c in line if c.isprintable()) for line in text.splitlines()]
        last = [line.strip() for line in lines if line.strip()][-OUTPUT_LINES_MAX:]
        return "" if not last else ": " + " / ".join(last)

    def _read(self) -> None:
        with self._pipe:
            while chunk := os.read(self._pipe.fileno(), 65_536):
                self._kept = (self._kept + chunk)[-OUTPUT_BYTES_MAX:]


@dataclass(frozen=True, slots=True)
class Webhook:
    url: Secret
    token: Secret | None
    timeout_s: int


def post(name: str, webhook: Webhook, event: HookEvent) -> HookOutcome:
    """In a thread of its own: neither name lookups nor slow answers keep to a socket's timeout."""
    answers: list[tuple[bool, str]] = []
    thread = threading.Thread(
        target=lambda: answers.append(_posted(webhook, event_json(event))), daemon=True
    )
    thread.start()
    thread.join(webhook.timeout_s)
    ok, told = answers[0] if answers else (False, f"no answer within {webhook.timeout_s} s")
    return HookOutcome(name=name, ok=ok, told=f"{_host(webhook)}: {told}", only_tells=True)


def _host(webhook: Webhook) -> str:
    """All that may be told of the address: path and query are often a password."""
    with suppress(ValueError):
        return urlsplit(webhook.url.reveal()).hostname or "webhook"
    return "webhook"


def _posted(webhook: Webhook, body: bytes) -> tuple[bool, str]:
    headers = {"Content-Type": "application/json", "User-Agent": "heliograph"}
    if webhook.token is not None:
        headers["Authorization"] = f"Bearer {webhook.token.reveal()}"
    # These handlers alone: no file: or ftp: URLs, and no redirects, which would take the token to
    # another host and turn the POST into a GET.
    opener = OpenerDirector()
    for handler in (ProxyHandler(), HTTPHandler(), HTTPSHandler()):
        opener.add_handler(handler)
    try:
        request = Request(webhook.url.reveal(), data=body, headers=headers, method="POST")
        answer = opener.open(request, timeout=webhook.timeout_s)
        if answer is None:
            return False, "neither http nor https"
        with answer:
            answer.read(_ANSWER_BYTES_MAX)
            status = int(answer.status)
    except (OSError, HTTPException, ValueError) as exc:
        return False, _why(exc)
    if 300 <= status < 400:
        return False, f"answered {status}, a redirect, which is not followed"
    return 200 <= status < 300, f"answered {status}"


def _why(exc: Exception) -> str:
    """Never the exception's own text: it may quote the address or the token."""
    inner = getattr(exc, "reason", None)
    if isinstance(inner, TimeoutError) or isinstance(exc, TimeoutError):
        return "no answer in time"
    for one in (inner, exc):
        if isinstance(one, OSError) and one.strerror:
            return one.strerror
    return type(exc).__name__


def _write_bootstrap(path: Path, event: HookEvent) -> HookOutcome:
    """Replace the file in one step: whoever reads it sees the old or the new, never half."""
    name = "failover.bootstrap.file"
    at = datetime.fromtimestamp(event.at_ms / 1000, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    text = (
        f"# {event.primary} is primary since {at} ({event.what}, flow {event.flow})\n"
        f"bootstrap.servers={','.join(event.bootstrap_servers)}\n"
    )
    try:
        # Through a link, or the link itself would be replaced.
        real = path.resolve()
        mode = real.stat().st_mode & 0o777 if real.exists() else 0o644
        descriptor, temporary = tempfile.mkstemp(dir=real.parent, prefix=f".{real.name}.")
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            Path(temporary).replace(real)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        _sync_directory(real.parent)
    except OSError as exc:
        return HookOutcome(name=name, ok=False, told=f"{path}: {_why(exc)}")
    return HookOutcome(name=name, ok=True, told=f"{path} names {event.primary}")


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
