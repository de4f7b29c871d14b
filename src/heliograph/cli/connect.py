"""`heliograph connect`: a worker of Kafka Connect for MirrorMaker 2's connectors. Driver only."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Final

import typer

from heliograph.api.worker_server import serve_worker
from heliograph.cli.options import File
from heliograph.cli.output import start_logging
from heliograph.cli.run import stop_signals
from heliograph.config.load import real_environment
from heliograph.connect.worker import ConnectWorker
from heliograph.connect.worker_file import WorkerFile, read_worker_file
from heliograph.driver.stop import StopRequest

log = logging.getLogger("heliograph")

CONNECT_HELP: Final = """Mirror what connectors say, as a worker of Kafka Connect does.

FILE is a connect-distributed.properties: its cluster keeps the connectors, in
`config.storage.topic`; its `listeners` or `rest.port` say where Connect's REST API answers
(127.0.0.1:8083 unless a host is named). MirrorSourceConnector, MirrorCheckpointConnector and
MirrorHeartbeatConnector are POSTed there and mirrored on Spark, to as many targets as they name.
Keys without a meaning here are noted.

Ctrl-C or SIGTERM drains and ends the worker; the next one goes on with the same connectors.
Several workers may share a topic: one leads each flow, the others stand by.

Examples:

  heliograph connect connect-distributed.properties

  curl -X PUT -H 'Content-Type: application/json' --data @mm2-msc.json
  localhost:8083/connectors/mm2-msc/config
"""


def connect(
    file: File,
    master: Annotated[
        str | None,
        typer.Option("--master", help="Spark master; overrides the file. Default: local[*]."),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("--slots", min=1, help="Spark tasks that carry lanes.")
    ] = None,
) -> None:
    start_logging()
    around = real_environment()
    worker = read_worker_file(
        file, around, given={"master": master, "slots": None if slots is None else str(slots)}
    )
    for note in worker.notes:
        log.info("%s", note)
    with stop_signals() as stop:
        asyncio.run(_work(worker, stop))


async def _work(file: WorkerFile, stop: StopRequest) -> None:
    worker = ConnectWorker(file, real_environment(), stop)
    async with serve_worker(file.config.api, worker):
        await worker.run()
