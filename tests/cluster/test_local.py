"""Clusters on this machine start, survive a broker's death, and leave nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
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
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from typer.testing import CliRunner, Result

from heliograph.cache import cache_folder
from heliograph.errors import LocalClusterError
from heliograph_tools.cli.local import local
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, start_clusters
from tests.kit.clusters import FAST_JAVA, FAST_START, ClusterFactory, is_alive
from tests.kit.inside import carry
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
        f"spec = ClusterSpec(alias='A', tls=True, heap_mb=256, jvm_options={FAST_START})\n"
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
def name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A name for background clusters that no other run uses, and whose files go."""
    monkeypatch.setenv(*FAST_JAVA)
    unique = f"test-{os.getpid()}"
    yield unique
    for path in (cache_folder() / "background").glob(f"{unique}.*"):
        path.unlink()


def test_up_stays_until_down_and_its_sample_file_mirrors_over_an_outage(name: str) -> None:
    command = CliRunner()

    def local_command(*words: str) -> Result:
        return command.invoke(local, [*words, "--name", name])

    up = local_command("up", "--json")
    try:
        assert up.exit_code == 0, up.stderr
        found = json.loads(up.stdout)
        one, other = (each["bootstrap_servers"] for each in found["clusters"])
        sample = Path(found["config"])
        mode = stat.S_IMODE(sample.stat().st_mode)
        create_at(one, "orders")
        carry(sample)
        stopped = local_command("stop", "A")
        states = json.loads(local_command("status", "--json").stdout)
        started = local_command("start", "A")
        carry(sample)
        shown, again = local_command("status"), local_command("up")
        unknown = local_command("stop", "C")
        copied = set(AdminClient({"bootstrap.servers": other}).list_topics(timeout=10).topics)
    finally:
        down = local_command("down")
    after = [local_command(*words) for words in (("down",), ("status",), ("start", "A"))]

    assert [each["running"] for each in states["clusters"]] == [False, True]
    assert states["config"] == str(sample)
    assert mode == 0o600
    assert "A.orders" in copied
    assert (
        stopped.stderr == f"stopped A; `heliograph local start A --name {name}` starts it again\n"
    )
    assert started.stderr == "started A\n"
    assert str(sample) in shown.stderr
    assert (again.exit_code, f"heliograph local status --name {name}" in joined(again)) == (1, True)
    assert (unknown.exit_code, unknown.stderr) == (1, "there is no cluster C, only A, B\n")
    assert (down.exit_code, down.stderr) == (0, "stopped A, B\n")
    assert not sample.exists()
    assert [each.exit_code for each in after] == [0, 1, 1]
    assert joined(after[1]).startswith(f"no clusters named '{name}' are up")


def create_at(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def joined(answer: Result) -> str:
    """What was said on stderr, wherever its lines were broken."""
    return " ".join(answer.stderr.split())


def test_up_with_an_authorizer_lets_its_users_in_by_acls_only(name: str) -> None:
    words = ["--tls", "--mutual-tls", "--sasl", "PLAIN", "--authorizer", "--user", "alice"]
    command = CliRunner()

    up = command.invoke(local, ["up", "--cluster", "A", *words, "--name", name, "--json"])
    try:
        assert up.exit_code == 0, up.stderr
        (cluster,) = json.loads(up.stdout)["clusters"]
        admins = Path(cluster["client_properties"])
        alices = admins.with_name("client-alice.properties")
        create_as(admins, "orders")
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            create_as(alices, "payments")
    finally:
        command.invoke(local, ["down", "--name", name])


def create_as(properties: Path, topic: str) -> None:
    """With what a Java client would read, as Heliograph reads it for librdkafka."""
    lines = properties.read_text().splitlines()
    java = dict(line.split("=", 1) for line in lines)
    login = dict(re.findall(r'(username|password)="([^"]*)"', java["sasl.jaas.config"]))
    admin = AdminClient(
        {
            "bootstrap.servers": java["bootstrap.servers"],
            "security.protocol": java["security.protocol"],
            "sasl.mechanism": java["sasl.mechanism"],
            "sasl.username": login["username"],
            "sasl.password": login["password"],
            "ssl.ca.location": java["ssl.truststore.location"],
            "ssl.certificate.location": java["ssl.keystore.location"],
            "ssl.key.location": java["ssl.keystore.location"],
        }
    )
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


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
