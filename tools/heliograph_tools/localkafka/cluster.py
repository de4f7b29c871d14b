"""Start, break and stop real Kafka clusters on this machine. Runs on the driver.

Each broker is one JVM (KRaft, broker and controller in one) under a supervisor that takes it down
with the process that started it. Data lives in a folder that is removed at the end.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka.broker import LocalBroker, wait_until_ready
from heliograph_tools.localkafka.certificates import write_certificates
from heliograph_tools.localkafka.kafka import OnProgress
from heliograph_tools.localkafka.runs import RunFolder
from heliograph_tools.localkafka.spec import (
    ADMIN_USER,
    SCRAM_MECHANISMS,
    BrokerPorts,
    ClusterSpec,
    Credentials,
    TlsFiles,
    broker_properties,
    client_properties,
    librdkafka_properties,
)
from heliograph_tools.localkafka.storage import (
    KafkaInstall,
    bootstrap_checkpoint,
    broker_command,
    format_node,
    prepare_kafka,
    random_id,
    write_properties,
)

__all__ = ["ClusterSpec", "LocalCluster", "local_clusters", "start_clusters"]

_START_ATTEMPTS_MAX = 3


class LocalCluster:
    """A running cluster; made by `start_clusters`."""

    def __init__(self, spec: ClusterSpec, install: KafkaInstall, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.cluster_id = random_id()
        self._install = install
        self._run: RunFolder | None = None
        users = {ADMIN_USER: secrets.token_urlsafe(12), **spec.users}
        self._credentials = Credentials(users=users, broker_password=secrets.token_urlsafe(12))
        self._brokers: list[LocalBroker] = []
        self._tls: TlsFiles | None = None

    def __repr__(self) -> str:
        return f"<LocalCluster {self.alias} at {self.bootstrap or 'no address'}>"

    @property
    def alias(self) -> str:
        return self.spec.alias

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self._brokers)

    @property
    def proxied_bootstrap(self) -> str:
        """Where clients enter that shall stay behind the proxies of `advertised_ports`."""
        return ",".join(f"127.0.0.1:{port}" for port in self.spec.advertised_ports)

    @property
    def client_config(self) -> dict[str, str]:
        """Java names, for the admin user, beyond `bootstrap.servers`."""
        return self.client_config_of(ADMIN_USER)

    def client_config_of(self, user: str) -> dict[str, str]:
        password = self._credentials.users[user]
        return client_properties(self.spec, user=user, password=password, tls=self._tls)

    @property
    def librdkafka_config(self) -> dict[str, str]:
        """All that confluent-kafka needs, `bootstrap.servers` included."""
        return self.librdkafka_config_of(ADMIN_USER)

    def librdkafka_config_of(self, user: str) -> dict[str, str]:
        password = self._credentials.users[user]
        return {
            "bootstrap.servers": self.bootstrap,
            **librdkafka_properties(self.spec, user=user, password=password, tls=self._tls),
        }

    @property
    def client_properties_path(self) -> Path:
        """A file for command-line clients: bootstrap servers and the admin user's credentials."""
        return self.client_properties_path_of(ADMIN_USER)

    def client_properties_path_of(self, user: str) -> Path:
        return self.folder / f"client{'' if user == ADMIN_USER else f'-{user}'}.properties"

    @property
    def brokers(self) -> tuple[LocalBroker, ...]:
        return tuple(self._brokers)

    def broker(self, index: int) -> LocalBroker:
        return self._brokers[index]

    def kill_broker(self, index: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Signal the broker and wait until it is gone; its data stays."""
        self._brokers[index].kill(number)

    def start_broker(self, index: int) -> None:
        """Start a killed broker on its old ports and data; returns when it serves again."""
        broker = self._brokers[index]
        if broker.running:
            raise LocalClusterError(f"{broker.name} is running already")
        broker.start()
        wait_until_ready([broker], self.librdkafka_config)

    @property
    def running(self) -> bool:
        """Whether every broker is."""
        return all(broker.running for broker in self._brokers)

    def halt(self) -> None:
        """Kill every broker, as an outage would; ports and data stay."""
        for broker in self._brokers:
            broker.kill(signal.SIGKILL)

    def revive(self) -> None:
        """Start what is not running, on the old ports and data; returns when all serve again."""
        for broker in self._brokers:
            if not broker.running:
                broker.start()
        wait_until_ready(self._brokers, self.librdkafka_config)

    def start(self) -> None:
        """Returns when every broker serves; what was started is stopped again on failure."""
        self.folder.mkdir(mode=0o700, parents=True)
        try:
            self._start_on_fresh_ports(attempts=_START_ATTEMPTS_MAX)
            for user in (ADMIN_USER, *self.spec.users):
                settings = {"bootstrap.servers": self.bootstrap, **self.client_config_of(user)}
                write_properties(self.client_properties_path_of(user), settings)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill every broker and remove all data; safe to repeat."""
        for broker in self._brokers:
            broker.end()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._run is not None:
            self._run.leave()
            self._run = None

    def stays_in(self, run: RunFolder) -> None:
        """Keep `run` until this cluster stops."""
        run.enter()
        self._run = run

    def _start_on_fresh_ports(self, attempts: int) -> None:
        if self.spec.tls:
            self._tls = write_certificates(self.folder / "tls")
        checkpoint = self._checkpoint()
        for attempt in range(1, attempts + 1):
            self._brokers = [
                LocalBroker(alias=self.alias, index=index, folder=self.folder / f"broker-{index}")
                for index in range(self.spec.brokers)
            ]
            self._lay_out(checkpoint)
            try:
                for broker in self._brokers:
                    broker.start()
                wait_until_ready(self._brokers, self.librdkafka_config)
                return
            except LocalClusterError:
                clashed = any(broker.port_was_taken for broker in self._brokers)
                if not clashed or attempt == attempts:
                    raise
                for broker in self._brokers:
                    broker.end()

    def _checkpoint(self) -> Path | None:
        scram = [
            f"{mechanism}=[name={user},password={password}]"
            for mechanism in self.spec.mechanisms
            if mechanism in SCRAM_MECHANISMS
            for user, password in self._credentials.users.items()
        ]
        if not scram:
            return self._install.checkpoint
        path = self.folder / "bootstrap.checkpoint"
        path.write_bytes(bootstrap_checkpoint(self._install, self.folder / "format", scram))
        return path

    def _lay_out(self, checkpoint: Path | None) -> None:
        ports: list[BrokerPorts] = [broker.ports for broker in self._brokers]
        for broker in self._brokers:
            log_dir = broker.folder / "log"
            format_node(checkpoint, log_dir, node_id=broker.index, cluster_id=self.cluster_id)
            settings = broker_properties(
                self.spec,
                index=broker.index,
                log_dir=log_dir,
                ports=ports,
                credentials=self._credentials,
                tls=self._tls,
            )
            write_properties(broker.settings_path, settings)
            broker.command = broker_command(self._install, self.spec, broker.settings_path)


def start_clusters(
    specs: Sequence[ClusterSpec],
    *,
    root: Path | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, LocalCluster]:
    """Start all of them at once; returns when each broker of each cluster serves.

    Brokers end with this process, even when it is killed -9. Without `root` data goes below the
    cache folder, where leftovers of dead processes are removed first. Raises `LocalClusterError`
    with the broker's own last lines; nothing is left running then.
    """
    aliases = [spec.alias for spec in specs]
    if len(set(aliases)) != len(aliases):
        raise LocalClusterError(f"aliases are not unique: {', '.join(aliases)}")
    installs = {
        version: prepare_kafka(version, on_progress=on_progress)
        for version in dict.fromkeys(spec.kafka for spec in specs)
    }
    run = RunFolder() if root is None else None
    folder = run.path if run is not None else root
    assert folder is not None
    clusters = [LocalCluster(s, installs[s.kafka], folder / s.alias) for s in specs]
    if run is not None:
        for cluster in clusters:
            cluster.stays_in(run)
    if on_progress is not None:
        on_progress(f"starting {', '.join(aliases)}")
    with ThreadPoolExecutor(max_workers=max(1, len(clusters))) as pool:
        starts = [pool.submit(cluster.start) for cluster in clusters]
    failures = [exc for start in starts if (exc := start.exception()) is not None]
    if failures:
        for cluster in clusters:
            cluster.stop()
        raise failures[0]
    return {cluster.alias: cluster for cluster in clusters}


@contextlib.contextmanager
def local_clusters(
    specs: Sequence[ClusterSpec],
    *,
    root: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Iterator[dict[str, LocalCluster]]:
    """`start_clusters`, stopped at the end of the block."""
    clusters = start_clusters(specs, root=root, on_progress=on_progress)
    try:
        yield clusters
    finally:
        for cluster in clusters.values():
            cluster.stop()
