"""What one machine sees: listeners, certificates, clocks, its own kernel. Runs on driver and
executors."""

from __future__ import annotations

import asyncio
import platform
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kio.schema.metadata.v12 import request as metadata_request
from kio.schema.metadata.v12 import response as metadata_response

from heliograph.broker.blocking import blocking
from heliograph.broker.cluster import open_cluster
from heliograph.broker.connection import open_connection
from heliograph.broker.quorum import controller_clock
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.clients import aiokafka_settings
from heliograph.config.schema import ClientRole, ClusterConfig
from heliograph.config.security import TlsConfig
from heliograph.doctor.facts import Certificate
from heliograph.errors import MirrorError
from heliograph.model import ClusterAlias

ReadChain = Callable[[str, int, TlsConfig, float], tuple[Certificate, ...]]
_AT_ONCE: Final = 32
_TRIES: Final = 7
_PROC: Final = Path("/proc/sys/net")
_NOTHING: Final = (
    metadata_request.MetadataRequest(
        topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False
    ),
    metadata_response.MetadataResponse,
)
"""A question about no topic, which a broker answers at once."""
KERNEL_KEYS: Final = (
    "core/rmem_max",
    "core/wmem_max",
    "ipv4/tcp_rmem",
    "ipv4/tcp_wmem",
    "ipv4/tcp_window_scaling",
    "ipv4/tcp_slow_start_after_idle",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """Where a broker tells clients to come back to."""

    cluster: ClusterAlias
    broker: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"broker {self.broker} at {self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSeen:
    listener: Listener
    error: str = ""
    """Why a client was turned away; nothing where it was not."""
    is_resolved: bool = True
    round_trip_s: float | None = None
    """The shortest of a few answers."""
    chain: tuple[Certificate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSeen:
    """The clock of a cluster's active controller against that of this machine."""

    cluster: ClusterAlias
    controller: int | None = None
    ahead_ms: float | None = None
    """Above 0 where the controller is ahead; None where it is not told."""
    error_ms: float = 0.0
    """By so much the figure may be wrong, either way."""
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOrder:
    """What to look at; holds credentials, so it travels inside a pickled function only."""

    clusters: Mapping[ClusterAlias, tuple[ClusterConfig, ClientRole]] = field(repr=False)
    """Each as a slot would reach it."""
    listeners: tuple[Listener, ...]
    answer_s_max: float
    read_chain: ReadChain | None = None
    """For certificates, whose dates are the same wherever they are read; executors need not have
    the package for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSeen:
    host: str
    at_ms: int
    listeners: tuple[ListenerSeen, ...]
    clocks: tuple[ClockSeen, ...]
    kernel: Mapping[str, str]
    """By name as sysctl has it; what the machine does not show is missing."""

    def round_trip_s(self, cluster: ClusterAlias) -> float | None:
        """To the nearest broker of the cluster: what the network takes, not the broker."""
        found = [
            seen.round_trip_s
            for seen in self.listeners
            if seen.listener.cluster == cluster and seen.round_trip_s is not None
        ]
        return min(found, default=None)


def look_around(order: PlaceOrder) -> PlaceSeen:
    """From this machine, in a loop of its own; never raises for what a cluster does."""
    return asyncio.run(look(order))


async def look(order: PlaceOrder) -> PlaceSeen:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(listener: Listener) -> ListenerSeen:
        async with turns:
            return await _listener(listener, order)

    listeners, clocks = await asyncio.gather(
        asyncio.gather(*(one(each) for each in order.listeners)),
        asyncio.gather(
            *(_clock(config, order.answer_s_max) for config, _ in order.clusters.values())
        ),
    )
    return PlaceSeen(
        host=platform.node() or "unnamed",
        at_ms=now_ms(),
        listeners=tuple(listeners),
        clocks=tuple(clocks),
        kernel=read_kernel(),
    )


def read_kernel(root: Path = _PROC) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for key in KERNEL_KEYS:
        try:
            found[f"net.{key.replace('/', '.')}"] = (root / key).read_text().strip()
        except OSError:
            continue  # another system, or a container that hides it: not told
    return found


async def _listener(listener: Listener, order: PlaceOrder) -> ListenerSeen:
    (config, role), answer_s_max = order.clusters[listener.cluster], order.answer_s_max
    if not await _is_resolved(listener, answer_s_max):
        return ListenerSeen(
            listener=listener, error="its host is not known here", is_resolved=False
        )
    security = config.security_of(role)
    chain: tuple[Certificate, ...] = ()
    if security.has_tls and order.read_chain is not None:
        try:
            chain = await blocking(
                order.read_chain, listener.host, listener.port, security.tls, answer_s_max
            )
        except (OSError, ValueError):
            chain = ()  # the connection below says why
    try:
        round_trip_s = await asyncio.wait_for(
            _round_trip(listener, config, role, answer_s_max), 2 * answer_s_max
        )
    except MirrorError as exc:
        place = f"cluster {config.alias}, broker {listener.host}:{listener.port}: "
        why = str(exc).removeprefix(place)
        return ListenerSeen(listener=listener, error=why, chain=chain)
    except TimeoutError:
        return ListenerSeen(listener=listener, error="no answer in time", chain=chain)
    return ListenerSeen(listener=listener, round_trip_s=round_trip_s, chain=chain)


async def _is_resolved(listener: Listener, answer_s_max: float) -> bool:
    try:
        async with asyncio.timeout(answer_s_max):
            await blocking(socket.getaddrinfo, listener.host, listener.port)
    except (OSError, TimeoutError):
        return False
    return True


async def _round_trip(
    listener: Listener, config: ClusterConfig, role: ClientRole, answer_s_max: float
) -> float:
    """Connect and authenticate as a slot does, then ask for nothing a few times."""
    settings = {
        **aiokafka_settings(config, role),
        "request_timeout_ms": int(1000 * answer_s_max),
    }
    connection = await open_connection(
        listener.host, listener.port, settings, cluster=config.alias, timeout_s=answer_s_max
    )
    try:
        best = float("inf")
        for _ in range(_TRIES):
            began_s = monotonic_s()
            await connection.call(*_NOTHING, timeout_s=answer_s_max)
            best = min(best, monotonic_s() - began_s)
        return min(best, connection.kernel_round_trip_s() or best)
    finally:
        connection.close()


async def _clock(config: ClusterConfig, answer_s_max: float) -> ClockSeen:
    cluster = open_cluster(config, "admin")
    try:
        async with asyncio.timeout(2 * answer_s_max):
            found = await controller_clock(cluster, _TRIES)
    except (MirrorError, TimeoutError) as exc:
        return ClockSeen(cluster=config.alias, why_not=str(exc) or "no answer in time")
    finally:
        cluster.close()
    if found is None:
        return ClockSeen(
            cluster=config.alias,
            error_ms=float("inf"),
            why_not="its controller does not tell the time",
        )
    return ClockSeen(
        cluster=config.alias,
        controller=found.node,
        ahead_ms=found.ahead_ms,
        error_ms=found.error_ms,
    )
