"""What the lanes of one flow share: clusters, ledger, producer. Runs on executors."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, assert_never

from heliograph.broker.cluster import Cluster
from heliograph.clock import monotonic_s
from heliograph.config.schema import MirrorConfig
from heliograph.config.transforms import DEAD_LETTER, Fate, TransformConfig
from heliograph.copy.found import ResumePoint
from heliograph.copy.origins import SourceOrigins
from heliograph.errors import ConfigError
from heliograph.ledger.store import LedgerStore
from heliograph.letters.lane import LetterBox
from heliograph.model import (
    ClusterAlias,
    FlowFigures,
    FlowId,
    Lane,
    LaneId,
    LoopPrevention,
    TopicId,
    TopicName,
    TopicPartition,
)
from heliograph.transform.lane import LaneTransform
from heliograph.transform.record import Where
from heliograph.wire.batch import Stamp

_LONG_READS_AT_ONCE: Final = 8


PARTITION_BYTES: Final = 1024 * 1024
_Ends = tuple[TopicPartition, TopicId | None]
"""Target and source topic: with others, a lane's records are other records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """How a flow is carried: how much one answer of its source may bring, how long a broker may
    wait for it, how much its ledger keeps."""

    bytes_max: int | None = None
    """None: found by itself (`pace`)."""
    partition_bytes_max: int | None = None
    bytes_min: int = 1
    wait_ms_max: int = 500
    metadata_ms_max: int = 300_000
    """How old the source's metadata may get before it is asked for again."""
    rack: str = ""
    """Where the reader is: a leader may name a replica that is nearer (KIP-392)."""
    ledger_runs_max: int = 10_000_000
    """Runs of a lane that the ledger keeps."""
    transforms: tuple[TransformConfig, ...] = ()
    """What is done to records; none for most flows, and then no record is looked into."""
    on_transform_error: Fate = "stall"
    """What becomes of a record that a transform fails on."""
    on_unwritable: Fate = "stall"
    """What becomes of a record that the target refuses for what it is."""
    letters_topic: TopicName | None = None
    """Where dead letters go."""
    loop_prevention: LoopPrevention = LoopPrevention.NONE
    mirrors: tuple[ClusterAlias, ...] = ()
    """Clusters whose flows into the source are asked what they wrote; `mirrored` asks all others
    that there are as well."""

    @property
    def writes_letters(self) -> bool:
        return DEAD_LETTER in (self.on_transform_error, self.on_unwritable)

    @property
    def partition_bytes(self) -> int:
        """To begin with."""
        return self.partition_bytes_max or PARTITION_BYTES

    @classmethod
    def of(cls, alias: ClusterAlias, consumer: Mapping[str, str]) -> FetchLimits:
        """As a consumer that reads that cluster was told, in Kafka's own names."""
        asked = {field: consumer[key] for key, field in _FETCH_KEYS.items() if key in consumer}
        rack = consumer.get("client.rack", "").strip()
        if asked.get("bytes_min") == "0":
            # Java's "at once, whatever there is": a broker asked so would be asked without pause.
            del asked["bytes_min"]
        problems = tuple(
            f"{alias}.consumer.{key}: is {consumer[key]!r}, not a whole number above 0"
            for key, field in _FETCH_KEYS.items()
            if field in asked and not (asked[field].isdecimal() and int(asked[field]))
        )
        if problems:
            raise ConfigError(f"cluster {alias}", problems)
        numbers: dict[str, Any] = {field: int(text) for field, text in asked.items()}
        return cls(rack=rack, **numbers)


_FETCH_KEYS: Final = {
    "fetch.max.bytes": "bytes_max",
    "max.partition.fetch.bytes": "partition_bytes_max",
    "fetch.min.bytes": "bytes_min",
    "fetch.max.wait.ms": "wait_ms_max",
    "metadata.max.age.ms": "metadata_ms_max",
}


def fetch_limits(config: MirrorConfig) -> dict[FlowId, FetchLimits]:
    """Of every flow that mirrors; small and without secrets, so that it may travel to slots."""
    return {
        flow.id: replace(
            FetchLimits.of(flow.id.source, flow.clients.source_consumer),
            ledger_runs_max=flow.ledger_runs_max,
            transforms=tuple(each for each in flow.transforms if not each.names_topics),
            on_transform_error=flow.on_transform_error,
            on_unwritable=flow.on_unwritable_record,
            letters_topic=flow.letters_topic if flow.writes_letters else None,
            loop_prevention=config.loop_prevention_of(flow.id),
            mirrors=mirrors_of(config, flow.id),
        )
        for flow in config.flows
    }


def mirrors_of(config: MirrorConfig, flow: FlowId) -> tuple[ClusterAlias, ...]:
    """Clusters whose flows into the source this flow asks what they wrote there."""
    match config.loop_prevention_of(flow):
        case LoopPrevention.NONE:
            return ()
        case LoopPrevention.RETURNING:
            return (flow.target,)
        case LoopPrevention.MIRRORED:
            return tuple(alias for alias in config.clusters if alias != flow.source)
        case other:
            assert_never(other)


async def producers_of_mirrors(
    config: MirrorConfig, flow: FlowId, source: Cluster
) -> frozenset[int] | None:
    """Whose batches on the source the flow leaves out, of those that are there now; None where it
    takes everything. Raises `MirrorError` where a ledger cannot be read."""
    origins = origins_of(config.loop_prevention_of(flow), mirrors_of(config, flow), source)
    if origins is None:
        return None
    await origins.learn()
    return frozenset(origins.known.mirrored)


def origins_of(
    prevention: LoopPrevention, mirrors: tuple[ClusterAlias, ...], source: Cluster
) -> SourceOrigins | None:
    if prevention is LoopPrevention.NONE:
        return None
    return SourceOrigins(source, mirrors, reads_all=prevention is LoopPrevention.MIRRORED)


@dataclass(slots=True)
class FlowCounted:
    """What happened to the flow's lanes here, since the slot began."""

    stalls: Counter[str] = field(default_factory=Counter)
    lookups: int = 0
    refused_batches: int = 0
    corrections: int = 0
    notes: int = 0
    note_s: float = 0.0
    _noting: tuple[int, float] | None = None
    """The ticket of the first write of heads that is not durable yet, and when it left."""

    def noting(self, ticket: int) -> None:
        if self._noting is None:
            self._noting = (ticket, monotonic_s())

    def durable(self, ticket: int) -> None:
        if self._noting is not None and self._noting[0] <= ticket:
            self.notes += 1
            self.note_s += monotonic_s() - self._noting[1]
            self._noting = None

    def figures(self, flow: FlowId) -> FlowFigures:
        return FlowFigures(
            flow=flow,
            stalls=dict(self.stalls),
            lookups=self.lookups,
            refused_batches=self.refused_batches,
            corrections=self.corrections,
            notes=self.notes,
            note_ms=round(self.note_s * 1000),
        )


class Flow:
    def __init__(
        self,
        flow_id: FlowId,
        source: Cluster,
        target: Cluster,
        ledger: LedgerStore,
        limits: FetchLimits,
    ) -> None:
        self.id = flow_id
        self.source = source
        self.target = target
        self.ledger = ledger
        self.limits = limits
        self._transforms: dict[LaneId, tuple[_Ends, LaneTransform | None]] = {}
        self.origins = self._origins()
        """What other flows brought to the source; None where nothing is left out for it."""
        self.counted = FlowCounted()
        self.long_reads = asyncio.Semaphore(_LONG_READS_AT_ONCE)
        """Of lanes whose target log must be read, or filled, before they go on."""
        self.stamp: Stamp | None = None
        """Known once the ledger was read; the driver writes it there before it hands out lanes."""
        self.behind_since_s: dict[TopicPartition, float] = {}
        """Target partitions whose log ends before the map says, since when."""
        self.on_new_producer: Callable[[], None] = lambda: None
        """Called when the ledger names another producer than the lanes append as."""

    def transform_of(self, lane: Lane) -> LaneTransform | None:
        """What the lane's records go through; None where they travel unopened. Raises
        `TransformUnusable`."""
        ends = lane.target, lane.source_topic_id
        known = self._transforms.get(lane.id)
        if known is None or known[0] != ends:
            known = self._transforms[lane.id] = ends, self.new_transform_of(lane)
        return known[1]

    def new_transform_of(self, lane: Lane) -> LaneTransform | None:
        """As `transform_of`, for who must not come between the lane and its calls at work."""
        return LaneTransform.of(
            self.limits.transforms,
            self.where(lane),
            (self.source.registry, self.target.registry),
        )

    def drop(self, lane: LaneId) -> None:
        """The lane is carried here no more."""
        self._transforms.pop(lane, None)
        self.ledger.drop([lane.source])

    def where(self, lane: Lane) -> Where:
        """The lane as its transforms see it."""
        return Where(lane.id.source.topic, lane.target.topic, lane.id.source.partition)

    @property
    def letter_box(self) -> LetterBox:
        return LetterBox(self.id, self.source, self.target, self.ledger)

    async def with_letters(self, lane: Lane, at: ResumePoint) -> ResumePoint:
        """With what was decided to be dead letters behind it; none for most lanes."""
        cursor = at.cursor
        letters = await self.letter_box.find(
            lane, cursor.position, cursor.next_offset, writes=self.limits.writes_letters
        )
        return replace(at, letters=letters)

    def carry_by(self, limits: FetchLimits) -> None:
        """Go on by these; what is queued stays as it is."""
        before, self.limits, self._transforms = self.limits, limits, {}
        if (limits.loop_prevention, limits.mirrors) != (before.loop_prevention, before.mirrors):
            self.origins = self._origins()

    def _origins(self) -> SourceOrigins | None:
        return origins_of(self.limits.loop_prevention, self.limits.mirrors, self.source)

    def use(self, stamp: Stamp) -> None:
        """Append as this producer from here on."""
        before, self.stamp = self.stamp, stamp
        if before not in (None, stamp):
            self.on_new_producer()
