"""Java's own mirror classes, called from tests: one JVM for the session, reached through py4j."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JJavaError

from heliograph.clock import monotonic_s
from heliograph_tools.bench.systems import mirror_maker_jars
from heliograph_tools.localkafka.java import java_executable

_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING: Final = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)
_END_S_MAX: Final = 20.0
_SHARE_READ_S_MAX: Final = 60.0

Offsets = dict[tuple[str, int], tuple[int, str]]
"""Topic and partition to offset and metadata."""
KeyValue = tuple[bytes, bytes]


class Refused(Exception):
    """Java raised; the message is its exception's class and text."""


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except Py4JJavaError as exc:
        raise Refused(exc.java_exception.toString()) from exc


@dataclass(frozen=True, slots=True)
class JavaMirrorClient:
    """`org.apache.kafka.connect.mirror.MirrorClient` with answers as Python values."""

    _java: Java
    _client: Any

    def replication_hops(self, upstream: str) -> int:
        hops: int = self._client.replicationHops(upstream)
        return hops

    def heartbeat_topics(self) -> set[str]:
        return set(self._client.heartbeatTopics())

    def checkpoint_topics(self) -> set[str]:
        return set(self._client.checkpointTopics())

    def upstream_clusters(self) -> set[str]:
        return set(self._client.upstreamClusters())

    def remote_topics(self, source: str | None = None) -> set[str]:
        if source is None:
            return set(self._client.remoteTopics())
        return set(self._client.remoteTopics(source))

    def remote_consumer_offsets(self, group: str, remote: str, timeout_s: float = 30.0) -> Offsets:
        timeout = self._java.duration(timeout_s)
        with _refusals():
            return self._java.offsets(self._client.remoteConsumerOffsets(group, remote, timeout))

    @property
    def policy(self) -> Any:
        """The `ReplicationPolicy` itself; strings and booleans come back as Python's."""
        return self._client.replicationPolicy()


class Java:
    """The JVM and what tests ask of it."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self._mirror = gateway.jvm.org.apache.kafka.connect.mirror

    @contextlib.contextmanager
    def mirror_client(self, properties: Mapping[str, str]) -> Iterator[JavaMirrorClient]:
        client = self._mirror.MirrorClient(self.hash_map(properties))
        try:
            yield JavaMirrorClient(self, client)
        finally:
            client.close()

    def remote_cluster_utils(self) -> Any:
        """The static methods of `RemoteClusterUtils`; give them a `hash_map`."""
        return self._mirror.RemoteClusterUtils

    def hash_map(self, properties: Mapping[str, str]) -> Any:
        made = self._gateway.jvm.java.util.HashMap()
        for name, value in properties.items():
            made.put(name, value)
        return made

    def duration(self, seconds: float) -> Any:
        return self._gateway.jvm.java.time.Duration.ofMillis(int(seconds * 1000))

    def pattern(self, regex: str) -> Any:
        return self._gateway.jvm.java.util.regex.Pattern.compile(regex)

    def offsets(self, found: Any) -> Offsets:
        """A `Map<TopicPartition, OffsetAndMetadata>`."""
        return {
            (entry.getKey().topic(), entry.getKey().partition()): (
                entry.getValue().offset(),
                entry.getValue().metadata(),
            )
            for entry in found.entrySet()
        }

    def read_shared(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        records: int,
        *,
        accepts: Callable[[int], bool] = lambda _: True,
    ) -> dict[int, bytes]:
        """What a `KafkaShareConsumer` is given, by offset, until it has seen so many records.

        Those whose offset it `accepts` are acknowledged, the others given back.
        """
        consumers = self._gateway.jvm.org.apache.kafka.clients.consumer
        made = self._gateway.jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
        consumer = consumers.KafkaShareConsumer(self.hash_map(settings), made(), made())
        found: dict[int, bytes] = {}
        deadline_s = monotonic_s() + _SHARE_READ_S_MAX
        try:
            consumer.subscribe([topic])
            while len(found) < records:
                assert monotonic_s() < deadline_s, f"{group} was given {len(found)} of {records}"
                given = consumer.poll(self.duration(0.5)).iterator()
                while given.hasNext():
                    record = given.next()
                    offset = record.offset()
                    answer = "ACCEPT" if accepts(offset) else "RELEASE"
                    consumer.acknowledge(record, consumers.AcknowledgeType.valueOf(answer))
                    found[offset] = record.value()
                consumer.commitSync()
        finally:
            consumer.close()
        return dict(sorted(found.items()))

    def heartbeat_bytes(self, source: str, target: str, timestamp_ms: int) -> KeyValue:
        return self._bytes_of(self._mirror.Heartbeat(source, target, timestamp_ms))

    def checkpoint_bytes(
        self, group: str, topic: str, partition: int, upstream: int, downstream: int, metadata: str
    ) -> KeyValue:
        place = self._topic_partition(topic, partition)
        return self._bytes_of(self._mirror.Checkpoint(group, place, upstream, downstream, metadata))

    def offset_sync_bytes(
        self, topic: str, partition: int, upstream: int, downstream: int
    ) -> KeyValue:
        place = self._topic_partition(topic, partition)
        return self._bytes_of(self._mirror.OffsetSync(place, upstream, downstream))

    def read_heartbeat(self, key: bytes, value: bytes) -> tuple[str, str, int]:
        found = self._deserialized("Heartbeat", key, value)
        return (found.sourceClusterAlias(), found.targetClusterAlias(), found.timestamp())

    def read_checkpoint(self, key: bytes, value: bytes) -> tuple[str, str, int, int, int, str]:
        found = self._deserialized("Checkpoint", key, value)
        place = found.topicPartition()
        return (
            found.consumerGroupId(),
            place.topic(),
            place.partition(),
            found.upstreamOffset(),
            found.downstreamOffset(),
            found.metadata(),
        )

    def read_offset_sync(self, key: bytes, value: bytes) -> tuple[str, int, int, int]:
        found = self._deserialized("OffsetSync", key, value)
        place = found.topicPartition()
        return (
            place.topic(),
            place.partition(),
            found.upstreamOffset(),
            found.downstreamOffset(),
        )

    def _topic_partition(self, topic: str, partition: int) -> Any:
        return self._gateway.jvm.org.apache.kafka.common.TopicPartition(topic, partition)

    def _bytes_of(self, record: Any) -> KeyValue:
        return self._hidden(record, "recordKey"), self._hidden(record, "recordValue")

    def _hidden(self, record: Any, method: str) -> bytes:
        """Serialising is private to the package, so it is asked for by name."""
        jvm = self._gateway.jvm
        nothing = self._gateway.new_array(jvm.java.lang.Class, 0)
        found = record.getClass().getDeclaredMethod(method, nothing)
        found.setAccessible(True)
        answer: bytes = found.invoke(record, self._gateway.new_array(jvm.java.lang.Object, 0))
        return answer

    def _deserialized(self, kind: str, key: bytes, value: bytes) -> Any:
        consumer = self._gateway.jvm.org.apache.kafka.clients.consumer
        record = consumer.ConsumerRecord("any", 0, 0, key, value)
        with _refusals():
            return getattr(self._mirror, kind).deserializeRecord(record)


@pytest.fixture(scope="session")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    """A JVM with MirrorMaker 2's classes, for the whole session; Kafka is fetched once."""
    with java_gateway(tmp_path_factory.mktemp("java") / "stderr.log") as started:
        yield started


@contextlib.contextmanager
def java_gateway(log_path: Path) -> Iterator[Java]:
    """Listens on the loopback address, asks for a token, and dies with this process."""
    classpath = os.pathsep.join(map(str, [_py4j_jar(), *mirror_maker_jars()]))
    command = [str(java_executable()), *_JVM, *_LOGGING, "-cp", classpath, "py4j.GatewayServer"]
    # The JVM ends when its stdin does, so a killed test session leaves none behind.
    command += ["--die-on-broken-pipe", "--enable-auth", "0"]
    with (
        log_path.open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        ) as child,
    ):
        try:
            port, token = _address(child, log_path)
            gateway = JavaGateway(
                gateway_parameters=GatewayParameters(
                    address="127.0.0.1", port=port, auth_token=token, auto_convert=True
                )
            )
            try:
                yield Java(gateway)
            finally:
                gateway.shutdown()
        finally:
            if child.stdin is not None:
                child.stdin.close()
            try:
                child.wait(_END_S_MAX)
            except subprocess.TimeoutExpired:
                child.kill()


def _address(child: subprocess.Popen[bytes], log_path: Path) -> tuple[int, str]:
    assert child.stdout is not None
    port, token = child.stdout.readline().strip(), child.stdout.readline().strip()
    if not port.isdigit() or not token:
        raise AssertionError(f"no Java gateway:\n{log_path.read_text(errors='replace')}")
    return int(port), token.decode()


def _py4j_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    (jar,) = (Path(spec.origin).parent / "jars").glob("py4j-*.jar")
    return jar
