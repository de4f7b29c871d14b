"""The exact offset map of one flow, as of the moment it is asked. Runs on the driver.

Progress first, ledger second: a run is durable before the first batch that needs it, so a ledger
read later than the progress explains all of it. Progress that is a moment old only makes an answer
a moment old, never one past what is mirrored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from heliograph.config.schema import FlowConfig
from heliograph.ledger.service import LedgerService
from heliograph.ledger.translate import LaneEnd, OffsetMap, Translated, translated
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    Awaited,
    LaneId,
    LaneProgress,
    Stalled,
    StallReason,
    Starting,
    TopicPartition,
    Waiting,
)
from heliograph.topics.naming import NamingPolicy, naming_policy

Asked = tuple[TopicPartition, int]
"""A source partition, and the next offset a consumer of it would read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneAt:
    """How far a lane has come, on both sides."""

    source: TopicPartition
    target: TopicPartition
    position: int
    last_source_offset: int | None
    """Of the newest mirrored record; None before the first."""
    last_target_offset: int | None


Lanes = Mapping[TopicPartition, LaneAt]
Progress = Mapping[LaneId, LaneProgress]


class FlowMap(Protocol):
    """What checkpoints, offset syncs and group offsets need to know of a flow."""

    def moved(self, since: Progress) -> tuple[Lanes, Progress]:
        """Lanes that have begun, by source partition: those of which there was news after `since`,
        which is what the call before returned; all where it is empty. Raises `BrokerError`."""
        ...

    def translate(self, asked: Iterable[Asked]) -> tuple[Lanes, Mapping[Asked, Translated]]:
        """All lanes that have begun, and what offsets become there, as of the same moment.

        Answers are left out where there is no lane, or none that is safe. Raises `BrokerError`.
        """
        ...


class RunningMap:
    """The map of a flow that is being mirrored by the slots of this driver."""

    def __init__(
        self,
        flow: FlowConfig,
        ledgers: LedgerService,
        progress: Callable[[], Progress],
    ) -> None:
        self._flow = flow.id
        self._policy = naming_policy(flow)
        self._ledgers = ledgers
        self._progress = progress

    def moved(self, since: Progress) -> tuple[Lanes, Progress]:
        progress = self._progress()
        news = {lane: at for lane, at in progress.items() if since.get(lane) is not at}
        ends = self._ends(news)
        if since and not ends:
            return {}, progress
        found = self._ledgers.ask(self._flow, lambda view: _lanes(view, ends, self._policy))
        return found, progress

    def translate(self, asked: Iterable[Asked]) -> tuple[Lanes, Mapping[Asked, Translated]]:
        ends = self._ends(self._progress())
        wanted = [one for one in asked if one[0] in ends]
        return self._ledgers.ask(
            self._flow,
            lambda view: (_lanes(view, ends, self._policy), _translated(view, ends, wanted)),
        )

    def _ends(self, progress: Progress) -> dict[TopicPartition, LaneEnd]:
        return {
            lane.source: LaneEnd(
                position=at.position,
                source_next_offset=at.source_next_offset,
                target_next_offset=at.target_next_offset,
            )
            for lane, at in progress.items()
            if lane.flow == self._flow and _has_map(at)
        }


def _has_map(at: LaneProgress) -> bool:
    """Whether the map speaks of the topics that are there now, up to where the lane is."""
    if isinstance(at.state, Stalled) and at.state.reason is StallReason.TOPIC_RECREATED:
        # Offsets of the new source topic are not those the map was made of.
        return False
    if isinstance(at.state, Waiting):
        # One that still starts, and has been at it for long.
        begins = at.state.awaited is Awaited.PLACE or at.source_end_offset < 0
        return not begins and at.target_next_offset >= 0
    return not isinstance(at.state, Starting) and at.target_next_offset >= 0


def _translated(
    view: LedgerView, ends: Mapping[TopicPartition, LaneEnd], asked: Iterable[Asked]
) -> dict[Asked, Translated]:
    """Every question that has a safe answer, with it."""
    maps = {source: _offset_map(view, source, end) for source, end in ends.items()}
    answers: dict[Asked, Translated] = {}
    for source, next_offset in asked:
        offsets = maps[source]
        found = None if offsets is None else translated(offsets.to_target(next_offset))
        if found is not None:
            answers[source, next_offset] = found
    return answers


def _lanes(
    view: LedgerView, ends: Mapping[TopicPartition, LaneEnd], policy: NamingPolicy
) -> dict[TopicPartition, LaneAt]:
    found: dict[TopicPartition, LaneAt] = {}
    for source, end in ends.items():
        record = view.begun_lane(source.topic, source.partition)
        if record is None or OffsetMap(record, end).unsafe is not None:
            continue
        has_records = end.position > record.runs.source_restart_position
        last = end.position - 1
        found[source] = LaneAt(
            source=source,
            target=TopicPartition(
                topic=policy.target_topic(source.topic), partition=source.partition
            ),
            position=end.position,
            last_source_offset=record.runs.source_offset_at(last) if has_records else None,
            last_target_offset=record.runs.target_offset_at(last) if has_records else None,
        )
    return found


def _offset_map(view: LedgerView, source: TopicPartition, end: LaneEnd) -> OffsetMap | None:
    record = view.begun_lane(source.topic, source.partition)
    return None if record is None else OffsetMap(record, end)
