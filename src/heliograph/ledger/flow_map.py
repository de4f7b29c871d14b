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
from heliograph.ledger.translate import LaneEnd, Translated, to_target
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import LaneId, LaneProgress, Starting, TopicPartition
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


class FlowMap(Protocol):
    """What checkpoints, offset syncs and group offsets need to know of a flow."""

    def lanes(self) -> Lanes:
        """By source partition; only lanes that have begun. Raises `BrokerError`."""
        ...

    def translate(self, asked: Iterable[Asked]) -> tuple[Lanes, Mapping[Asked, Translated]]:
        """As `lanes`, and what offsets become there, both as of the same moment.

        Answers are left out where there is no lane, or none that is safe. Raises `BrokerError`.
        """
        ...


class RunningMap:
    """The map of a flow that is being mirrored by the slots of this driver."""

    def __init__(
        self,
        flow: FlowConfig,
        ledgers: LedgerService,
        progress: Callable[[], Mapping[LaneId, LaneProgress]],
    ) -> None:
        self._flow = flow.id
        self._policy = naming_policy(flow)
        self._ledgers = ledgers
        self._progress = progress

    def lanes(self) -> Lanes:
        ends = self._ends()
        return self._ledgers.ask(self._flow, lambda view: _lanes(view, ends, self._policy))

    def translate(self, asked: Iterable[Asked]) -> tuple[Lanes, Mapping[Asked, Translated]]:
        ends = self._ends()
        wanted = [one for one in asked if one[0] in ends]
        return self._ledgers.ask(
            self._flow,
            lambda view: (_lanes(view, ends, self._policy), translate_all(view, ends, wanted)),
        )

    def _ends(self) -> dict[TopicPartition, LaneEnd]:
        return {
            lane.source: LaneEnd(
                position=at.position,
                source_next_offset=at.source_next_offset,
                target_next_offset=at.target_next_offset,
            )
            for lane, at in self._progress().items()
            if lane.flow == self._flow and not isinstance(at.state, Starting)
        }


def translate_all(
    view: LedgerView, ends: Mapping[TopicPartition, LaneEnd], asked: Iterable[Asked]
) -> dict[Asked, Translated]:
    """Every question that has a safe answer, with it."""
    answers: dict[Asked, Translated] = {}
    for source, next_offset in asked:
        record = _explained(view, source, ends[source])
        if record is None:
            continue
        found = to_target(record.runs, ends[source], next_offset)
        if found.clamped == "before" and record.starts[0].adopted:
            # What came before was mirrored by somebody else, at offsets the ledger does not know:
            # the nearest one it knows would skip records that are there.
            continue
        answers[source, next_offset] = found
    return answers


def _lanes(
    view: LedgerView, ends: Mapping[TopicPartition, LaneEnd], policy: NamingPolicy
) -> dict[TopicPartition, LaneAt]:
    found: dict[TopicPartition, LaneAt] = {}
    for source, end in ends.items():
        record = _explained(view, source, end)
        if record is None:
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


def _explained(view: LedgerView, source: TopicPartition, end: LaneEnd) -> LaneRecord | None:
    """The lane's record where the ledger explains all of it; None where nothing is to be said."""
    record = view.lane(source.topic, source.partition)
    if record is None or not record.starts or not record.runs.explains(end.position):
        return None
    # Target offsets that go back are put right by the lane's next resync; until then none is safe.
    return None if record.runs.overlap_at is not None else record
