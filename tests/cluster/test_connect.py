"""`heliograph connect`: a guide's three connector files, over HTTP, between real clusters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.clusters import TopicNames
from tests.kit.connecting import Worker, connect_worker, free_port, write_worker_file
from tests.kit.mirror import lasting_topic
from tests.kit.records import end_offsets, numbered, produce, read_all
from tests.kit.topics import create_topic, wait_until
from tests.unit.connect.files import guide_files

_RECORDS = 300


def _await_copies(cluster: LocalCluster, topic: str, count: int) -> None:
    wait_until(
        lambda: sum(end_offsets(cluster, topic).values()) >= count,
        f"{count} records of {topic}",
        timeout_s=60,
    )


def _kafbat_looks(worker: Worker, name: str) -> dict[str, int]:
    """Every GET of Kafbat's contract and of kcctl."""
    one = f"/connectors/{name}"
    paths = [
        "/",
        "/connectors",
        "/connectors?expand=status&expand=info",
        one,
        f"{one}/config",
        f"{one}/status",
        f"{one}/tasks",
        f"{one}/tasks/0/status",
        f"{one}/topics",
        f"{one}/offsets",
        "/connector-plugins",
        "/connector-plugins?connectorsOnly=false",
        "/connector-plugins/MirrorSourceConnector/config",
        "/admin/loggers",
        "/admin/loggers/root",
        "/health",
        "/v1/flows",
    ]
    return {path: worker.call("GET", path)[0] for path in paths}


def _offset(alias: str, topic: str, offset: int | None) -> dict[str, Any]:
    partition = {"cluster": alias, "topic": topic, "partition": 0}
    return {"partition": partition, "offset": None if offset is None else {"offset": offset}}


def test_the_files_of_a_guide_are_put_paused_stopped_rewound_and_deleted(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = lasting_topic(pair["A"], topic("connect"), partitions=1)
    number = name.rpartition("-")[2]
    source, target = f"coA{number}", f"coB{number}"
    produce(pair["A"], name, numbered(_RECORDS))
    files = guide_files(
        pair["A"].bootstrap, pair["B"].bootstrap, source_alias=source, target_alias=target
    )
    # Of clusters that other tests use too, this one topic and no heartbeats of theirs.
    msc = {**files["mm2-msc"], "topics": f"^{name}$", "heartbeats.replication.enabled": False}
    port = free_port()
    file = write_worker_file(tmp_path / "connect.properties", pair["B"], number, port)
    offsets = "/connectors/mm2-msc/offsets"

    with connect_worker(file, port) as worker:
        empty = worker.call("GET", "/connectors")
        validated = worker.call(
            "PUT", "/connector-plugins/MirrorSourceConnector/config/validate", msc
        )
        put = [
            worker.call("PUT", f"/connectors/{each}/config", config)[0]
            for each, config in {**files, "mm2-msc": msc}.items()
        ]
        again = worker.call("POST", "/connectors", {"name": "mm2-msc", "config": msc})
        status = worker.await_state("mm2-msc", "RUNNING", "RUNNING")
        _await_copies(pair["B"], name, _RECORDS)
        for each in ("mm2-cpc", "mm2-hbc"):
            worker.await_state(each, "RUNNING", "RUNNING")
        looks = _kafbat_looks(worker, "mm2-msc")
        topics = worker.call("GET", "/connectors/mm2-msc/topics")[1]
        tasks = worker.call("GET", "/connectors/mm2-msc/tasks")[1]
        too_soon = worker.call("PATCH", offsets, {"offsets": [_offset(source, name, 9)]})

        # One of a cluster that is not there fails by itself, with a sentence.
        nowhere = {
            **msc,
            "name": "nowhere",
            "source.cluster.alias": f"no{number}",
            "source.cluster.bootstrap.servers": f"127.0.0.1:{free_port()}",
        }
        added = worker.call("PUT", "/connectors/nowhere/config", nowhere)
        assert added[0] == 201, added
        failed = worker.await_state("nowhere", "FAILED")
        beside = worker.await_state("mm2-msc", "RUNNING", "RUNNING")
        removed = worker.call("DELETE", "/connectors/nowhere")[0]

        stopped = worker.call("PUT", "/connectors/mm2-msc/stop")[0]
        after_stop = worker.call("GET", "/connectors/mm2-msc/status")[1]
        before = worker.call("GET", offsets)[1]
        strange = worker.call("PATCH", offsets, {"offsets": [_offset(source, "no", 9)]})
        beyond = worker.call("PATCH", offsets, {"offsets": [_offset(source, name, 10**6)]})
        altered = worker.call("PATCH", offsets, {"offsets": [_offset(source, name, 199)]})
        resumed = worker.call("PUT", "/connectors/mm2-msc/resume")[0]
        _await_copies(pair["B"], name, _RECORDS + 100)
        restarted = worker.call("POST", "/connectors/mm2-msc/restart?includeTasks=true")

        paused = worker.call("PUT", "/connectors/mm2-msc/pause")[0]
        worker.await_state("mm2-msc", "PAUSED", "PAUSED")
        code = worker.stop()
        said = worker.said

    produce(pair["A"], name, numbered(50, start=_RECORDS))
    with connect_worker(file, port) as worker:
        still = worker.await_state("mm2-msc", "PAUSED", "PAUSED")
        deleted = worker.call("DELETE", "/connectors/mm2-msc")[0]
        gone = worker.call("GET", "/connectors/mm2-msc")
        left = worker.call("GET", "/connectors")[1]
        worker.stop()

    copied = [record.value for record in read_all(pair["B"], name)[0]]
    values = [record.value for record in read_all(pair["A"], name)[0]][:_RECORDS]
    assert copied == [*values, *values[200:]]
    assert empty == (200, [])
    assert (validated[0], validated[1]["error_count"]) == (200, 0)
    assert put == [201, 201, 201]
    assert again == (409, {"error_code": 409, "message": "Connector mm2-msc already exists"})
    assert status["type"] == "source"
    assert set(looks.values()) == {200}, looks
    assert topics == {"mm2-msc": {"topics": [name]}}
    assert tasks[0]["config"]["task.assigned.partitions"] == f"{name}-0"
    assert too_soon[0] == 400
    assert removed == 204
    assert f"no{number}" in failed["connector"]["trace"]
    assert "trace" not in beside["connector"]
    assert (stopped, resumed, paused, restarted[0]) == (204, 202, 202, 202)
    assert (after_stop["connector"]["state"], after_stop["tasks"]) == ("STOPPED", [])
    assert before == {"offsets": [_offset(source, name, _RECORDS - 1)]}
    assert strange[0] == 400
    assert "has mirrored nothing of no-0" in strange[1]["message"]
    assert beyond[0] == 400
    assert altered == (
        200,
        {"message": "The offsets for this connector have been altered successfully"},
    )
    assert code == 0
    assert "connector mm2-msc: clusters: is unknown and does nothing, as in Connect" in said
    assert still["connector"]["state"] == "PAUSED"
    assert (deleted, gone[0]) == (204, 404)
    assert sorted(left) == ["mm2-cpc", "mm2-hbc"]


def test_a_topic_that_would_forget_connectors_is_refused(
    pair: dict[str, LocalCluster], topic: TopicNames, tmp_path: Path
) -> None:
    name = topic("forgetful")
    create_topic(pair["B"], f"connect-configs-{name}")
    file = write_worker_file(tmp_path / "connect.properties", pair["B"], name, free_port())

    ended = subprocess.run(
        [sys.executable, "-m", "heliograph", "connect", str(file)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )

    assert ended.returncode == 1, ended.stderr
    (sentence,) = (line for line in ended.stderr.splitlines() if line.startswith("heliograph: "))
    assert f"connect-configs-{name}" in sentence
    assert "Traceback" not in ended.stderr
