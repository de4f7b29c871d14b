"""One broker of a local cluster: its ports, its JVM, when it is ready. Runs on the driver."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from heliograph.clock import monotonic_s
from heliograph.errors import LocalClusterError
from heliograph_tools.localkafka.ports import LOOPBACK, PortHold, accepts
from heliograph_tools.localkafka.spec import BrokerPorts
from heliograph_tools.localkafka.supervised import Supervised

READY_TIMEOUT_S: Final = 90
_POLL_S: Final = 0.03
_ANSWER_TIMEOUT_S: Final = 2
_PORT_TAKEN: Final = "Address already in use"


class LocalBroker:
    """Keeps its ports and folder from the first start to `end`, across kills and restarts."""

    def __init__(self, *, alias: str, index: int, folder: Path) -> None:
        self.name = f"cluster {alias}: broker {index}"
        self.index = index
        self.folder = folder
        self.settings_path = folder / "server.properties"
        self.log_path = folder / "broker.log"
        self.command: list[str] = []
        self._holds = [PortHold() for _ in range(4)]
        client, internal, controller, proxied = (hold.port for hold in self._holds)
        self.ports = BrokerPorts(
            client=client, internal=internal, controller=controller, proxied=proxied
        )
        self._jvm: Supervised | None = None

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.ports.client}"

    @property
    def running(self) -> bool:
        return self._jvm is not None and self._jvm.running

    @property
    def pid(self) -> int:
        """The JVM's, not its supervisor's."""
        if self._jvm is None:
            raise LocalClusterError(f"{self.name} was never started")
        return self._jvm.pid

    @property
    def port_was_taken(self) -> bool:
        return not self.running and any(_PORT_TAKEN in line for line in self.last_lines())

    def start(self) -> None:
        """Returns as soon as the JVM runs; see `wait_until_ready`."""
        for hold in self._holds:
            hold.let_broker_bind()
        self._jvm = Supervised(command=self.command, log_path=self.log_path, folder=self.folder)

    def kill(self, number: signal.Signals) -> None:
        if self._jvm is not None:
            self._jvm.kill(number)

    def end(self) -> None:
        """Kill, remove the folder, give the ports back."""
        if self._jvm is not None:
            self._jvm.end()
        for hold in self._holds:
            hold.close()

    def last_lines(self) -> list[str]:
        return [] if self._jvm is None else self._jvm.last_lines()

    def failure(self, what: str) -> LocalClusterError:
        told = self.last_lines() or ["(it wrote nothing)"]
        lines = "\n".join(f"  {line}" for line in told)
        return LocalClusterError(f"{self.name} {what}; its last lines:\n{lines}")

    def check_running(self) -> None:
        if self._jvm is not None and not self._jvm.running:
            raise self.failure(f"ended with code {self._jvm.exit_code} while starting")


def wait_until_ready(
    brokers: Sequence[LocalBroker],
    librdkafka_config: Mapping[str, str],
    timeout_s: float = READY_TIMEOUT_S,
) -> None:
    """Wait until each of `brokers`, asked itself, knows all of them as registered."""
    deadline_s = monotonic_s() + timeout_s
    wanted = {broker.index for broker in brokers}
    for broker in brokers:
        # Connections are tried by hand first: librdkafka would back off, and log each refusal.
        while not accepts(broker.ports.client):
            _pause(broker, deadline_s, timeout_s)
        admin = AdminClient(
            {
                **librdkafka_config,
                "bootstrap.servers": broker.address,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        while not wanted <= _known_brokers(admin):
            _pause(broker, deadline_s, timeout_s)


def _pause(broker: LocalBroker, deadline_s: float, timeout_s: float) -> None:
    broker.check_running()
    if monotonic_s() > deadline_s:
        raise broker.failure(f"was not ready after {timeout_s:.0f} s")
    time.sleep(_POLL_S)


def _known_brokers(admin: AdminClient) -> set[int]:
    try:
        return set(admin.list_topics(timeout=_ANSWER_TIMEOUT_S).brokers)
    except KafkaException:
        # Not an answer yet; the caller's deadline decides, and the broker's log tells why.
        return set()
