"""Records written without pause while everything else is killed: four kinds of topics."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import KafkaException, Producer

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.topics import create_topic

PLAIN: Final = "plain"
TINY: Final = "tiny"
TRANSACTIONS: Final = "transactions"
COMPACTED: Final = "compacted"
TOPICS: Final = (PLAIN, TINY, TRANSACTIONS, COMPACTED)
PARTITIONS: Final = 2
_COMPACTING: Final = {
    # As fast as a cleaner can: what a mirror has read may be gone when its successor reads again.
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1",
}
_ROUND_S: Final = 0.05
_TRICKLE: Final = 10
"""How much slower it goes on outside of a rush. All of it is compared record by record in the end,
and while Spark starts, records at the full rate would prove nothing more."""
_TIMEOUT_S: Final = 60.0


class Traffic:
    """Two threads: idempotent writers of three topics, and transactions some of which abort.

    What arrives at the source is what counts, so a write that a dying broker lost is not repeated
    here beyond what the client does by itself.
    """

    def __init__(self, source: LocalCluster, seed: int) -> None:
        self._source = source
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._rush_ends_s = 0.0
        self._stop = threading.Event()
        self._problems: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=work.__name__)
            for work in (self._write_plainly, self._write_transactions)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def rush(self, seconds: float) -> None:
        """At the full rate from now on, 1,700 records a second; then a trickle again."""
        self._rush_ends_s = time.monotonic() + seconds

    def stop(self) -> None:
        """Returns once all that was begun is in the source's log or has failed for good."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * _TIMEOUT_S)
            assert not thread.is_alive(), f"{thread.name} does not end"
        if self._problems:
            raise self._problems[0]

    @property
    def _is_rush(self) -> bool:
        return time.monotonic() < self._rush_ends_s

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except BaseException as exc:  # noqa: BLE001 - raised again by `stop`, on the test's thread
            self._problems.append(exc)

    def _write_plainly(self) -> None:
        settings: dict[str, Any] = {
            "enable.idempotence": True,
            "message.timeout.ms": 60_000,
            "linger.ms": 5,
            "batch.size": 16_384,
        }
        plain = self._producer(settings)
        tiny = self._producer({**settings, "batch.num.messages": 1, "linger.ms": 0})
        while not self._stop.wait((1 if self._is_rush else _TRICKLE) * _ROUND_S):
            for _ in range(60):
                self._send(plain, PLAIN, b"." * 300)
            for _ in range(15):
                self._send(tiny, TINY, b"")
            for _ in range(10):
                self._send(plain, COMPACTED, b"", keys=5)
            plain.poll(0)
            tiny.poll(0)
        plain.flush(_TIMEOUT_S)
        tiny.flush(_TIMEOUT_S)

    def _write_transactions(self) -> None:
        producer: Producer | None = None
        while not self._stop.is_set():
            if not self._is_rush:
                self._stop.wait(_TRICKLE * _ROUND_S)
            try:
                if producer is None:
                    producer = self._producer(
                        {"transactional.id": "traffic", "transaction.timeout.ms": 10_000}
                    )
                    producer.init_transactions(_TIMEOUT_S)
                self._one_transaction(producer)
            except KafkaException:
                # Its broker died under it; a new producer aborts what was left open.
                producer = None
        # The same for the last one, or it would hold the last stable offset back.
        self._producer({"transactional.id": "traffic"}).init_transactions(_TIMEOUT_S)

    def _one_transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        for _ in range(self._random.randint(1, 12)):
            self._send(producer, TRANSACTIONS, b"." * self._random.choice((0, 50, 3000)))
        producer.flush(_TIMEOUT_S)
        if self._random.random() < 0.6:
            producer.commit_transaction(_TIMEOUT_S)
        else:
            producer.abort_transaction(_TIMEOUT_S)
        self._stop.wait(self._random.choice((0, 0, 0.01, 0.05)))

    def _send(self, producer: Producer, topic: str, filling: bytes, keys: int = 1000) -> None:
        number = next(self._numbers)
        while True:
            try:
                producer.produce(
                    topic,
                    b"v%d" % number + filling,
                    b"k%d" % (number % keys),
                    partition=number % PARTITIONS,
                    headers=[("n", b"%d" % number)] if number % 7 == 0 else None,
                )
                return
            except BufferError:
                producer.poll(0.1)

    def _producer(self, settings: dict[str, Any]) -> Producer:
        return Producer(
            {
                **self._source.librdkafka_config,
                "reconnect.backoff.max.ms": 500,
                # Brokers are killed all the time; what matters shows in the logs compared.
                "log_level": 0,
                **settings,
            }
        )


def create_traffic_topics(source: LocalCluster, *, compacting: bool = True) -> None:
    """Not `compacting`: compacted by its policy, yet never within a test."""
    replicas = len(source.brokers)
    for topic in TOPICS:
        config = {}
        if topic == COMPACTED:
            waiting = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
            config = _COMPACTING if compacting else waiting
        create_topic(source, topic, partitions=PARTITIONS, replicas=replicas, config=config)


@contextmanager
def traffic(source: LocalCluster, seed: int) -> Iterator[Traffic]:
    """Writes until `stop`, at the end of the block at the latest."""
    flowing = Traffic(source, seed)
    flowing.start()
    try:
        yield flowing
    finally:
        flowing.stop()


def moments(seed: int, count: int, longest_s: float) -> Iterator[float]:
    """Pauses between two kills, as the seed says."""
    chosen = random.Random(f"moments {seed}")
    for _ in range(count):
        yield chosen.uniform(0.2, longest_s)


def nap(seconds: float) -> None:
    """Traffic and mirror go on meanwhile."""
    time.sleep(seconds)
