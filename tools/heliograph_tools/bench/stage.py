"""Two real one-broker clusters for a whole run, and the topics on them. Runs on the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from heliograph.errors import BenchError
from heliograph_tools.bench.raw import Address, RawConnection
from heliograph_tools.bench.systems import Route
from heliograph_tools.bench.watch import wait_until
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from heliograph_tools.proxy import TcpProxy

_BROKER_CONFIG: Final = {
    # Kafka's own defaults, which heliograph_tools.localkafka lowers for tests.
    "num.network.threads": "3",
    "num.io.threads": "8",
    "group.initial.rebalance.delay.ms": "3000",
    # A run leaves half a gigabyte behind; waiting a minute for each would fill a small disk.
    "log.segment.delete.delay.ms": "1000",
    "log.retention.ms": "-1",
}
_BROKER_HEAP_MB: Final = 1_024
_BROKER_JVM: Final = (
    # What kafka-server-start.sh passes.
    "-Xms1g",
    "-XX:-UseSerialGC",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_ADMIN_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    source: LocalCluster
    target: LocalCluster
    source_link: TcpProxy
    """Before the source, for those who enter by `proxied_bootstrap`; likewise the target's."""
    target_link: TcpProxy
    folder: Path

    @property
    def source_address(self) -> Address:
        return Address.first_of(self.source.bootstrap)

    @property
    def target_address(self) -> Address:
        return Address.first_of(self.target.bootstrap)

    def route(self, alias: str, topic: str) -> Route:
        return Route(
            source_alias=alias,
            source_bootstrap=self.source.bootstrap,
            target_bootstrap=self.target.bootstrap,
            topic=topic,
        )

    def create_source_topic(self, topic: str, partitions: int) -> None:
        _create(self.source, topic, partitions)

    def create_target_topic(self, topic: str, partitions: int) -> None:
        _create(self.target, topic, partitions)

    def topics(self) -> list[str]:
        """Names on both sides."""
        return [name for side in (self.source, self.target) for name in _list(_admin(side))]

    def drop_topics(self, word: str) -> None:
        """Delete every topic with `word` in its name, on both sides; a mirror's own too."""
        for cluster in (self.source, self.target):
            admin = _admin(cluster)
            names = [name for name in _list(admin) if word in name]
            if names:
                _settle(admin.delete_topics(names, operation_timeout=_ADMIN_TIMEOUT_S))


@contextmanager
def open_stage(
    folder: Path,
    broker_config: Mapping[str, str] | None = None,
    heap_mb: int = _BROKER_HEAP_MB,
) -> Iterator[Stage]:
    """Both clusters up, until the block ends."""
    with TcpProxy() as source_link, TcpProxy() as target_link:
        links = {"source": source_link, "target": target_link}
        specs = [
            ClusterSpec(
                alias=alias,
                broker_config={**_BROKER_CONFIG, **(broker_config or {})},
                heap_mb=heap_mb,
                jvm_options=_BROKER_JVM,
                advertised_ports=(link.port,),
            )
            for alias, link in links.items()
        ]
        with local_clusters(specs, root=folder / "clusters") as clusters:
            for alias, link in links.items():
                link.target_port = clusters[alias].broker(0).ports.proxied
            yield Stage(
                source=clusters["source"],
                target=clusters["target"],
                source_link=source_link,
                target_link=target_link,
                folder=folder,
            )


def _create(cluster: LocalCluster, topic: str, partitions: int) -> None:
    wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1)
    admin = _admin(cluster)
    _settle(admin.create_topics([wanted], operation_timeout=_ADMIN_TIMEOUT_S))
    with RawConnection(Address.first_of(cluster.bootstrap)) as connection:
        wait_until(
            lambda: connection.serves(topic, partitions),
            lambda: None,
            f"the broker taking on {topic}",
        )


def _admin(cluster: LocalCluster) -> Any:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 4})


def _list(admin: Any) -> list[str]:
    return list(admin.list_topics(timeout=_ADMIN_TIMEOUT_S).topics)


def _settle(futures: Any) -> None:
    for name, future in futures.items():
        try:
            future.result(timeout=_ADMIN_TIMEOUT_S)
        except KafkaException as exc:
            raise BenchError(f"topic {name}: {exc}") from exc
