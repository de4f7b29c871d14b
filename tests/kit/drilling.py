"""A flow of its own on the shared clusters, to be drilled, and somebody who hears its alarms."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

from heliograph.broker.group_view import is_shadow
from heliograph.broker.groups import GroupAdmin
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.ledger.drill_note import LastDrill, last_of
from heliograph.ledger.service import LedgerService
from heliograph.model import ClusterAlias, FlowId
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.groups import commit
from tests.kit.mirror import RECORDS_ONLY, write_config

Pair = dict[str, LocalCluster]
WITH_CHECKPOINTS: Final = {
    **RECORDS_ONLY,
    "emit.checkpoints.enabled": "true",
    "checkpoints.topic.replication.factor": "1",
}


@dataclass(slots=True, kw_only=True)
class Scene:
    """One flow under aliases of its own between the shared clusters, one topic, one group."""

    pair: Pair
    file: Path
    flow: FlowId
    orders: str
    group: str

    @property
    def config(self) -> MirrorConfig:
        return load_config(self.file)

    @property
    def copy(self) -> str:
        return f"{self.flow.source}.{self.orders}"

    def at_source(self, offsets: dict[int, int], *, group: str = "", topic: str = "") -> None:
        commit(self.pair["A"], group or self.group, topic or self.orders, offsets)

    def shadows(self) -> list[str]:
        """Those that stand in for groups of this scene."""
        target = GroupAdmin(self.config.target_of(self.flow))
        return [g for g in target.list_groups() if is_shadow(g) and self.group in g]

    def last_drill(self) -> LastDrill | None:
        with closing(LedgerService(self.config.clusters)) as ledgers:
            return ledgers.ask(self.flow, last_of)


def scene_of(pair: Pair, folder: Path, name: str, **settings: str) -> Scene:
    flow = FlowId(source=ClusterAlias(f"{name}A"), target=ClusterAlias(f"{name}B"))
    wanted = {
        "topics": f"{name}-.*",
        "groups": f"{name}-.*",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }
    file = write_config(
        folder / f"{name}.properties",
        {flow.source: pair["A"], flow.target: pair["B"]},
        {str(flow): wanted},
        top=WITH_CHECKPOINTS,
    )
    return Scene(pair=pair, file=file, flow=flow, orders=f"{name}-orders", group=f"{name}-billing")


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and what it was sent."""
    heard: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append(json.loads(body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing on stderr."""

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/alarm", heard
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
