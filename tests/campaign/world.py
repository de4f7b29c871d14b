"""Two clusters behind proxies, clients that write, and a mirror that is to survive all of it."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from heliograph.errors import MirrorError
from heliograph_tools.localkafka.cluster import ClusterSpec, LocalCluster, local_clusters
from heliograph_tools.proxy import TcpProxy
from tests.campaign.drivers import ON_SPARK, ON_THREADS, Drivers, NoAnswer
from tests.campaign.journal import Journal
from tests.campaign.layout import (
    MECHANISM,
    MIRROR_USER,
    PIPED,
    Channel,
    channels_of,
    flows_of,
    write_file,
    write_password,
)
from tests.campaign.plan import PIPELINE
from tests.campaign.tail import Tail
from tests.campaign.truth import Truth
from tests.campaign.watch import Ends
from tests.campaign.writers import Writer
from tests.kit.clusters import FAST_START
from tests.kit.leaks import Secrets
from tests.kit.topics import create_topic

_COMPACTING: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "2000",
}
_FIRST_PARTITIONS: Final = 2
_AGAIN_S, _UNDO_S = 3.0, 0.05
UNKNOWN: Final = (KafkaException, MirrorError, NoAnswer, OSError, TimeoutError, AssertionError)
"""What may come in the midst of faults: nobody knows whether it was done. All else is a bug. An
`AssertionError` is what the kit's waits raise when their time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much of a world it is."""

    brokers: int
    drivers: int
    spark: bool = False


@dataclass(slots=True, kw_only=True)
class Undo:
    """What an operation left behind that ends by itself, or at a look at everything."""

    due_s: float
    what: str
    act: Callable[[], object]


@dataclass(slots=True, kw_only=True)
class World:
    """All there is, and what was broken."""

    folder: Path
    size: Size
    journal: Journal
    clusters: Mapping[str, LocalCluster]
    admins: Mapping[str, AdminClient]
    ends: Mapping[str, Ends]
    proxies: Mapping[str, Sequence[TcpProxy]]
    """One before each broker, by cluster; only the mirror goes through them."""
    file: Path
    drivers: Drivers
    truth: Truth
    workloads: tuple[str, ...]
    words: dict[str, str]
    """Everything secret that there ever was, by what it is."""
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    """Partitions by topic, by workload; topics that are being deleted are not in it."""
    writers: list[Writer] = field(default_factory=list)
    tails: dict[str, Tail] = field(default_factory=dict)
    """Readers of the copies, by the cluster that has them."""
    undos: list[Undo] = field(default_factory=list)
    settings: dict[tuple[str, str], str] = field(default_factory=dict)
    """The followed setting of topics, by cluster and topic."""
    moves: list[GroupLook] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    """What an operation saw that must not be."""
    hurt: set[tuple[str, int]] = field(default_factory=set)
    """Brokers that are down or stopped."""
    turn: threading.RLock = field(default_factory=threading.RLock)
    """Of whoever ends what is over."""
    made: int = 0
    """Topics, groups and clients made so far, for names."""

    @property
    def secrets(self) -> Secrets:
        return self.words

    @property
    def flows(self) -> tuple[str, ...]:
        return tuple(flows_of(self.workloads, self.folder))

    @property
    def channels(self) -> list[Channel]:
        return list(self.lanes)

    def partitions(self, channel: Channel) -> int:
        return self.lanes[channel]

    @property
    def lanes(self) -> dict[Channel, int]:
        """Partitions of each topic that a flow carries."""
        every = {workload: dict(topics) for workload, topics in list(self.topics.items())}
        return {
            channel: count
            for workload, topics in every.items()
            for topic, count in topics.items()
            for channel in channels_of(workload, topic)
        }

    def next_number(self) -> int:
        self.made += 1
        return self.made

    def later(self, seconds: float, what: str, act: Callable[[], object]) -> None:
        """What an operation does ends by itself, whatever else happens meanwhile."""
        self.undos.append(Undo(due_s=time.monotonic() + seconds, what=what, act=act))

    @contextmanager
    def undoing(self) -> Iterator[None]:
        """What is over ends at its time, on a thread of its own."""
        stop, failed = threading.Event(), list[BaseException]()

        def run() -> None:
            try:
                while not stop.wait(_UNDO_S):
                    self.due()
            except BaseException as exc:  # noqa: BLE001 - raised again below
                failed.append(exc)

        thread = threading.Thread(target=run, name="undo", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]

    def due(self, *, everything: bool = False) -> list[Undo]:
        """End what is over, or all that was broken; what could not be ended just now."""
        with self.turn:
            return self._due(everything=everything)

    def _due(self, *, everything: bool) -> list[Undo]:
        failed: list[Undo] = []
        now_s = time.monotonic()
        for undo in [each for each in list(self.undos) if everything or each.due_s <= now_s]:
            self.undos.remove(undo)
            try:
                undo.act()
            except UNKNOWN as exc:
                # In the midst of other faults; tried again when all else is mended.
                self.journal.note("undo", of=undo.what, problem=f"{type(exc).__name__}: {exc}")
                failed.append(undo)
            else:
                self.journal.note("undo", of=undo.what)
        if not everything:
            self.undos += [replace(undo, due_s=now_s + _AGAIN_S) for undo in failed]
        return failed

    def heal(self) -> None:
        """Nothing is broken any more, and every process is there."""
        failed = self.due(everything=True)
        for driver in list(self.drivers.current):
            self.drivers.wake(driver)
        for name, cluster in self.clusters.items():
            for proxy in self.proxies[name]:
                proxy.delay_ms, proxy.bytes_per_s, proxy.drops_every = 0, None, None
                proxy.release()
                proxy.accept()
            if not cluster.running:
                cluster.revive()
        self.hurt.clear()
        for undo in failed:
            undo.act()
            self.journal.note("undo", of=undo.what)
        self.drivers.fill()

    def add_topic(self, workload: str, partitions: int) -> str:
        """A topic that the mirror has to find by itself; on both sides under one name."""
        name = f"{workload}-{self.next_number()}"
        self.create(workload, name, partitions)
        self.topics[workload][name] = partitions
        return name

    def create(self, workload: str, name: str, partitions: int) -> None:
        config = _COMPACTING if workload == "compacted" else {}
        for alias in ("A", "B") if workload == "both" else ("A",):
            create_topic(
                self.clusters[alias],
                name,
                partitions=partitions,
                replicas=self.size.brokers,
                config={"retention.ms": "-1", **config},
            )

    def remember(self, what: str, word: str) -> str:
        self.words[what] = word
        return word


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """Where a failover would have put a group at some moment; judged once all is known."""

    operation: int
    channel: Channel
    partition: int
    incarnation: int
    group: str
    source_offset: int
    target_offset: int
    is_clamped_after: bool


@contextmanager
def open_world(
    folder: Path, size: Size, workloads: tuple[str, ...], journal: Journal, seed: int
) -> Iterator[World]:
    """Everything started, and ended with the block."""
    with ExitStack() as stack:
        proxies = {
            alias: [stack.enter_context(TcpProxy()) for _ in range(size.brokers)] for alias in "AB"
        }
        words = {alias: f"first-word-{secrets.token_hex(8)}" for alias in "AB"}
        specs = [_spec(alias, size, proxies[alias], words[alias]) for alias in "AB"]
        clusters = stack.enter_context(local_clusters(specs, root=folder / "clusters"))
        for alias, cluster in clusters.items():
            for proxy, broker in zip(proxies[alias], cluster.brokers, strict=True):
                proxy.target_port = broker.ports.proxied
            write_password(folder, alias, words[alias])
        token = f"token-{secrets.token_hex(12)}"
        tokens = folder / "tokens"
        tokens.write_text(f"campaign recover {token}\n")
        tokens.chmod(0o600)
        file = write_file(folder, clusters, workloads, tokens=tokens, more={})
        logs = folder / "logs"
        logs.mkdir()
        drivers = Drivers(
            file,
            logs,
            token,
            count=size.drivers,
            arguments=("--master", "local[2]", "--slots", "2") if size.spark else (),
            program=ON_SPARK if size.spark else ON_THREADS,
        )
        stack.callback(drivers.close)
        world = World(
            folder=folder,
            size=size,
            journal=journal,
            clusters=clusters,
            admins={
                alias: AdminClient({**cluster.librdkafka_config, "log_level": 0})
                for alias, cluster in clusters.items()
            },
            ends={alias: Ends(cluster) for alias, cluster in clusters.items()},
            proxies=proxies,
            file=file,
            drivers=drivers,
            truth=Truth(),
            workloads=workloads,
            words={
                **{f"password on {alias}": word for alias, word in words.items()},
                "token": token,
            },
        )
        _populate(world, seed)
        drivers.fill()
        drivers.await_leaders(world.flows, 120.0)
        for writer in world.writers:
            writer.start()
        try:
            yield world
        finally:
            # Of a world that is to go in any case nothing is waited for in vain.
            world.heal()
            for writer in world.writers:
                writer.stop()
            for tail in world.tails.values():
                tail.close()


def _spec(alias: str, size: Size, proxies: Sequence[TcpProxy], word: str) -> ClusterSpec:
    safe = {"min.insync.replicas": "2"} if size.brokers > 2 else {}
    return ClusterSpec(
        alias=alias,
        brokers=size.brokers,
        sasl=MECHANISM,
        users={MIRROR_USER: word},
        broker_config={
            **safe,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
        },
        advertised_ports=tuple(proxy.port for proxy in proxies),
        heap_mb=256,
        jvm_options=FAST_START,
    )


def _populate(world: World, seed: int) -> None:
    """Topics and clients of each workload."""
    if PIPELINE in world.workloads:
        create_topic(world.clusters["B"], PIPED, partitions=2, replicas=world.size.brokers)
    for workload in world.workloads:
        world.topics[workload] = {}
        world.add_topic(workload, _FIRST_PARTITIONS)
        for alias in ("A", "B") if workload == "both" else ("A",):
            world.writers.append(_writer(world, workload, alias, seed))
        if workload == "foreign":
            world.writers.append(_foreigner(world, seed))
    for alias in "AB":

        def copies(alias: str = alias) -> set[str]:
            return {each.target_topic for each in world.channels if each.target == alias}

        world.tails[alias] = Tail(world.clusters[alias], copies)


def _writer(world: World, workload: str, alias: str, seed: int) -> Writer:
    return Writer(
        world.clusters[alias],
        world.truth,
        f"{workload}-{alias}",
        lambda: dict(world.topics[workload]),
        seed=seed,
        transactional=workload == "transactional",
        compacted=workload == "compacted",
    )


def _foreigner(world: World, seed: int) -> Writer:
    """Writes into the copies of a flow, once they are there."""

    def copies() -> dict[str, int]:
        known = world.tails["B"].known
        names = [f"A.{name}" for name in world.topics["foreign"]]
        return {name: known[name] for name in names if name in known}

    return Writer(world.clusters["B"], world.truth, "foreigner", copies, seed=seed, records=(1, 3))
