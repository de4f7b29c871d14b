"""What was written where, and what became of it, by those who wrote it.

Every record has a name of its own in the header `id`, so that a log can be compared with what was
meant without asking the cluster that may have lost it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.kit.records import Headers, Rec

ID_HEADER: Final = "id"
Content = tuple[bytes | None, bytes | None, Headers, int]


class Fate(StrEnum):
    """What the writer knows of a record."""

    PENDING = "pending"
    """Sent; no answer yet, or its transaction is open."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """It may be in the log: the answer was an error, or none came."""


@dataclass(slots=True, kw_only=True)
class Sent:
    """One record as its writer knows it."""

    id: bytes
    cluster: str
    topic: str
    partition: int
    incarnation: int
    """How often the topic was deleted and created again before."""
    content: Content
    operation: int
    """The operation that was last when it was sent."""
    offset: int | None = None
    fate: Fate = Fate.PENDING
    acked_s: float = 0.0
    visible_s: float = 0.0
    """Before this moment no reader of committed records may have it."""


class Truth:
    """All that was sent. Writers and readers are threads, so each method takes the lock."""

    def __init__(self) -> None:
        self.operation = 0
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._sent: dict[bytes, Sent] = {}
        self._incarnations: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._deleted_before: defaultdict[tuple[str, str, int, int], set[int]] = defaultdict(set)

    def new(
        self,
        cluster: str,
        topic: str,
        partition: int,
        *,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int | None = None,
    ) -> Sent:
        """A record that is about to be sent."""
        with self._lock:
            name = b"%s.%s.%d" % (cluster.encode(), topic.encode(), next(self._numbers))
            at_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
            sent = Sent(
                id=name,
                cluster=cluster,
                topic=topic,
                partition=partition,
                incarnation=self._incarnations[cluster, topic],
                content=(key, value, ((ID_HEADER, name),), at_ms),
                operation=self.operation,
            )
            self._sent[name] = sent
            return sent

    def recreated(self, cluster: str, topic: str) -> None:
        """What is sent from now on goes to another topic of the same name."""
        with self._lock:
            self._incarnations[cluster, topic] += 1

    def incarnation(self, cluster: str, topic: str) -> int:
        return self._incarnations[cluster, topic]

    def deleted_before(self, cluster: str, topic: str, partition: int, offset: int) -> None:
        """The source's log was asked to begin at `offset`."""
        with self._lock:
            key = (cluster, topic, partition, self._incarnations[cluster, topic])
            self._deleted_before[key].add(offset)

    def cuts(self, cluster: str, topic: str, partition: int) -> frozenset[int]:
        """Offsets where the present topic's log was made to begin."""
        with self._lock:
            key = (cluster, topic, partition, self._incarnations[cluster, topic])
            return frozenset(self._deleted_before[key])

    def find(self, name: bytes) -> Sent | None:
        with self._lock:
            return self._sent.get(name)

    def of(self, cluster: str, topic: str) -> list[Sent]:
        """All that was sent to the topic, in the order it was sent."""
        with self._lock:
            every = list(self._sent.values())
        return [sent for sent in every if (sent.cluster, sent.topic) == (cluster, topic)]

    @property
    def count(self) -> int:
        return len(self._sent)


def id_of(rec: Rec) -> bytes | None:
    """The record's name; None where it has none, which no writer of ours would do."""
    return next((value for name, value in rec.headers if name == ID_HEADER), None)


def settle(sent: Iterable[Sent], source: dict[int, list[Rec]], incarnation: int) -> None:
    """What became of records whose writers do not know: a reader of the source does."""
    there = {
        (id_of(rec), number): rec.offset for number, records in source.items() for rec in records
    }
    for each in sent:
        if each.fate is not Fate.UNKNOWN or each.incarnation != incarnation:
            continue
        offset = there.get((each.id, each.partition))
        if offset is not None:
            each.offset, each.fate = offset, Fate.COMMITTED
