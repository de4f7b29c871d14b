"""Read what shadow groups get, and what the real ones would have got. Runs on the driver.

Few partitions, few records, one consumer after the other: the flow that is drilled is busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.range_reader import Stretch, StretchReader, read_as_group
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.drill.sample import (
    Compared,
    Lane,
    Window,
    compare,
    next_window,
    spread,
    stretch_bytes_max,
    window_before,
)
from heliograph.drill.shadow_groups import shadow_of
from heliograph.errors import BrokerError, NotAuthorised
from heliograph.groups.placement import GroupMove
from heliograph.groups.snapshot import FlowSnapshot
from heliograph.inspect.status import ANSWER_S_MAX
from heliograph.model import TopicName, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """What the sample of one group showed."""

    partitions: int
    compared: Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    groups: int
    slowest_s: float
    """Of one consumer: find its group's places, read its part of the sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """One group on one partition of the sample."""

    move: GroupMove
    lane: Lane
    window: Window


@dataclass(slots=True, kw_only=True)
class Sampler:
    """One drill's sample: the target first, as after a failover, then what it must equal."""

    config: MirrorConfig
    known: FlowSnapshot
    records_max: int
    turn: int
    notes: list[str] = field(default_factory=list)
    _places: dict[str, list[_Place]] = field(default_factory=dict)
    _got: dict[str, dict[TopicPartition, Stretch]] = field(default_factory=dict)
    _found: dict[str, Sampled] = field(default_factory=dict)

    def read_target(self, moves: Mapping[str, Sequence[GroupMove]]) -> Reading:
        """Raises `BrokerError`."""
        self._choose(moves)
        slowest_s = 0.0
        for group, locations in self._places.items():
            began_s = monotonic_s()
            got = read_as_group(
                self._target,
                shadow_of(group),
                {place.lane.target: place.window.target_offsets.end for place in locations},
                bytes_max=self._bytes_max,
                read_committed=self.known.flow.read_committed,
            )
            slowest_s = max(slowest_s, monotonic_s() - began_s)
            for place in locations:
                stretch = got.get(place.lane.target)
                if stretch is None or stretch.start != place.move.target_offset:
                    raise BrokerError(
                        f"cluster {self._target.alias}: {place.lane.target}: a consumer of "
                        f"{shadow_of(group)} was not given the offset that was committed"
                    )
            self._got[group] = got
        return Reading(groups=len(self._places), slowest_s=slowest_s)

    def compare(self) -> dict[str, Sampled]:
        """Raises `BrokerError`."""
        committed = self.known.flow.read_committed
        with (
            StretchReader(self._source, read_committed=committed) as source,
            StretchReader(self._target, read_committed=committed) as target,
        ):
            for group, locations in self._places.items():
                found = self._next(source, locations, self._got[group])
                found += self._before(source, target, locations)
                self._found[group] = Sampled(partitions=len(locations), compared=found)
        return self._found

    @property
    def compared_records(self) -> int:
        return sum(each.compared.records for each in self._found.values())

    @property
    def _source(self) -> ClusterConfig:
        return self.config.source_of(self.known.flow.id)

    @property
    def _target(self) -> ClusterConfig:
        return self.config.target_of(self.known.flow.id)

    @property
    def _bytes_max(self) -> int:
        return stretch_bytes_max(sum(map(len, self._places.values())))

    def _choose(self, moves: Mapping[str, Sequence[GroupMove]]) -> None:
        doubtful = {(m.group, m.source) for each in moves.values() for m in each if m.note}
        stood = {group: [m.source for m in each] for group, each in moves.items()}
        chosen = spread(stood, self.turn, doubtful)
        topics = {self.known.locations[at].target.topic for each in chosen.values() for at in each}
        compacted = self._compacted(topics)
        for group, partitions in chosen.items():
            own = {move.source: move for move in moves[group]}
            self._places[group] = [
                self._place(
                    own[at], is_compacted=self.known.locations[at].target.topic in compacted
                )
                for at in partitions
            ]
        locations, taken = sum(map(len, moves.values())), sum(map(len, self._places.values()))
        if taken < locations:
            self.notes.append(
                f"records were compared in {taken:,} of {locations:,} places ({len(chosen):,} of "
                f"{len(moves):,} groups); the next drill takes others"
            )

    def _place(self, move: GroupMove, *, is_compacted: bool) -> _Place:
        lane = lane_of(self.known, move.source, is_compacted=is_compacted)
        at_source = _source_offset(lane, move)
        window = next_window(lane, at_source, move.target_offset, self.records_max)
        return _Place(move=move, lane=lane, window=window)

    def _compacted(self, topics: Iterable[TopicName]) -> set[TopicName]:
        admin = ClusterAdmin(self._target, timeout_s=ANSWER_S_MAX)
        found: set[TopicName] = set()
        for topic, settings in admin.topic_configs(sorted(topics)).items():
            if isinstance(settings, NotAuthorised):
                self.notes.append(f"{settings}: taken for a topic that is not compacted")
            elif "compact" in (settings["cleanup.policy"].value or ""):
                found.add(topic)
        return found

    def _next(
        self,
        source: StretchReader,
        locations: Sequence[_Place],
        got: Mapping[TopicPartition, Stretch],
    ) -> Compared:
        """What the group reads next."""
        wanted = [place.window for place in locations if not place.window.is_empty]
        sent = source.read(
            {window.source: window.source_offsets for window in wanted}, bytes_max=self._bytes_max
        )
        compared = Compared()
        for place in locations:
            lane, window = place.lane, place.window
            if not window.is_empty:
                compared += compare(lane, window, sent[lane.source], got[lane.target])
        return compared

    def _before(
        self, source: StretchReader, target: StretchReader, locations: Sequence[_Place]
    ) -> Compared:
        """The records just before places where little is left to read."""
        windows = [(place.lane, self._window_before(place)) for place in locations]
        wanted = [window for _, window in windows if not window.is_empty]
        sent = source.read(
            {window.source: window.source_offsets for window in wanted}, bytes_max=self._bytes_max
        )
        got = target.read(
            {window.target: window.target_offsets for window in wanted}, bytes_max=self._bytes_max
        )
        compared = Compared()
        for lane, window in windows:
            if not window.is_empty:
                compared += compare(lane, window, sent[lane.source], got[lane.target])
        return compared

    def _window_before(self, place: _Place) -> Window:
        lane, at = place.lane, place.window.source_offsets.start
        left = lane.records_between(at, place.window.source_offsets.end)
        start = self.known.target_starts.get(lane.target, 0)
        return window_before(lane, at, max(0, self.records_max - left), target_start=start)


def lane_of(known: FlowSnapshot, source: TopicPartition, *, is_compacted: bool = False) -> Lane:
    place = known.locations[source]
    return Lane(
        source=source,
        target=place.target,
        runs=place.record.runs,
        end=place.end,
        is_compacted=is_compacted,
    )


def _source_offset(lane: Lane, move: GroupMove) -> int:
    """Where on the source a group goes on whose place on the target is known."""
    end = lane.end
    if move.target_offset >= end.target_next_offset:
        place = end.position
    else:
        place = min(end.position, lane.runs.position_of_target(move.target_offset))
    # Offsets of a source topic that was replaced mean nothing in the present one.
    first = lane.runs.first
    is_replaced = first is not None and lane.runs.source_restart_position > first.position
    stood = move.source_offset
    if stood is not None and not (is_replaced and lane.position_of(stood) != place):
        return stood
    if place >= end.position:
        return end.source_next_offset
    return lane.runs.source_offset_at(max(place, lane.runs.source_restart_position))
