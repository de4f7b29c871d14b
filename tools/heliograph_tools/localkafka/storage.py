"""Make Kafka start fast: formatted storage, an archive of loaded classes. Runs on the driver.

A broker refuses to start on a folder that was not formatted, and formatting is a JVM of its own.
What it writes is a checkpoint of the cluster's first metadata, equal for all clusters of a version,
and a `meta.properties` with ids. So the checkpoint is made once per version and kept in the cache;
only clusters with SCRAM users, which live in that checkpoint, are formatted for themselves.

The archive (class data sharing) halves the time a broker needs to start and to answer for the first
time. It is recorded by starting one broker and using it when a version is first used.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from heliograph.cache import cache_folder
from heliograph.clock import monotonic_s
from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka.java import java_executable, java_version
from heliograph_tools.localkafka.kafka import OnProgress, file_lock, kafka_classpath
from heliograph_tools.localkafka.ports import LOOPBACK, PortHold, accepts
from heliograph_tools.localkafka.spec import (
    BrokerPorts,
    ClusterSpec,
    Credentials,
    broker_properties,
)
from heliograph_tools.localkafka.supervised import Supervised
from heliograph_tools.localkafka.versions import KAFKA_VERSION, has_bootstrap_checkpoint

_CHECKPOINT: Final = "bootstrap.checkpoint"
_RECORDING: Final = "started and used"
"""What an archive was recorded from; other words make another archive."""
_FORMAT_TIMEOUT_S: Final = 120
_RECORDING_TIMEOUT_S: Final = 120
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaInstall:
    """One version of Kafka on this machine, ready to start brokers from."""

    version: str
    java: Path
    classpath: tuple[Path, ...]
    checkpoint: Path | None
    """None where this version of Kafka needs none."""
    archive: Path | None
    """None where this Java cannot record one; brokers then start more slowly."""


def prepare_kafka(
    version: str = KAFKA_VERSION,
    *,
    cache: Path | None = None,
    on_progress: OnProgress | None = None,
) -> KafkaInstall:
    """Fetch, format and record what is missing; returns at once when nothing is."""
    root = cache_folder() if cache is None else cache
    java = java_executable()
    classpath = tuple(kafka_classpath(version, cache=root, on_progress=on_progress))
    # The archive is bound to the JVM and to the exact classpath it was recorded with.
    bound_to = "\n".join(
        [_RECORDING, java_version(java), str(java.resolve()), *map(str, classpath)]
    )
    digest = hashlib.sha256(bound_to.encode()).hexdigest()[:12]
    folder = root / "ready" / f"{version}-{digest}"
    archive = folder / "classes.jsa"
    checkpoint = folder / _CHECKPOINT if has_bootstrap_checkpoint(version) else None
    if not folder.is_dir():
        with file_lock(folder.with_name(folder.name + ".lock")):
            if not folder.is_dir():
                if on_progress is not None:
                    on_progress(f"recording how Kafka {version} starts, once")
                _record(version, java, classpath, folder)
    return KafkaInstall(
        version=version,
        java=java,
        classpath=classpath,
        checkpoint=checkpoint,
        archive=archive if archive.is_file() else None,
    )


def _record(version: str, java: Path, classpath: Sequence[Path], folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".recording-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        checkpoint = made / _CHECKPOINT if has_bootstrap_checkpoint(version) else None
        bare = KafkaInstall(
            version=version,
            java=java,
            classpath=tuple(classpath),
            checkpoint=checkpoint,
            archive=None,
        )
        if checkpoint is not None:
            checkpoint.write_bytes(bootstrap_checkpoint(bare, Path(scratch) / "format", ()))
        _record_classes(bare, Path(scratch) / "broker-0", made / "classes.jsa")
        shutil.move(made, folder)


def _record_classes(install: KafkaInstall, folder: Path, archive: Path) -> None:
    spec = ClusterSpec(alias="recording", kafka=install.version)
    with contextlib.ExitStack() as holds:
        held = [holds.enter_context(contextlib.closing(PortHold())) for _ in range(4)]
        client, internal, controller, proxied = (hold.port for hold in held)
        ports = BrokerPorts(
            client=client, internal=internal, controller=controller, proxied=proxied
        )
        format_node(install.checkpoint, folder / "log", node_id=0, cluster_id=random_id())
        settings = broker_properties(
            spec,
            index=0,
            log_dir=folder / "log",
            ports=[ports],
            credentials=Credentials(users={}, broker_password=""),
            tls=None,
        )
        write_properties(folder / "server.properties", settings)
        for hold in held:
            hold.let_broker_bind()
        options = [f"-XX:ArchiveClassesAtExit={archive}"]
        command = broker_command(install, spec, folder / "server.properties", options)
        broker = Supervised(command=command, log_path=folder / "broker.log", folder=folder)
        deadline_s = monotonic_s() + _RECORDING_TIMEOUT_S
        while broker.running and monotonic_s() < deadline_s and not accepts(client):
            time.sleep(_POLL_S)
        # A broker that cannot start here cannot start anywhere; the first cluster tells why.
        if broker.running and monotonic_s() < deadline_s:
            # What it could not be asked for is loaded by every broker again, and no harm is done.
            with contextlib.suppress(KafkaException, TimeoutError):
                _use_broker(f"{LOOPBACK}:{client}", deadline_s - monotonic_s())
        broker.kill(signal.SIGTERM)


def _use_broker(bootstrap: str, timeout_s: float) -> None:
    """What clients ask for first, so that the archive has the classes that answer it."""
    servers = {"bootstrap.servers": bootstrap, "log_level": 0}
    admin = AdminClient(servers)
    made = NewTopic("recorded", 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([made])[made.topic].result(timeout_s)
    producer = Producer({**servers, "transactional.id": "recorded"})
    producer.init_transactions(timeout_s)
    producer.begin_transaction()
    producer.produce(made.topic, b"value", b"key")
    producer.commit_transaction(timeout_s)
    group = {"group.id": "recorded", "auto.offset.reset": "earliest"}
    consumer = Consumer({**servers, **group})
    try:
        consumer.subscribe([made.topic])
        if consumer.consume(1, timeout=timeout_s):
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    for answer in admin.describe_configs([ConfigResource(ResourceType.TOPIC, made.topic)]).values():
        answer.result(timeout_s)
    admin.list_consumer_groups(request_timeout=timeout_s).result(timeout_s)


def bootstrap_checkpoint(install: KafkaInstall, scratch: Path, scram: Sequence[str]) -> bytes:
    """A cluster's first metadata; `scram` is `MECHANISM=[name=…,password=…]` of every user."""
    scratch.mkdir(mode=0o700, parents=True)
    settings = {
        "node.id": "0",
        "process.roles": "broker,controller",
        "log.dirs": str(scratch / "log"),
        "listeners": "CLIENT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "0@127.0.0.1:2",
    }
    write_properties(scratch / "server.properties", settings)
    arguments = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    arguments += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    arguments += ["-cp", os.pathsep.join(map(str, install.classpath))]
    arguments += ["kafka.tools.StorageTool", "format", "--cluster-id", random_id()]
    arguments += ["--config", str(scratch / "server.properties")]
    for credential in scram:
        arguments += ["--add-scram", credential]
    # Arguments are visible to every user of the machine and these hold passwords, so Java reads
    # them from a file.
    argument_file = scratch / "format.args"
    write_private(argument_file, "\n".join(f'"{_java_quoted(a)}"' for a in arguments))
    try:
        answer = subprocess.run(
            [str(install.java), f"@{argument_file}"],
            capture_output=True,
            text=True,
            timeout=_FORMAT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise LocalClusterError(f"formatting took more than {_FORMAT_TIMEOUT_S} s") from exc
    if answer.returncode != 0:
        told = answer.stderr.strip().splitlines()[-5:]
        raise LocalClusterError("formatting failed; its last lines:\n" + "\n".join(told))
    content = (scratch / "log" / _CHECKPOINT).read_bytes()
    shutil.rmtree(scratch)
    return content


def format_node(checkpoint: Path | None, log_dir: Path, *, node_id: int, cluster_id: str) -> None:
    """Leave in `log_dir` what the format command would."""
    log_dir.mkdir(mode=0o700, parents=True)
    if checkpoint is not None:
        shutil.copyfile(checkpoint, log_dir / _CHECKPOINT)
    meta = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": random_id(),
    }
    write_properties(log_dir / "meta.properties", meta)


def broker_command(
    install: KafkaInstall, spec: ClusterSpec, settings: Path, options: Sequence[str] = ()
) -> list[str]:
    logger = "-Dorg.slf4j.simpleLogger"
    command = [str(install.java), f"-Xmx{spec.heap_mb}m", "-XX:+UseSerialGC", *options]
    command += [f"{logger}.defaultLogLevel=warn", f"{logger}.log.kafka.server=info"]
    command += [f"{logger}.showDateTime=true", f"{logger}.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS"]
    if install.archive is not None:
        command += [f"-XX:SharedArchiveFile={install.archive}"]
    if spec.jwks is not None:
        # Kafka reads keys and tokens from no place that its operator did not allow (KIP-1139).
        command += [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={spec.jwks}"]
    command += [*spec.jvm_options, "-cp", os.pathsep.join(map(str, install.classpath))]
    return [*command, "kafka.Kafka", str(settings)]


def random_id() -> str:
    """An id as Kafka writes its own: 16 bytes, URL-safe base64."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Kafka rejects ids that its own command line would take for an option.
        if not text.startswith("-"):
            return text


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    lines = [f"{key}={value}".replace("\\", "\\\\") for key, value in properties.items()]
    write_private(path, "\n".join(lines) + "\n")


def write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _java_quoted(argument: str) -> str:
    return argument.replace("\\", "\\\\").replace('"', '\\"')
