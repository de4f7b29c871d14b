from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from heliograph.config.metrics import MetricsConfig
from heliograph.config.secrets import Secret
from heliograph.metrics.push import push_service
from tests.unit.api.pretend import live

PASSWORD = "hunter2"


@contextmanager
def collector(status: int) -> Iterator[tuple[str, list[str]]]:
    """Its URL with a password in it, and the Authorization headers it was shown."""
    shown: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            shown.append(self.headers["Authorization"])
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/{PASSWORD}", shown
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def push(url: str) -> None:
    settings = MetricsConfig(otlp_endpoint=Secret(url), otlp_token=Secret("t" * 9))

    async def served() -> None:
        async with push_service(settings)(live()):
            pass

    asyncio.run(served())


def test_the_last_figures_are_posted_when_the_mirror_ends() -> None:
    with collector(200) as (url, shown):
        push(url)

    assert shown == ["Bearer " + "t" * 9]


@pytest.mark.parametrize(
    ("status", "said"), [(503, "the collector answered 503"), (302, "the collector answered 302")]
)
def test_a_collector_that_refuses_or_redirects_is_said_without_its_address(
    status: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), collector(status) as (url, shown):
        push(url)

    assert said in caplog.text
    assert PASSWORD not in caplog.text and len(shown) == 1


def test_a_collector_that_is_not_there_holds_nothing_up(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        push(f"http://127.0.0.1:1/{PASSWORD}")

    assert "metrics.otlp.endpoint" in caplog.text and PASSWORD not in caplog.text
