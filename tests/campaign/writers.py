"""Clients that write while everything is broken, and know what they wrote. Threads of their own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.campaign.truth import Fate, Sent, Truth

_FLUSH_S, _LAST_FLUSH_S = 60.0, 5.0
_ROUND_S: Final = (0.05, 0.4)
_ABORTED_SHARE: Final = 0.3
_TOMBSTONE_SHARE: Final = 0.25
_KEYS: Final = 40
_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Make = Callable[[random.Random, str, int], Sent]


def producer_of(cluster: LocalCluster, settings: dict[str, Any]) -> Producer:
    return Producer(
        {
            **cluster.librdkafka_config,
            "acks": "all",
            # Brokers die all the time; what matters is what became of each record.
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
            "message.timeout.ms": int(_FLUSH_S * 1000),
            **settings,
        }
    )


def send(producer: Producer, sent: Sent, *, is_final: bool) -> None:
    """`is_final`: an acknowledgement is all it takes; otherwise its transaction decides."""

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sent.fate = Fate.UNKNOWN
            return
        sent.offset, sent.acked_s = message.offset(), time.monotonic()
        if is_final:
            sent.fate = Fate.COMMITTED

    key, value, headers, timestamp_ms = sent.content
    while True:
        try:
            producer.produce(
                sent.topic,
                value,
                key,
                partition=sent.partition,
                timestamp=timestamp_ms,
                headers=list(headers),
                on_delivery=answered,
            )
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return


def write_once(
    cluster: LocalCluster, some: Sequence[Sent], settings: dict[str, Any] | None = None
) -> int:
    """A burst by a client of its own; how many were acknowledged."""
    producer = producer_of(cluster, {"enable.idempotence": True, **(settings or {})})
    for sent in some:
        send(producer, sent, is_final=True)
    left: int = producer.flush(_FLUSH_S)
    doubt([sent for sent in some if sent.fate is Fate.PENDING])
    return len(some) - left - sum(sent.fate is Fate.UNKNOWN for sent in some)


def doubt(some: Sequence[Sent]) -> None:
    for sent in some:
        sent.fate = Fate.UNKNOWN


class Writer:
    """One workload's client on one cluster; writes a few records each round until stopped."""

    def __init__(
        self,
        cluster: LocalCluster,
        truth: Truth,
        name: str,
        topics: Callable[[], dict[str, int]],
        *,
        seed: int,
        transactional: bool = False,
        compacted: bool = False,
        records: tuple[int, int] = (1, 12),
    ) -> None:
        self.name = name
        self._cluster, self._truth, self._topics = cluster, truth, topics
        self._transactional, self._compacted, self._records = transactional, compacted, records
        self._chance = random.Random(f"{seed} {name}")
        self._stop = threading.Event()
        self._turn = threading.RLock()
        """Held for a round; who takes it finds nothing under way."""
        self._producer: Producer | None = None
        self.problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"writer {name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(3 * _FLUSH_S)
        assert not self._thread.is_alive(), f"the writer {self.name} does not end"
        if self.problem is not None:
            raise self.problem

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Nothing is under way until the block ends; then with a client of its own again."""
        with self._turn:
            self._renew()
            yield

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._chance.uniform(*_ROUND_S)):
                with self._turn:
                    self._round()
            with self._turn:
                self._renew()
        except BaseException as exc:  # noqa: BLE001 - raised again by `stop`
            self.problem = exc

    def _renew(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.flush(_FLUSH_S)

    def _round(self) -> None:
        topics = self._topics()
        if not topics:
            return
        topic = self._chance.choice(sorted(topics))
        some = [
            self._record(topic, topics[topic]) for _ in range(self._chance.randint(*self._records))
        ]
        try:
            if self._producer is None:
                self._producer = self._begin()
            if self._transactional:
                self._transact(self._producer, some)
            else:
                self._write(self._producer, some)
        except KafkaException:
            # Its broker died under it, it was fenced, or a partition is too new for it. What it
            # has is sent, or nobody would know of these records.
            if self._producer is not None and not self._transactional:
                self._producer.flush(_LAST_FLUSH_S)
            doubt([sent for sent in some if sent.fate is Fate.PENDING])
            self._producer = None

    def _begin(self) -> Producer:
        chance = self._chance
        settings: dict[str, Any] = {
            "enable.idempotence": True,
            "linger.ms": chance.choice((0, 2, 10)),
            "batch.num.messages": chance.choice((1, 5, 1000)),
            "compression.type": chance.choice(_CODECS),
        }
        if self._transactional:
            settings |= {
                "transactional.id": f"campaign-{self.name}",
                "transaction.timeout.ms": 20_000,
            }
        producer = producer_of(self._cluster, settings)
        if self._transactional:
            producer.init_transactions(_FLUSH_S)
        return producer

    def _write(self, producer: Producer, some: Sequence[Sent]) -> None:
        for sent in some:
            send(producer, sent, is_final=True)
        producer.flush(_FLUSH_S)
        pending = [sent for sent in some if sent.fate is Fate.PENDING]
        if pending:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if any(sent.fate is Fate.UNKNOWN for sent in some):
            # An idempotent client that gave a record up is of no more use.
            self._producer = None

    def _transact(self, producer: Producer, some: Sequence[Sent]) -> None:
        producer.begin_transaction()
        for sent in some:
            send(producer, sent, is_final=False)
        producer.flush(_FLUSH_S)
        if self._chance.random() < _ABORTED_SHARE:
            producer.abort_transaction(_FLUSH_S)
            for sent in some:
                sent.fate = Fate.ABORTED
            return
        began_s = time.monotonic()
        producer.commit_transaction(_FLUSH_S)
        for sent in some:
            sent.visible_s, sent.acked_s = began_s, time.monotonic()
            sent.fate = Fate.COMMITTED

    def _record(self, topic: str, partitions: int) -> Sent:
        chance = self._chance
        key: bytes | None = b"k%d" % chance.randrange(_KEYS)
        value: bytes | None = b"v" * chance.choice((0, 10, 100, 1000))
        if self._compacted:
            # One key is always in one partition, as with every client.
            number = int((key or b"k0")[1:]) % partitions
            if chance.random() < _TOMBSTONE_SHARE:
                value = None
        else:
            number = chance.randrange(partitions)
            if chance.random() < 0.1:
                key = None
        return self._truth.new(self._cluster.alias, topic, number, key=key, value=value)
