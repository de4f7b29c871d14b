"""`connect-distributed.properties`: what is read, what is noted, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.config.load import real_environment
from heliograph.connect.worker_file import WorkerFile, read_worker_file
from heliograph.errors import ConfigError

AS_SHIPPED = {
    "bootstrap.servers": "localhost:9092",
    "group.id": "connect-cluster",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "offset.storage.topic": "connect-offsets",
    "offset.storage.replication.factor": "1",
    "config.storage.topic": "connect-configs",
    "config.storage.replication.factor": "1",
    "status.storage.topic": "connect-status",
    "offset.flush.interval.ms": "10000",
}


def read(tmp_path: Path, **changes: str | None) -> WorkerFile:
    lines = {**AS_SHIPPED, **{key.replace("_", "."): value for key, value in changes.items()}}
    file = tmp_path / "connect.properties"
    file.write_text("".join(f"{k}={v}\n" for k, v in lines.items() if v is not None))
    return read_worker_file(file, real_environment(), {"slots": "2"})


def test_the_file_that_comes_with_kafka_is_read(tmp_path: Path) -> None:
    found = read(tmp_path)

    assert found.cluster.bootstrap_servers == ("localhost:9092",)
    assert (found.config_topic, found.replication_factor) == ("connect-configs", 1)
    assert str(found.config.api.listen) == "127.0.0.1:8083"
    assert (found.config.flows, found.config.engine.slots) == ((), 2)
    assert any("key.converter: does nothing here" in note for note in found.notes)
    assert all(note.startswith("line ") for note in found.notes)


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({"rest_port": "9999"}, "127.0.0.1:9999"),
        ({"listeners": "HTTP://:8084"}, "127.0.0.1:8084"),
        ({"listeners": "http://localhost:8085,https://x:1"}, "localhost:8085"),
        ({"listeners": "http://[::1]:8086", "rest_port": "1"}, "[::1]:8086"),
    ],
)
def test_it_listens_where_connect_would_on_this_machine(
    tmp_path: Path, changes: dict[str, str], address: str
) -> None:
    assert str(read(tmp_path, **changes).config.api.listen) == address


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"config_storage_topic": None}, "config.storage.topic: missing"),
        ({"group_id": ""}, "group.id: missing"),
        ({"bootstrap_servers": None}, "bootstrap.servers: missing"),
        ({"bootstrap_servers": "nowhere"}, "bootstrap.servers: is `nowhere`"),
        ({"config_storage_replication_factor": "x"}, "config.storage.replication.factor: is `x`"),
        ({"listeners": "8083"}, "listeners: is `8083`, not a list such as"),
        ({"listeners": "https://localhost:1"}, "needs `api.tls.certificate`"),
        ({"listeners": "http://0.0.0.0:8083"}, "listeners: is 0.0.0.0:8083, which other machines"),
        ({"rest_port": "x"}, "rest.port: is `127.0.0.1:x`"),
        ({"topic_tracking_enable": "maybe"}, "topic.tracking.enable: is `maybe`"),
        ({"security_protocol": "NONE"}, "security.protocol: is `NONE`"),
        ({"slots_cpus": "x"}, "slots.cpus: is `x`"),
    ],
)
def test_a_mistake_is_told_by_its_key(
    tmp_path: Path, changes: dict[str, str | None], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, **changes)

    assert sentence in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_worker_file(tmp_path / "none", real_environment())


def test_tracking_of_topics_is_heeded(tmp_path: Path) -> None:
    found = read(tmp_path, topic_tracking_enable="false", topic_tracking_allow_reset="false")

    assert (found.tracks_topics, found.allows_topic_reset) == (False, False)
