"""A reader that follows the copies while everything is broken: what it saw may never change."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from heliograph_tools.localkafka.cluster import LocalCluster
from tests.campaign.truth import ID_HEADER

_LOOK_S: Final = 1.0
_END_S: Final = 30.0
_MISSING: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A record at the moment it came."""

    offset: int
    id: bytes
    at_s: float


class Tail:
    """Reads committed records of the topics that `wanted` names, with offsets assigned."""

    def __init__(self, cluster: LocalCluster, wanted: Callable[[], set[str]]) -> None:
        self._cluster, self._wanted = cluster, wanted
        self.seen: defaultdict[tuple[str, int], list[Seen]] = defaultdict(list)
        self.known: dict[str, int] = {}
        """Partitions of all topics of the cluster, as of a second ago."""
        self.problems: list[str] = []
        self._next: dict[tuple[str, int], int] = {}
        self._stop = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name="tail", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(_END_S)
        if self._failed is not None:
            raise self._failed

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as exc:  # noqa: BLE001 - raised again by `close`
            self._failed = exc

    def _run(self) -> None:
        consumer = Consumer(
            {
                **self._cluster.librdkafka_config,
                "group.id": "campaign-tail",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "check.crcs": True,
                "log_level": 0,
                "reconnect.backoff.max.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )
        look_at_s = 0.0
        while not self._stop.is_set():
            if time.monotonic() >= look_at_s:
                self._assign(consumer)
                look_at_s = time.monotonic() + _LOOK_S
            for message in consumer.consume(1_000, timeout=0.1):
                if message.error() is None:
                    self._take(
                        (message.topic(), message.partition()),
                        message.offset(),
                        dict(message.headers() or ()).get(ID_HEADER) or b"",
                    )
        consumer.close()

    def _assign(self, consumer: Consumer) -> None:
        try:
            found = consumer.list_topics(timeout=5.0).topics
        except KafkaException:
            # No broker answers just now; asked again in a second.
            return
        self.known = {name: len(topic.partitions) for name, topic in found.items()}
        wanted = self._wanted()
        fresh = [
            (name, number)
            for name in wanted & self.known.keys()
            for number in found[name].partitions
            if (name, number) not in self._next
        ]
        if fresh:
            for place in fresh:
                self._next[place] = 0
            consumer.incremental_assign([TopicPartition(*place, 0) for place in fresh])

    def _take(self, place: tuple[str, int], offset: int, name: bytes) -> None:
        if offset < self._next[place]:
            self.problems.append(
                f"{place[0]}-{place[1]}: the reader was given offset {offset} after "
                f"{self._next[place] - 1}"
            )
        self._next[place] = offset + 1
        self.seen[place].append(Seen(offset=offset, id=name, at_s=time.monotonic()))
