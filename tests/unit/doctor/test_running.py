"""What a running driver tells of its pace, over its REST server."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from heliograph.config.api import Address, ApiConfig
from heliograph.doctor.running import paces_of
from tests.unit.api.pretend import AB, BA, CONFIG

MIB = 2**20


def lane(flow: str, **fields: Any) -> dict[str, Any]:
    return {
        "flow": flow,
        "state": "copying",
        "lag_records": 7,
        "bytes_per_s": 1e6,
        "received_bytes": 100 * MIB,
        "bytes": 36 * MIB,
        **fields,
    }


LANES = [lane("A->B"), lane("A->B", state="idle", lag_records=0)]


class Driver(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        rows = {"lanes": LANES} if self.path.startswith("/v1/lanes") else {"slots": [{"pid": 0}]}
        body = json.dumps(rows).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is said on stderr."""


@pytest.fixture
def address() -> Iterator[Address]:
    with http.server.HTTPServer(("127.0.0.1", 0), Driver) as server:
        serving = threading.Thread(target=server.serve_forever, daemon=True)
        serving.start()
        yield Address("127.0.0.1", server.server_address[1])
        server.shutdown()
        serving.join()


def paces(listen: Address | None) -> Any:
    return paces_of(CONFIG.model_copy(update={"api": ApiConfig(listen=listen)}))


def test_lanes_of_each_flow_are_summed(address: Address) -> None:
    found = paces(address)

    assert (found[AB].lag_records, found[AB].bytes_per_s) == (7, 2e6)
    assert found[AB].held_share == 0.5  # twice 64 MiB of 256 MiB in one slot
    assert found[AB].busiest_slot is None
    assert found[BA].why_not == "the driver at api.listen has no lane of it"


def test_a_driver_that_wants_a_token_is_said_to(
    address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Driver, "status", 401)

    assert paces(address)[AB].why_not == f"{address} answered 401; its API needs a token"


def test_no_driver_is_no_figure() -> None:
    assert paces(None)[AB].why_not == "api.listen is not set"
    assert paces(Address("127.0.0.1", 1))[AB].why_not == "no driver answers at 127.0.0.1:1"
