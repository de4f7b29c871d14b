"""How far behind every lane is, kept while the mirror runs. Runs on the driver's loop.

Slots tell where lanes are; this keeps what they told for rates and trends, asks the source for its
ends where a lane does not look itself (stalled, paused, its slot silent), and for what it deletes.
What is answered is made by `heliograph.lag`, on demand, and kept for a second or longer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from heliograph.broker.blocking import blocking
from heliograph.broker.clients import Clients
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster, open_cluster
from heliograph.clock import monotonic_s, now_ms
from heliograph.config.schema import ClusterConfig, MirrorConfig
from heliograph.engine.supervisor import SlotHealth, SlotState
from heliograph.errors import MirrorError
from heliograph.inspect.lag import retentions_of
from heliograph.lag.figures import LagReport, Motion
from heliograph.lag.folding import lag_report
from heliograph.lag.history import SAMPLE_S, LaneHistory, carried, observed
from heliograph.lag.lanes import LaneFacts, lane_lag
from heliograph.lag.retention import Retention
from heliograph.model import (
    Copying,
    FlowId,
    Idle,
    LaneId,
    LaneProgress,
    Paused,
    SlotId,
    Stalled,
    TopicName,
    TopicPartition,
)

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0
"""How often sources are asked about lanes that do not look themselves."""
RETENTION_S: Final = 300.0
_PARTITIONS_AT_ONCE: Final = 500
_ANSWER_S_MAX: Final = 10.0
_KEPT_S_MIN: Final = 1.0
_BUG_S: Final = 60.0
_KEPT_S_MAX: Final = 10.0
_COST_SHARE: Final = 0.01
"""Of a core, at most, for making reports: an expensive one is kept for longer, though no longer
than `_KEPT_S_MAX`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEnds:
    """A source partition as the driver itself saw it."""

    start: int
    end: int
    at_s: float


class Watched(Protocol):
    """What the book looks at: `driver.run.RunStatus`."""

    @property
    def progress(self) -> Mapping[LaneId, LaneProgress]: ...
    @property
    def slots(self) -> Sequence[SlotHealth]: ...


def no_lag() -> LagReport:
    """Of a mirror without lanes."""
    return LagReport(at_ms=now_ms())


async def lag_not_kept() -> LagReport:
    return no_lag()


class LagBook:
    """One answer to how far behind. Belongs to one loop; `report` is made on a thread."""

    def __init__(
        self,
        config: MirrorConfig,
        status: Callable[[], Watched | None],
        placed: Callable[[], Mapping[LaneId, SlotId]],
    ) -> None:
        """Both are asked on the loop."""
        self._config, self._status, self._placed = config, status, placed
        self._histories: dict[LaneId, LaneHistory] = {}
        self._sampled: dict[LaneId, LaneFacts] = {}
        self._passed_s: float | None = None
        self._ends: dict[LaneId, SourceEnds] = {}
        self._retentions: dict[tuple[FlowId, TopicName], Retention] = {}
        self._kept: tuple[float, LagReport] | None = None
        self._making = asyncio.Lock()
        self._seen: dict[LaneId, tuple[LaneProgress, SourceEnds | None, bool, LaneFacts]] = {}
        """What the facts of a lane were made of: most lanes are as they were."""

    def use(self, config: MirrorConfig) -> None:
        """Look by this configuration from here on."""
        self._config = config

    async def run(self, clients: Clients) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._kept_up(self._sample_again))
            tasks.create_task(self._kept_up(self._look_again))
            tasks.create_task(self._kept_up(partial(self._read_retentions_again, clients)))

    async def report(self) -> LagReport:
        """As it is, or was a second ago; longer ago where there are very many lanes."""
        async with self._making:
            if self._kept is not None and monotonic_s() < self._kept[0]:
                return self._kept[1]
            facts, began_s = self._facts(), monotonic_s()
            return self._keep(await blocking(self._made, facts), began_s)

    def report_now(self) -> LagReport:
        """The same without waiting, for who draws on the loop."""
        if self._kept is not None and monotonic_s() < self._kept[0]:
            return self._kept[1]
        began_s = monotonic_s()
        return self._keep(self._made(self._facts()), began_s)

    def history(self, lane: LaneId) -> LaneHistory | None:
        """What was seen of it lately; None of a lane that was not sampled yet."""
        facts = self._sampled.get(lane)
        return None if facts is None else self._history(facts)

    def sample(self) -> None:
        """Add what changed to the histories; lanes that are as they were are not looked at."""
        at_s, facts = monotonic_s(), self._facts()
        for lane, now in facts.items():
            if self._sampled.get(lane) == now:
                continue
            self._histories[lane] = observed(
                self._histories.get(lane),
                now.sample(at_s),
                unchanged_until_s=self._passed_s,
                record_bytes=now.record_bytes,
            )
        for lane in self._histories.keys() - facts.keys():
            del self._histories[lane]
        self._sampled, self._passed_s = facts, at_s

    def _keep(self, made: LagReport, began_s: float) -> LagReport:
        took_s = monotonic_s() - began_s
        kept_s = min(_KEPT_S_MAX, max(_KEPT_S_MIN, took_s / _COST_SHARE))
        self._kept = (monotonic_s() + kept_s, made)
        return made

    def _made(self, facts: Mapping[LaneId, LaneFacts]) -> LagReport:
        """Histories and retentions are values, so a sample taken meanwhile does no harm."""
        at_s, at_ms = monotonic_s(), now_ms()
        return lag_report(
            (
                lane_lag(
                    each,
                    self._history(each),
                    self._retentions.get((lane.flow, lane.source.topic)),
                    at_s=at_s,
                    now_ms=at_ms,
                )
                for lane, each in facts.items()
            ),
            at_ms,
        )

    def _history(self, facts: LaneFacts) -> LaneHistory | None:
        """Up to now: what was not sampled because it stayed as it was is made up for."""
        history, passed_s = self._histories.get(facts.lane), self._passed_s
        if history is None or passed_s is None:
            return history
        until_s = monotonic_s() if self._sampled.get(facts.lane) == facts else passed_s
        return carried(history, until_s)

    def _facts(self) -> dict[LaneId, LaneFacts]:
        placed, status = self._placed(), self._status()
        slots = () if status is None else status.slots
        running = {each.slot for each in slots if each.state is SlotState.RUNNING}
        seen, self._seen = self._seen, {}
        for lane, at in self._progress().items():
            ends, heard = self._ends.get(lane), placed.get(lane) in running
            known = seen.get(lane)
            if known is None or known[0] is not at or known[1] is not ends or known[2] != heard:
                known = (at, ends, heard, facts_of(at, ends, heard=heard))
            self._seen[lane] = known
        return {lane: facts for lane, (_, _, _, facts) in self._seen.items()}

    def _progress(self) -> Mapping[LaneId, LaneProgress]:
        status = self._status()
        return {} if status is None else status.progress

    async def _sample_again(self) -> None:
        while True:
            self.sample()
            await asyncio.sleep(SAMPLE_S)

    async def _kept_up(self, work: Callable[[], Awaitable[None]]) -> None:
        """Again after our own bug, which must not end what is copied: lag is unknown meanwhile."""
        while True:
            try:
                await work()
            except Exception:
                log.exception("unexpected error in the figures about lag")
            await asyncio.sleep(_BUG_S)

    # -- what slots do not tell

    async def _look_again(self) -> None:
        clusters: dict[FlowId, tuple[ClusterConfig, Cluster]] = {}
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                blind: defaultdict[FlowId, list[LaneId]] = defaultdict(list)
                for lane, at in self._progress().items():
                    if not isinstance(at.state, Copying | Idle):
                        blind[lane.flow].append(lane)
                self._forget_but(lane for lanes in blind.values() for lane in lanes)
                known = {flow.id for flow in self._config.flows}
                for flow in blind.keys() & known:  # lanes of a flow that ended may still leave
                    source = self._config.source_of(flow)
                    if flow in clusters and clusters[flow][0] != source:
                        clusters.pop(flow)[1].close()
                    if flow not in clusters:
                        opened = open_cluster(source, "consumer", only_reads=True)
                        clusters[flow] = source, opened
                    await self._look(flow, clusters[flow][1], blind[flow])
        finally:
            for _, cluster in clusters.values():
                cluster.close()

    def _forget_but(self, lanes: Iterable[LaneId]) -> None:
        """What was seen once of lanes that look themselves now is old."""
        kept = set(lanes)
        self._ends = {lane: ends for lane, ends in self._ends.items() if lane in kept}

    async def _look(self, flow: FlowId, source: Cluster, lanes: list[LaneId]) -> None:
        read_committed = self._config.flow(flow).read_committed
        for begin in range(0, len(lanes), _PARTITIONS_AT_ONCE):
            some = lanes[begin : begin + _PARTITIONS_AT_ONCE]
            try:
                async with asyncio.timeout(_ANSWER_S_MAX):
                    found = await _ends_of(
                        source, [lane.source for lane in some], read_committed=read_committed
                    )
            except (MirrorError, TimeoutError) as exc:
                # The lanes say themselves what is wrong; their lag is not known meanwhile.
                log.debug("%s: the ends of its source are not known: %s", flow, exc)
                found = {}
            for lane in some:
                self._ends.pop(lane, None)
                if lane.source in found:
                    self._ends[lane] = found[lane.source]

    async def _read_retentions_again(self, clients: Clients) -> None:
        while True:
            for flow in self._config.flows:
                topics = {lane.source.topic for lane in self._progress() if lane.flow == flow.id}
                if not topics:
                    continue
                admin = clients.admin(clients.source(flow.id))
                try:
                    found = await blocking(admin.topic_configs, sorted(topics))
                except MirrorError as exc:
                    log.debug("%s: what its source deletes is not known: %s", flow.id, exc)
                    continue
                known = retentions_of(found)
                for topic in topics:
                    self._retentions.pop((flow.id, topic), None)
                self._retentions |= {(flow.id, topic): each for topic, each in known.items()}
            await self._until_topics_change(RETENTION_S)

    async def _until_topics_change(self, timeout_s: float) -> None:
        """New topics are asked about within seconds, the others now and then."""
        known, due_s = self._topics(), monotonic_s() + timeout_s
        while monotonic_s() < due_s:
            await asyncio.sleep(SAMPLE_S)
            if self._topics() - known:
                return

    def _topics(self) -> set[tuple[FlowId, TopicName]]:
        return {(lane.flow, lane.source.topic) for lane in self._progress()}


def facts_of(at: LaneProgress, ends: SourceEnds | None, *, heard: bool) -> LaneFacts:
    """A lane that copies sees its source; of another only what the driver saw is known."""
    kept_by = None
    if isinstance(at.state, Stalled):
        kept_by = Motion.STALLED
    elif isinstance(at.state, Paused):
        kept_by = Motion.HELD
    elif not (heard and isinstance(at.state, Copying | Idle)):
        kept_by = Motion.UNKNOWN
    if kept_by is None:
        start, end = at.source_start_offset, at.source_end_offset
        seen: tuple[int | None, int | None] = (start, end if end >= 0 else None)
    else:
        seen = (None, None) if ends is None else (ends.start, ends.end)
    waits_since_ms = at.behind_since_ms if at.behind_since_ms >= 0 else at.last_timestamp_ms
    return LaneFacts(
        lane=at.lane,
        acknowledged=at.source_next_offset,
        read=None if at.source_read_offset < 0 else at.source_read_offset,
        committed=None if at.source_noted_offset < 0 else at.source_noted_offset,
        source_start=seen[0],
        source_end=seen[1],
        # What waits was written after what was copied last.
        oldest_ms=waits_since_ms if waits_since_ms >= 0 else None,
        waits=at.behind_since_ms >= 0 and at.source_end_offset > at.source_next_offset,
        record_bytes=at.bytes / at.records if at.records else None,
        kept_by=kept_by,
    )


async def _ends_of(
    source: Cluster, partitions: list[TopicPartition], *, read_committed: bool
) -> dict[TopicPartition, SourceEnds]:
    await source.refresh({partition.topic for partition in partitions})
    starts = await source.list_offsets(partitions, EARLIEST)
    ends = await source.list_offsets(partitions, LATEST, read_committed=read_committed)
    found: dict[TopicPartition, SourceEnds] = {}
    for partition in partitions:
        start, end = starts.get(partition), ends.get(partition)
        if isinstance(start, int) and isinstance(end, int):
            found[partition] = SourceEnds(start=start, end=end, at_s=monotonic_s())
    return found
