"""Read what shadow groups get, and compare it with what the real ones would have got. Driver only.

Few partitions, few records, one consumer after the other: the flow that is drilled is busy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from heliograph.audit.compare import Sample, compare_unit
from heliograph.audit.plan import lane_writers
from heliograph.audit.reading import HeldRecords
from heliograph.audit.units import LaneWriters
from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.cluster import Cluster, open_cluster
from heliograph.broker.range_reader import Stretch, read_as_group
from heliograph.clock import monotonic_s
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.copy.flow import producers_of_mirrors
from heliograph.drill.sample import (
    Compared,
    SampledMove,
    compared_of,
    next_units,
    sampled_move,
    spread,
    stretch_bytes_max,
    units_before,
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
    """Of one consumer: find its group's offsets, read its part of the sample."""


@dataclass(slots=True, kw_only=True)
class Sampler:
    """One drill's sample: the target first, as after a failover, then what it must equal."""

    config: MirrorConfig
    known: FlowSnapshot
    records_max: int
    turn: int
    notes: list[str] = field(default_factory=list)
    _sampled: dict[str, list[SampledMove]] = field(default_factory=dict)
    _got: dict[str, dict[TopicPartition, Stretch]] = field(default_factory=dict)
    _found: dict[str, Sampled] = field(default_factory=dict)

    def read_target(self, moves: Mapping[str, Sequence[GroupMove]]) -> Reading:
        """Raises `BrokerError`."""
        self._choose(moves)
        slowest_s = 0.0
        for group, sampled in self._sampled.items():
            began_s = monotonic_s()
            got = read_as_group(
                self._target,
                shadow_of(group),
                {one.move.target: one.target_end for one in sampled},
                bytes_max=self._bytes_max,
                read_committed=self.known.flow.read_committed,
            )
            slowest_s = max(slowest_s, monotonic_s() - began_s)
            for one in sampled:
                stretch = got.get(one.move.target)
                if stretch is None or stretch.start != one.move.target_offset:
                    raise BrokerError(
                        f"cluster {self._target.alias}: {one.move.target}: a consumer of "
                        f"{shadow_of(group)} was not given the offset that was committed"
                    )
            self._got[group] = got
        return Reading(groups=len(self._sampled), slowest_s=slowest_s)

    async def compare(self) -> dict[str, Sampled]:
        """Raises `BrokerError`."""
        source = open_cluster(self._source, "consumer")
        target = open_cluster(self._target, "consumer")
        try:
            brought = await producers_of_mirrors(self.config, self.known.flow.id, source)
            for group, sampled in self._sampled.items():
                found = Compared()
                for one in sampled:
                    await source.refresh([one.location.lane.source.topic])
                    writers = lane_writers(self.known.view, one.location, source, brought)
                    found += await compare_next(
                        source,
                        target,
                        one,
                        self._got[group][one.move.target],
                        bytes_max=self._bytes_max,
                        read_committed=self.known.flow.read_committed,
                        writers=writers,
                    )
                    found += await self._before(source, target, one, writers)
                self._found[group] = Sampled(partitions=len(sampled), compared=found)
        finally:
            source.close()
            target.close()
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
        return stretch_bytes_max(sum(map(len, self._sampled.values())))

    def _choose(self, moves: Mapping[str, Sequence[GroupMove]]) -> None:
        doubtful = {(m.group, m.source) for each in moves.values() for m in each if m.note}
        stood = {
            group: [m.source for m in each if m.clamped != "coarse"]
            for group, each in moves.items()
        }
        chosen = spread(stood, self.turn, doubtful)
        locations = self.known.locations
        compacted = self._compacted(
            {locations[at].target.topic for each in chosen.values() for at in each}
        )
        for group, partitions in chosen.items():
            own = {move.source: move for move in moves[group]}
            self._sampled[group] = [
                sampled_move(
                    own[at],
                    locations[at],
                    self.records_max,
                    is_compacted=locations[at].target.topic in compacted,
                )
                for at in partitions
            ]
        coarse = sum(m.clamped == "coarse" for each in moves.values() for m in each)
        if coarse:
            self.notes.append(
                f"{coarse:,} places were not compared: the ledger has forgotten the exact offsets "
                "there, and the groups would read some records again"
            )
        whole, taken = sum(map(len, moves.values())), sum(map(len, self._sampled.values()))
        if taken < whole:
            self.notes.append(
                f"records were compared in {taken:,} of {whole:,} places ({len(chosen):,} of "
                f"{len(moves):,} groups); the next drill takes others"
            )

    def _compacted(self, topics: Iterable[TopicName]) -> set[TopicName]:
        admin = ClusterAdmin(self._target, timeout_s=ANSWER_S_MAX)
        found: set[TopicName] = set()
        for topic, settings in admin.topic_configs(sorted(topics)).items():
            if isinstance(settings, NotAuthorised):
                self.notes.append(f"{settings}: taken for a topic that is not compacted")
            elif "compact" in (settings["cleanup.policy"].value or ""):
                found.add(topic)
        return found

    async def _before(
        self, source: Cluster, target: Cluster, sampled: SampledMove, writers: LaneWriters | None
    ) -> Compared:
        """The records just before an offset where little is left to read."""
        start = self.known.target_starts.get(sampled.move.target, 0)
        units = units_before(
            sampled,
            self.records_max,
            target_start=start,
            read_committed=self.known.flow.read_committed,
        )
        sample = Sample(bytes_max=self._bytes_max)
        results = [
            await compare_unit(source, target, replace(unit, writers=writers), sample)
            for unit in units
        ]
        return compared_of(sampled.location, results, target_start=start)


async def compare_next(
    source: Cluster,
    target: Cluster,
    sampled: SampledMove,
    got: Stretch,
    *,
    bytes_max: int,
    read_committed: bool,
    writers: LaneWriters | None = None,
) -> Compared:
    """What the group would read next on the source, with what its consumer got on the target."""
    sample = Sample(
        bytes_max=bytes_max,
        target_records=partial(
            HeldRecords,
            [
                (rec.offset, (rec.timestamp_ms, rec.key, rec.value, rec.headers))
                for rec in got.records
            ],
            is_append_time=any(rec.is_append_time for rec in got.records),
        ),
    )
    units = next_units(sampled, got.next_offset, read_committed=read_committed)
    results = [
        await compare_unit(source, target, replace(unit, writers=writers), sample) for unit in units
    ]
    return compared_of(sampled.location, results, target_start=got.start)
