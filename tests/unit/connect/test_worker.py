"""What a worker mirrors, by what its topic says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from heliograph.broker.records import Record
from heliograph.config.load import real_environment
from heliograph.config.schema import MirrorConfig
from heliograph.connect import worker as module
from heliograph.connect.model import Connector, TargetState
from heliograph.connect.problems import ConnectProblem
from heliograph.connect.store import Kept
from heliograph.connect.worker import ConnectWorker
from heliograph.connect.worker_file import read_worker_file
from heliograph.driver.changes import ConfigChanges
from heliograph.driver.stop import StopRequest
from tests.unit.connect.files import connector, guide_connectors, guide_files
from tests.unit.connect.test_worker_file import AS_SHIPPED


class Topic:
    """The records, without a cluster."""

    cluster_id = "x"

    def __init__(self, *_: object, **__: object) -> None:
        self._kept = Kept()

    @property
    def connectors(self) -> tuple[Connector, ...]:
        return self._kept.connectors

    async def write(self, records: Sequence[Record]) -> None:
        for record in records:
            self._kept.apply(record.key, record.value)


async def at_once(_: ConfigChanges) -> None:
    """There is no mirror to wait for."""


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ConnectWorker:
    monkeypatch.setattr(module, "ConnectorTopic", Topic)
    monkeypatch.setattr(ConfigChanges, "followed", at_once)
    file = tmp_path / "connect.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in AS_SHIPPED.items()))
    around = real_environment()
    return ConnectWorker(read_worker_file(file, around), around, StopRequest())


def told(worker: ConnectWorker) -> MirrorConfig:
    config = worker._changes._offered
    assert config is not None
    return config


def put_all(worker: ConnectWorker, *connectors: Connector) -> None:
    async def put() -> None:
        for each in connectors:
            await worker.put(each)

    asyncio.run(put())


def want(worker: ConnectWorker, name: str, state: TargetState) -> None:
    (found,) = (each for each in worker.connectors() if each.name == name)
    asyncio.run(worker.want(found, state, "ann"))


def test_connectors_are_mirrored_while_they_are_wanted(worker: ConnectWorker) -> None:
    put_all(worker, *guide_connectors())
    running = told(worker)
    want(worker, "mm2-msc", TargetState.PAUSED)
    paused = told(worker)
    want(worker, "mm2-msc", TargetState.STARTED)
    again = told(worker)
    want(worker, "mm2-hbc", TargetState.STOPPED)

    assert [str(flow.id) for flow in running.flows] == ["msksource->mskdest"]
    assert paused.flows == ()
    assert any(pair.heartbeats.enabled for pair in paused.pairs)
    assert again == running
    assert not any(pair.heartbeats.enabled for pair in told(worker).pairs)


def test_what_is_deleted_is_not_mirrored(worker: ConnectWorker) -> None:
    (source, *_) = guide_connectors()
    put_all(worker, source)

    asyncio.run(worker.delete(source))

    assert (worker.connectors(), told(worker).flows) == ((), ())


def test_a_connector_that_the_topic_has_and_cannot_run_says_why(worker: ConnectWorker) -> None:
    bad = connector("bad", {**guide_files()["mm2-msc"], "tasks.max": "many"})

    put_all(worker, bad)

    assert worker.problems() == {"bad": "tasks.max: is `many`, not a whole number"}
    with pytest.raises(ConnectProblem, match="not a whole number"):
        worker.config_for(bad)


def test_a_stopped_connector_has_its_flow_for_offsets_and_binds_no_other(
    worker: ConnectWorker,
) -> None:
    put_all(worker, *guide_connectors())
    want(worker, "mm2-msc", TargetState.STOPPED)
    (stopped, *_) = worker.connectors()
    moved = {**guide_files()["mm2-msc"], "target.cluster.alias": "C"}
    moved["source.cluster.bootstrap.servers"] = "127.0.0.1:9"

    assert worker.config_for(stopped).flow(stopped.flow).enabled
    # The checkpoint and heartbeat connector still say where the source is.
    assert worker.errors_of(connector("moved", moved))
    want(worker, "mm2-cpc", TargetState.STOPPED)
    want(worker, "mm2-hbc", TargetState.STOPPED)
    assert worker.errors_of(connector("moved", moved)) == {}


def test_the_base_of_the_file_is_in_every_configuration(worker: ConnectWorker) -> None:
    put_all(worker, *guide_connectors())

    config = told(worker)

    assert str(config.api.listen) == "127.0.0.1:8083"
    (target,) = (flow.id.target for flow in config.flows)
    assert config.clusters[target].worker.offset_storage_topic == "connect-offsets"
