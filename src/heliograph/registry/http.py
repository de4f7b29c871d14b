"""Requests to a schema registry: bounded in bytes and time, tried again, no redirects. Blocks.

Runs on the driver and, on threads of their own, on executors.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.request import HTTPHandler, HTTPSHandler, OpenerDirector, ProxyHandler, Request

from heliograph.clock import monotonic_s
from heliograph.config.clients import ssl_context
from heliograph.config.registry import RegistryConfig
from heliograph.errors import RegistryDown, RegistryError

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
TRIES: Final = 3
_PAUSE_S: Final = 0.2
_PIECE_BYTES: Final = 64 * 1024
_BUSY: Final = (408, 429, 500, 502, 503, 504)
"""What another try may find gone; a registry that moves its leader says 500."""
_REFUSED: Final = (401, 403)
_WHY_CHARS_MAX: Final = 300
_TYPE: Final = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes


class RegistryHttp:
    """Asks one registry at whichever of its addresses answers. Threads may share it."""

    def __init__(
        self, where: str, config: RegistryConfig, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.where, self._config, self._sleep = where, config, sleep
        self._opener = _opener(config)
        self._first = 0

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """What it answers, as JSON. Raises `RegistryError` of the status it answered with."""
        answer = self._answer(method, path, None if body is None else json.dumps(body).encode())
        try:
            found = json.loads(answer.body) if answer.body else None
        except ValueError as exc:
            said = f"answered {answer.status} with something that is not JSON"
            raise RegistryError(self.where, said, answer.status) from exc
        if 200 <= answer.status < 300:
            return found
        raise self._refusal(answer.status, found)

    def _answer(self, method: str, path: str, body: bytes | None) -> Answer:
        """The first that is no sign of trouble; else the last one's trouble."""
        urls, why = self._config.urls, ""
        for number in range(TRIES * len(urls)):
            if number and number % len(urls) == 0:
                self._sleep(_PAUSE_S * 2 ** (number // len(urls) - 1))
            at = (self._first + number) % len(urls)
            try:
                answer = self._send(method, urls[at] + path, body)
            except (OSError, HTTPException) as exc:
                why = _why(exc)
                continue
            if answer.status not in _BUSY:
                self._first = at
                return answer
            why = f"answers {answer.status}"
            said = _message(answer.body)
            if said:
                why += f" ({said})"
        raise RegistryDown(self.where, f"does not serve: {why}")

    def _send(self, method: str, url: str, body: bytes | None) -> Answer:
        due_s = monotonic_s() + self._config.timeout_ms / 1000
        request = Request(url, data=body, headers={"Accept": f"{_TYPE}, */*"}, method=method)
        if body is not None:
            request.add_header("Content-Type", _TYPE)
        if self._config.token is not None:
            request.add_header("Authorization", f"Bearer {self._config.token.reveal()}")
        elif self._config.user_info is not None:
            coded = base64.b64encode(self._config.user_info.reveal().encode()).decode()
            request.add_header("Authorization", f"Basic {coded}")
        with self._opener.open(request, timeout=self._config.timeout_ms / 1000) as answer:
            pieces, size = [], 0
            while piece := answer.read1(_PIECE_BYTES):
                size += len(piece)
                if size > ANSWER_BYTES_MAX:
                    raise RegistryError(
                        self.where, f"answers with more than {ANSWER_BYTES_MAX} bytes"
                    )
                if monotonic_s() > due_s:
                    # One that sends a byte now and then never meets the socket's own limit.
                    raise TimeoutError
                pieces.append(piece)
            return Answer(answer.status, b"".join(pieces))

    def _refusal(self, status: int, found: Any) -> RegistryError:
        fields = found if isinstance(found, dict) else {}
        code = fields.get("error_code")
        said = _printable(str(fields.get("message") or ""))
        if status in _REFUSED:
            why = f"refuses the credentials or the permission ({status})"
        elif 300 <= status < 400:
            why = f"answers {status} and names another address, which is not followed"
        else:
            why = f"answers {status}" + (f": {said}" if said else "")
        return RegistryError(self.where, why, status, code if type(code) is int else 0)


def _opener(config: RegistryConfig) -> OpenerDirector:
    """No file: or ftp: URLs, and no redirects, which would take credentials to another host."""
    opener = OpenerDirector()
    opener.add_handler(ProxyHandler())
    opener.add_handler(HTTPHandler())
    if any(url.startswith("https") for url in config.urls):
        opener.add_handler(HTTPSHandler(context=ssl_context(config.tls)))
    return opener


def _message(body: bytes) -> str:
    try:
        found = json.loads(body)
    except ValueError:
        return ""
    return _printable(str(found.get("message") or "")) if isinstance(found, dict) else ""


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)[:_WHY_CHARS_MAX].strip()


def _why(exc: OSError | HTTPException) -> str:
    """Without the address, which the place names already."""
    reason = getattr(exc, "reason", None)
    for one in (reason, exc):
        if isinstance(one, TimeoutError):
            return "no answer in time"
        if isinstance(one, OSError) and one.strerror:
            return one.strerror
    return type(exc).__name__
