"""What the driver measures now and then, besides what slots report. Runs on the driver, blocking.

Each question is asked again after a while of its own, on a thread that no look waits for: alarms
must not come late because a cluster does not answer. What was answered last counts meanwhile. What
cannot be asked is not known, and is no error of the flow: an alarm that is about it stays as it is.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from aiokafka.record.default_records import DefaultRecordBatch

from heliograph.broker.clients import Clients
from heliograph.broker.cluster import LATEST, Cluster, open_cluster
from heliograph.broker.log import read_batches
from heliograph.broker.log_dirs import partition_bytes
from heliograph.broker.quorum import controller_clock
from heliograph.broker.transactions import transactional_ids
from heliograph.broker.view import TopicSetting
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.errors import MirrorError, NotAuthorised
from heliograph.health.certificates import certificates_of
from heliograph.health.horizons import Horizon, horizon_of
from heliograph.health.sight import Certificate
from heliograph.ledger.access import within
from heliograph.ledger.entries import LeaseEntry, ledger_topic
from heliograph.ledger.entry_codec import decode
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.wire.batch import BatchHeader

T = TypeVar("T")
log = logging.getLogger(__name__)

_HOUR_S: Final = 3_600.0
_LEDGER_S: Final = 300.0
_HORIZON_S: Final = 600.0
_ANSWER_S_MAX: Final = 10.0
_TAIL: Final = 50
_TOPICS_AT_ONCE: Final = 200
_WRITERS_MAX: Final = 5
_ID_CHARS_MAX: Final = 60
_CLOCKS_S: Final = 300.0
_CLOCK_TRIES: Final = 3
_WAIT_S_MAX: Final = 0.5
"""For an answer, at the look that asks; later looks take it when it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSeen:
    bytes: int | None = None
    ahead_s: float | None = None
    """How far the clock of the ledger's broker is ahead of this driver's."""


Settings = Mapping[TopicName, Mapping[str, TopicSetting] | NotAuthorised]
Clocks = Mapping[ClusterAlias, float | None]
"""By cluster, how many seconds its clock is ahead of the driver's; None where it is not told."""


class _Asking(Generic[T]):
    """One question at a time, on a thread of its own."""

    def __init__(self) -> None:
        self._asking: Future[T] | None = None

    @property
    def is_open(self) -> bool:
        return self._asking is not None

    def ask(self, question: Callable[[], T]) -> None:
        """Waits for a moment: most clusters answer at once."""
        asking = self._asking = Future[T]()

        def run() -> None:
            try:
                asking.set_result(question())
            except Exception as exc:  # noqa: BLE001 - raised where the answer is taken
                asking.set_exception(exc)

        threading.Thread(target=run, name="probe", daemon=True).start()
        wait([asking], _WAIT_S_MAX)

    def taken(self) -> T | None:
        """The answer, once; None while there is none. Raises what the question raised."""
        asking = self._asking
        if asking is None or not asking.done():
            return None
        self._asking = None
        return asking.result()


class _Asked(Generic[T]):
    """An answer, and when to ask again."""

    def __init__(self, every_s: float, nothing: T) -> None:
        self._every_s, self._nothing, self._answer = every_s, nothing, nothing
        self._due_s = float("-inf")
        self._asking = _Asking[T]()

    def get(self, ask: Callable[[], T]) -> T:
        if not self._asking.is_open and monotonic_s() >= self._due_s:
            self._asking.ask(ask)
        try:
            found = self._asking.taken()
        except MirrorError as exc:
            log.debug("not measured: %s", exc)
            found = self._nothing
        if found is not None:
            self._answer, self._due_s = found, monotonic_s() + self._every_s
        return self._answer


class Probes:
    """Of one flow; used by one thread at a time."""

    def __init__(
        self, config: MirrorConfig, flow: FlowId, clients: Clients, *, author: str
    ) -> None:
        """`author` signs what this driver writes to the ledger."""
        self._config, self._flow, self._clients, self._author = config, flow, clients, author
        self._ledger = _Asked(_LEDGER_S, LedgerSeen())
        self._clocks = _Asked[Clocks](_CLOCKS_S, dict.fromkeys((flow.source, flow.target)))
        self._certificates = _Asked[tuple[Certificate, ...]](_HOUR_S, ())
        self._horizons: dict[TopicName, tuple[float, Horizon | None]] = {}
        self._settings = _Asking[Settings]()

    def ledger(self) -> LedgerSeen:
        """Its size, and the clock of its broker."""
        return self._ledger.get(lambda: asyncio.run(self._look_at_ledger()))

    def clocks(self) -> Clocks:
        """By the active controllers of both clusters."""
        return self._clocks.get(lambda: asyncio.run(self._controllers_ahead_s()))

    def certificates(self) -> tuple[Certificate, ...]:
        return self._certificates.get(lambda: certificates_of(self._config, self._flow))

    def horizons(self, topics: Iterable[TopicName]) -> Mapping[TopicName, Horizon | None]:
        """Of topics that are behind; None where the source does not tell, or was not asked yet.

        A look asks about so many topics at most, those that were never asked about first, so that
        however many are behind, the next looks come to all of them.
        """
        wanted, now_s = set(topics), monotonic_s()
        self._horizons = {
            name: found
            for name, found in self._horizons.items()
            if name in wanted or found[0] >= now_s
        }
        ages = {name: self._horizons.get(name, (0.0, None))[0] for name in wanted}
        due = sorted((again_s, name) for name, again_s in ages.items() if again_s < now_s)
        asked = [name for _, name in due[:_TOPICS_AT_ONCE]]
        if asked and not self._settings.is_open:
            self._horizons |= dict.fromkeys(asked, (now_s + _HORIZON_S, None))
            self._settings.ask(lambda: self._told_settings(asked))
        try:
            told = self._settings.taken() or {}
        except MirrorError as exc:
            log.debug("%s: retention is not known: %s", self._flow, exc)
            told = {}
        self._horizons |= {
            name: (now_s + _HORIZON_S, horizon_of(settings))
            for name, settings in told.items()
            if isinstance(settings, Mapping)
        }
        return {name: self._horizons.get(name, (0.0, None))[1] for name in wanted}

    def _told_settings(self, topics: list[TopicName]) -> Settings:
        return self._clients.admin(self._clients.source(self._flow)).topic_configs(topics)

    def writers(self, partitions: Iterable[TopicPartition], own: int | None) -> str:
        """Producers of target partitions that are not this flow's, in words. A broker keeps no
        client ids; it knows producers that are idempotent, and what transactional ids they have."""
        try:
            found = asyncio.run(self._producers(list(partitions), own))
        except MirrorError as exc:
            return f"writers are not known: {exc}"
        if not found:
            return "no producer id is known: one without idempotence has none"
        # Those with a name first: it is what an operator knows.
        ranked = sorted(found, key=lambda id_: (not found[id_], id_))
        named = (
            f"{id_} (transactional id {found[id_][:_ID_CHARS_MAX]})" if found[id_] else str(id_)
            for id_ in ranked[:_WRITERS_MAX]
        )
        more = " and more" if len(ranked) > _WRITERS_MAX else ""
        return f"producer ids {', '.join(named)}{more}"

    async def _producers(self, partitions: list[TopicPartition], own: int | None) -> dict[int, str]:
        """By producer id the transactional id, which is empty where none is known."""
        cluster = self._open()
        try:
            await within(
                cluster.refresh({at.topic for at in partitions}), _ANSWER_S_MAX, "the target"
            )
            answers = await within(cluster.producer_ids(partitions), _ANSWER_S_MAX, "the target")
            told = [found for found in answers.values() if isinstance(found, frozenset)]
            ids = frozenset[int]().union(*told) - {own}
            if not ids:
                return {}
            try:
                asked = transactional_ids(cluster, ids)
                names = await within(asked, _ANSWER_S_MAX, "the target")
            except MirrorError as exc:
                log.debug("%s: transactional ids are not known: %s", self._flow, exc)
                names = {}
        finally:
            cluster.close()
        return {id_: names.get(id_, "") for id_ in ids}

    async def _look_at_ledger(self) -> LedgerSeen:
        cluster = self._open()
        topic = ledger_topic(self._flow.source)
        at = TopicPartition(topic=topic, partition=0)
        try:
            await within(cluster.refresh({topic}), _ANSWER_S_MAX, f"ledger of {self._flow}")
            size = await within(
                partition_bytes(cluster, at), _ANSWER_S_MAX, f"ledger of {self._flow}"
            )
            seen = LedgerSeen(bytes=size)
            try:
                ahead_s = await within(
                    _ahead_s(cluster, at, self._author), _ANSWER_S_MAX, f"ledger of {self._flow}"
                )
            except MirrorError as exc:
                log.debug("%s: its clock is not known: %s", self._flow, exc)
                return seen
            return replace(seen, ahead_s=ahead_s)
        finally:
            cluster.close()

    async def _controllers_ahead_s(self) -> dict[ClusterAlias, float | None]:
        clusters = (self._config.source_of(self._flow), self._config.target_of(self._flow))
        found = await asyncio.gather(*map(self._controller_ahead_s, clusters))
        return {config.alias: ahead_s for config, ahead_s in zip(clusters, found, strict=True)}

    async def _controller_ahead_s(self, config: ClusterConfig) -> float | None:
        """Only as much as is certain; None where we are not told, which needs DESCRIBE on the
        cluster."""
        cluster = open_cluster(config, "admin", only_reads=True)
        try:
            clock = await within(
                controller_clock(cluster, _CLOCK_TRIES), _ANSWER_S_MAX, f"cluster {config.alias}"
            )
        except MirrorError as exc:
            log.debug("%s: the clock of %s is not known: %s", self._flow, config.alias, exc)
            return None
        finally:
            cluster.close()
        if clock is None:
            return None
        certain_s = max(0.0, abs(clock.ahead_ms) - clock.error_ms) / 1000
        return certain_s if clock.ahead_ms > 0 else -certain_s

    def _open(self) -> Cluster:
        return open_cluster(self._config.target_of(self._flow), "producer", only_reads=True)


async def _ahead_s(cluster: Cluster, ledger: TopicPartition, author: str) -> float | None:
    """By the leases this driver wrote: its time is in them, the broker's on them."""
    ends = await cluster.list_offsets([ledger], LATEST)
    end = ends[ledger]
    if not isinstance(end, int):
        raise end
    found: list[float] = []
    async for header, batch in read_batches(cluster, ledger, max(0, end - _TAIL), end):
        found += leases_ahead_s(header, batch, author)
    # A lease that took long to be written looks like a clock that is ahead.
    return min(found, key=abs, default=None)


def leases_ahead_s(header: BatchHeader, batch: memoryview, author: str) -> list[float]:
    """Of each lease of the author in a batch that the broker has put its time on."""
    if header.is_control or not header.is_log_append_time:
        return []
    found: list[float] = []
    for record in DefaultRecordBatch(bytes(batch)):
        key = record.key or b""
        if not key.startswith(b"lease|") or record.value is None:
            continue
        entry = decode(key, record.value)
        if isinstance(entry, LeaseEntry) and entry.author == author and entry.lease_ms:
            found.append((header.max_timestamp_ms - entry.at_ms) / 1000)
    return found
