"""Send a flow's canaries, and look for what arrives. Runs on the driver.

One partition of one topic on the source, which the flow mirrors like any other. What arrives is
read by an ordinary consumer of the target; in a chain, canaries of the flows before come by too.
The sequence goes on where the topic says, so after a restart or a take-over no canary has the
number of another. Where the looking stopped is in the ledger.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from heliograph.broker.clients import Clients
from heliograph.broker.range_reader import PartitionReader
from heliograph.broker.records import Record, read_records
from heliograph.clock import monotonic_s, now_ms
from heliograph.compat.internal_topics import InternalTopic
from heliograph.compat.own_topics import canary_of
from heliograph.config.schema import FlowConfig
from heliograph.errors import BrokerError
from heliograph.ledger.canary_note import (
    Canary,
    CanaryNote,
    Track,
    arrived,
    canary_entry,
    canary_note,
    decode,
    encode,
)
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, TopicName, TopicPartition
from heliograph.topics.naming import (
    CANARY_PREFIX,
    canary_source,
    naming_policy,
    source_alias,
    target_alias,
)

_LOOK_S: Final = 1.0
_WAIT_S: Final = 2.0
"""For a canary that was just sent; one that takes longer is found at a later look."""
_TOPICS_S: Final = 60.0
"""Longest time between two looks for canary topics, which a chain may bring at any time."""
_STALE_S: Final = 30.0
"""Without a look for so long, another driver may have led the flow meanwhile."""
_TAIL: Final = 500
_AT_ONCE: Final = 100
_TIMEOUT_S: Final = 10.0
_HOPS_MAX: Final = 500
_READER: Final = {"fetch.wait.max.ms": 500, "enable.partition.eof": False}


class CanaryJob:
    """Called about once a second; sends when the next canary is due."""

    what: Final = "canary"

    def __init__(self, flow: FlowConfig, clients: Clients, ledgers: LedgerService) -> None:
        self.flow: Final[FlowId] = flow.id
        self.interval_s: Final[float] = min(_LOOK_S, flow.canary.interval_s / 4)
        self._settings, self._clients, self._ledgers = flow, clients, ledgers
        self._every_s = flow.canary.interval_s
        self._topic = InternalTopic(clients, clients.source(flow.id), canary_of(flow))
        self._driver = f"{socket.gethostname()} (pid {os.getpid()})"
        self._note = CanaryNote(at_ms=now_ms(), interval_s=self._every_s)
        self._waiting: dict[int, int] = {}
        """When the canaries were sent that have not arrived, by sequence."""
        self._eyes: _Eyes | None = None
        self._due_s = 0.0
        self._noted: CanaryNote | None = None
        self._stepped_s = float("-inf")

    def step(self) -> None:
        if monotonic_s() - self._stepped_s > _STALE_S:
            self._eyes = None
        try:
            if self._eyes is None:
                self._eyes = self._begin()
            if monotonic_s() >= self._due_s:
                self._send()
            self._look(self._eyes)
        except BrokerError as exc:
            self._note = replace(self._note, problem=str(exc))
            with suppress(BrokerError):
                self._write_note()
            raise
        finally:
            self._stepped_s = monotonic_s()
        if self._note.problem:
            self._note = replace(self._note, problem="")
        self._write_note()

    def finish(self) -> None:
        """A run that ends sends no more."""

    def _begin(self) -> _Eyes:
        """Where the sequence and the looking go on."""
        self._topic.ensure()
        noted = self._ledgers.ask(self.flow, canary_note)
        sent = [
            found
            for record in read_records(
                self._topic.cluster, self._topic.name, last_offsets=_TAIL, timeout_s=_TIMEOUT_S
            )
            if (found := decode(record.value)) is not None and found.flow == str(self.flow)
        ]
        last = max(sent, key=lambda canary: canary.sequence, default=None)
        base = noted or self._note
        track = base.track(str(self.flow))
        newest = -1 if track is None else track.sequence
        self._waiting = {
            canary.sequence: canary.sent_ms
            for canary in sent
            if track is not None and canary.sequence > newest
        }
        self._note = replace(
            base,
            interval_s=self._every_s,
            sequence=max(newest, base.sequence, -1 if last is None else last.sequence),
            sent_ms=base.sent_ms if last is None else last.sent_ms,
            topic=naming_policy(self._settings).target_topic(self._topic.name),
            problem="",
        )
        return _Eyes(
            clients=self._clients,
            flow=self.flow,
            own=self._topic.name,
            starts=dict(self._note.next_offsets),
            topics_s=min(_TOPICS_S, self._settings.refresh_interval_s),
        )

    def _send(self) -> None:
        canary = Canary(
            flow=str(self.flow),
            source=source_alias(self._settings),
            sequence=self._note.sequence + 1,
            sent_ms=now_ms(),
            interval_s=self._every_s,
            driver=self._driver,
        )
        key, value = encode(canary)
        try:
            self._topic.write([Record(key=key, value=value, timestamp_ms=canary.sent_ms)])
        except BrokerError:
            # It may be in the topic all the same: the sequence is looked up again.
            self._eyes = None
            raise
        self._due_s = monotonic_s() + self._every_s
        self._waiting[canary.sequence] = canary.sent_ms
        self._note = replace(self._note, sequence=canary.sequence, sent_ms=canary.sent_ms)

    def _look(self, eyes: _Eyes) -> None:
        eyes.follow(self._topics)
        until_s = monotonic_s() + min(_WAIT_S, self._every_s / 2)
        while True:
            self._take(eyes.seen(min(0.1, self.interval_s)))
            is_due = self._note.sequence in self._waiting and len(self._waiting) == 1
            if not is_due or not eyes.looks or monotonic_s() >= until_s:
                break
        self._note = replace(
            self._note,
            waiting_ms=min(self._waiting.values(), default=None),
            next_offsets=dict(eyes.next_offsets),
        )

    def _take(self, found: Iterable[_Seen]) -> None:
        tracks: dict[str, Track] = {track.flow: track for track in self._note.tracks}
        for seen in found:
            canary = seen.canary
            tracks[canary.flow] = arrived(
                tracks.get(canary.flow),
                canary,
                seen.at_ms,
                hop_ms=seen.hop_ms,
                was_there=seen.was_there,
            )
            if canary.flow == str(self.flow):
                # Those before it will not come any more: they are missing.
                self._waiting = {n: ms for n, ms in self._waiting.items() if n > canary.sequence}
        self._note = replace(self._note, tracks=tuple(tracks.values()))

    def _topics(self) -> Mapping[TopicName, TopicName]:
        """Canary topics of the source that the flow mirrors, with their names on the target."""
        policy, target = naming_policy(self._settings), target_alias(self._settings)
        names = self._clients.admin(self._clients.source(self.flow)).topic_names()
        return {
            name: policy.target_topic(name)
            for name in names
            if CANARY_PREFIX in name and canary_source(policy, name) not in (None, target)
        }

    def _write_note(self) -> None:
        """At once where something came or went: who looks must know soon that a canary waits."""
        if self._note == self._noted:
            return
        self._note = replace(self._note, at_ms=now_ms())
        self._ledgers.note(self.flow, [canary_entry(self._note)])
        self._noted = self._note


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    canary: Canary
    at_ms: int
    hop_ms: int | None
    was_there: bool


@dataclass(slots=True, kw_only=True, eq=False)
class _Eyes:
    """Consumers of the canary topics: on the target, and on the source where a chain brings some
    from further away. Used by the job's step alone."""

    clients: Clients
    flow: FlowId
    own: TopicName
    """The source's own canaries: when they were written is in them."""
    starts: dict[str, int]
    topics_s: float
    next_offsets: dict[str, int] = field(default_factory=dict)
    _ends: dict[TopicName, int] = field(default_factory=dict)
    _target: PartitionReader | None = None
    _source: PartitionReader | None = None
    _passed: dict[tuple[str, int], int] = field(default_factory=dict)
    """When canaries of other flows were seen on the source."""
    _followed: dict[TopicName, TopicName] = field(default_factory=dict)
    _due_s: float = 0.0

    @property
    def looks(self) -> bool:
        return self._target is not None

    def follow(self, topics: Callable[[], Mapping[TopicName, TopicName]]) -> None:
        """Look at the topics there are now and then, and sooner while there is none."""
        if monotonic_s() < self._due_s:
            return
        wanted = topics()
        admin = self.clients.admin(self.clients.target(self.flow))
        there = admin.describe_topics(set(wanted.values()))
        present = {name: target for name, target in wanted.items() if target in there}
        self._due_s = monotonic_s() + (self.topics_s if len(present) == len(wanted) else _LOOK_S)
        if present == self._followed or not present:
            return
        self._followed = present
        self._assign_target(sorted(present.values()))
        passing = present.keys() - {self.own}
        if passing:
            self._assign_source(sorted(passing))

    def _assign_target(self, topics: list[TopicName]) -> None:
        admin = self.clients.admin(self.clients.target(self.flow))
        places = [TopicPartition(topic=topic, partition=0) for topic in topics]
        firsts, ends = admin.list_offsets(places, "earliest"), admin.list_offsets(places, "latest")
        starts: dict[TopicPartition, int] = {}
        for at in places:
            first, end = firsts.get(at, 0), ends.get(at, 0)
            known = self.next_offsets.get(at.topic, self.starts.get(at.topic))
            # What was there before anyone looked counts, and has no latency.
            start = known if known is not None else max(first, end - _TAIL)
            starts[at] = min(max(start, first), end)
            self.next_offsets[at.topic] = starts[at]
            self._ends.setdefault(at.topic, end)
        if self._target is None:
            target = self.clients.target(self.flow)
            self._target = PartitionReader(target, read_committed=True, settings=_READER)
        self._target.assign(starts)

    def _assign_source(self, topics: list[TopicName]) -> None:
        admin = self.clients.admin(self.clients.source(self.flow))
        places = [TopicPartition(topic=topic, partition=0) for topic in topics]
        if self._source is None:
            source = self.clients.source(self.flow)
            self._source = PartitionReader(source, read_committed=True, settings=_READER)
        self._source.assign(dict(admin.list_offsets(places, "latest")))

    def seen(self, wait_s: float) -> list[_Seen]:
        """What arrived since the last look."""
        self._look_at_source()
        if self._target is None:
            return []
        # The first is timed when it comes: asking for many waits the whole time for the others.
        arrivals = [(each, now_ms()) for each in self._target.arrived(1, wait_s)]
        arrivals += [(each, now_ms()) for each in self._target.arrived(_AT_ONCE, 0.0)]
        # Once more: a canary that went past both clusters meanwhile has a hop too. Where those of a
        # chain are sent at the same moments, each would be seen here before it was seen there.
        self._look_at_source()
        found: list[_Seen] = []
        for arrival, at_ms in arrivals:
            topic = arrival.at.topic
            self.next_offsets[topic] = arrival.offset + 1
            canary = decode(arrival.message.value())
            if canary is None:
                continue
            passed_ms = self._passed.pop((canary.flow, canary.sequence), None)
            found.append(
                _Seen(
                    canary=canary,
                    at_ms=at_ms,
                    hop_ms=None if passed_ms is None else max(0, at_ms - passed_ms),
                    was_there=arrival.offset < self._ends.get(topic, 0),
                )
            )
        return found

    def _look_at_source(self) -> None:
        if self._source is None:
            return
        for arrival in self._source.arrived(_AT_ONCE, 0.0):
            canary = decode(arrival.message.value())
            if canary is not None:
                self._passed[canary.flow, canary.sequence] = now_ms()
        while len(self._passed) > _HOPS_MAX:
            self._passed.pop(next(iter(self._passed)))
