"""Clusters on this machine start, survive a broker's death, and leave nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner

from heliograph.errors import LocalClusterError
from heliograph_tools.cli.local import local
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, start_clusters
from heliograph_tools.localkafka.kafka import cache_folder
from tests.kit.clusters import ClusterFactory, is_alive
from tests.kit.records import numbered, produce, read_all
from tests.kit.topics import admin_of, create_topic, wait_until

SMALL_MB = 256


def test_a_broker_killed_and_started_again_has_its_port_and_records(
    clusters: ClusterFactory,
) -> None:
    cluster = clusters(ClusterSpec(alias="A", heap_mb=SMALL_MB))["A"]
    create_topic(cluster, "orders")
    produce(cluster, "orders", numbered(100))
    bootstrap, pid = cluster.bootstrap, cluster.broker(0).pid

    cluster.kill_broker(0, signal.SIGKILL)
    dead = not is_alive(pid)
    cluster.start_broker(0)

    assert dead
    assert (cluster.bootstrap, cluster.broker(0).pid != pid) == (bootstrap, True)
    assert len(read_all(cluster, "orders")[0]) == 100


def test_three_brokers_go_on_without_one_of_them(clusters: ClusterFactory) -> None:
    cluster = clusters(ClusterSpec(alias="A", brokers=3, heap_mb=SMALL_MB))["A"]
    create_topic(cluster, "orders", partitions=3, replicas=3)

    cluster.kill_broker(0)
    produce(cluster, "orders", numbered(30, partitions=3))

    found = read_all(cluster, "orders")
    assert [len(found[partition]) for partition in range(3)] == [10, 10, 10]


def test_secured_clusters_let_in_who_has_credentials_and_nobody_else(
    clusters: ClusterFactory,
) -> None:
    users = {"alice": "alice-secret"}
    made = clusters(
        ClusterSpec(
            alias="T",
            tls=True,
            mutual_tls=True,
            sasl="SCRAM-SHA-512",
            authorizer=True,
            users=users,
            heap_mb=SMALL_MB,
        ),
        ClusterSpec(alias="P", sasl="PLAIN", users=users, heap_mb=SMALL_MB),
    )
    for cluster in made.values():
        create_topic(cluster, "orders")
        produce(cluster, "orders", numbered(10))
    refused = {alias: refusal(cluster) for alias, cluster in made.items()}
    denied = visible_topics(made["T"], "alice")
    allow_reading(made["T"], "alice", "orders")

    wait_until(lambda: visible_topics(made["T"], "alice") == {"orders"}, "alice sees orders")

    assert all(len(read_all(cluster, "orders")[0]) == 10 for cluster in made.values())
    assert denied == set()
    assert refused == {
        "T": KafkaError._AUTHENTICATION,
        "P": KafkaError._AUTHENTICATION,
    }
    command_line = Path(f"/proc/{made['P'].broker(0).pid}/cmdline").read_bytes()
    assert b"alice-secret" not in command_line


def refusal(cluster: LocalCluster) -> int:
    """How the cluster answers a wrong password."""
    codes: list[int] = []
    admin = AdminClient(
        {
            **cluster.librdkafka_config_of("alice"),
            "sasl.password": "wrong",
            "log_level": 0,
            "error_cb": lambda error: codes.append(error.code()),
        }
    )
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(1)
    return codes[0]


def visible_topics(cluster: LocalCluster, user: str) -> set[str]:
    admin = AdminClient(cluster.librdkafka_config_of(user))
    return set(admin.list_topics(timeout=10).topics)


def allow_reading(cluster: LocalCluster, user: str, topic: str) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin = admin_of(cluster)
    for answer in admin.create_acls([binding]).values():
        answer.result(10)


def test_brokers_and_their_folders_go_when_their_owner_is_killed(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, time\n"
        "from heliograph_tools.localkafka.cluster import ClusterSpec, start_clusters\n"
        "spec = ClusterSpec(alias='A', tls=True, heap_mb=256)\n"
        f"made = start_clusters([spec], root=pathlib.Path({str(tmp_path)!r}))['A']\n"
        "sys.stdout.write(f'{made.broker(0).pid}\\n')\n"
        "sys.stdout.flush()\n"
        "time.sleep(300)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        broker_pid = int(owner.stdout.readline())
        was_alive = is_alive(broker_pid) and (tmp_path / "A").is_dir()

        os.kill(owner.pid, signal.SIGKILL)

    assert was_alive
    wait_until(lambda: not is_alive(broker_pid), "the broker died with its owner", timeout_s=10)
    wait_until(lambda: not (tmp_path / "A").exists(), "its folder is removed", timeout_s=10)


def test_a_broker_that_cannot_start_tells_why_and_leaves_nothing(tmp_path: Path) -> None:
    wrong = ClusterSpec(alias="W", broker_config={"log.retention.ms": "soon"}, heap_mb=SMALL_MB)

    with pytest.raises(LocalClusterError) as caught:
        start_clusters([wrong], root=tmp_path)

    told = str(caught.value)
    assert told.startswith("cluster W: broker 0 ended with code 1 while starting; its last lines:")
    assert "Invalid value soon for configuration log.retention.ms" in told
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def name() -> Iterator[str]:
    """A name for background clusters that no other run uses, and whose files go."""
    unique = f"test-{os.getpid()}"
    yield unique
    for path in (cache_folder() / "background").glob(f"{unique}.*"):
        path.unlink()


def test_up_stays_in_the_background_until_down(name: str) -> None:
    command = CliRunner()

    up = command.invoke(local, ["up", "--cluster", "A", "--name", name, "--json"])
    try:
        assert up.exit_code == 0, up.stderr
        (cluster,) = json.loads(up.stdout)["clusters"]
        admin = AdminClient({"bootstrap.servers": cluster["bootstrap_servers"]})
        brokers = admin.list_topics(timeout=10).brokers
        again = command.invoke(local, ["up", "--name", name])
    finally:
        down = command.invoke(local, ["down", "--name", name])
    down_again = command.invoke(local, ["down", "--name", name])

    assert list(brokers) == [0]
    assert (again.exit_code, "up already" in again.stderr) == (1, True)
    assert (down.exit_code, down.stderr) == (0, "stopped A\n")
    assert not Path(cluster["client_properties"]).exists()
    assert down_again.stderr == "nothing was up\n"


def test_up_without_java_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    answer = CliRunner().invoke(local, ["up", "--name", name])

    assert answer.exit_code == 1
    assert " ".join(answer.stderr.split()) == (
        "Java 17 or newer is needed, and there is no java: JAVA_HOME is not set and PATH has none"
    )
