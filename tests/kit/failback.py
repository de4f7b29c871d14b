"""Two clusters that change places: a flow there, the flow back, fences, mirrors without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from heliograph.clock import now_ms
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.failback.command import FailbackReport, fail_back
from heliograph.failback.context import FailbackOrder
from heliograph.failback.divergence import Choice
from heliograph.failover.command import FailoverOrder, FailoverReport, fail_over
from heliograph.failover.outputs import Mode
from heliograph.ledger.access import open_ledger
from heliograph.ledger.entries import ledger_topic
from heliograph.ledger.fence import Fence, fence_entry, fence_of
from heliograph.ledger.locations import LaneLocation, all_topics, locate_lanes
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.procedure.runner import StepEvent
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.inside import InsideMirror
from tests.kit.mirror import Settings, write_config
from tests.kit.records import Rec, read_all
from tests.kit.topics import admin_of

IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}
PRESERVE = {**IDENTITY, "offsets": "preserve"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Aliases of their own, so that every stage has its own ledgers on the shared clusters."""

    file: Path
    there: FlowId
    old: LocalCluster
    present: LocalCluster
    folder: Path

    @property
    def back(self) -> FlowId:
        return FlowId(source=self.there.target, target=self.there.source)

    @property
    def config(self) -> MirrorConfig:
        return load_config(self.file)

    def mirror(self, flow: FlowId, *, lanes: int) -> None:
        """Carry one flow until so many lanes are idle; ends as if the driver were killed."""
        with closing(InsideMirror(self.config, leads=lambda each: each == flow)) as inside:
            inside.catch_up(lanes)

    def fence(self, flow: FlowId) -> None:
        """What a failover leaves behind, as far as a failback needs it."""

        async def write() -> None:
            async with open_ledger(self.config, flow) as ledger:
                await ledger.store.write(
                    [fence_entry(Fence(at_ms=now_ms(), why="a test failed over"))]
                )

        asyncio.run(write())

    def fail_over(self, flow: FlowId, mode: Mode) -> FailoverReport:
        events: list[StepEvent] = []
        order = FailoverOrder(flow=flow, mode=mode)
        return asyncio.run(fail_over(self.config, order, events.append))

    def forget_topic_ids(self, flow: FlowId) -> None:
        """The ledger as one of clusters that know no topic ids: a new topic looks like the old.

        Of lanes without gaps: an entry that starts a lane again takes back its runs.
        """

        async def write() -> None:
            async with open_ledger(self.config, flow) as ledger:
                await ledger.store.catch_up()
                for lane in ledger.store.view.lanes:
                    record = ledger.store.view.lane(lane.topic, lane.partition)
                    assert record is not None
                    await ledger.store.write(
                        replace(start, source_topic_id=None, target_topic_id=None)
                        for start in record.starts
                    )

        asyncio.run(write())

    def order(
        self, choice: Choice = Choice.NONE, *, flow: FlowId | None = None, may_delete: bool = False
    ) -> FailbackOrder:
        wanted = flow or self.there
        return FailbackOrder(
            flow=wanted,
            choice=choice,
            export_topic=TopicName(f"saved-{wanted.source}"),
            export_dir=self.folder / "saved",
            may_delete=may_delete,
        )

    def fail_back(
        self, choice: Choice = Choice.NONE, *, flow: FlowId | None = None, may_delete: bool = False
    ) -> FailbackReport:
        return run_failback(self.config, self.order(choice, flow=flow, may_delete=may_delete))

    def has_ledger(self, flow: FlowId) -> bool:
        cluster = self.present if flow == self.there else self.old
        return ledger_topic(flow.source) in admin_of(cluster).list_topics(timeout=30).topics

    def is_fenced(self, *, forward: bool) -> bool:
        async def look() -> bool:
            async with open_ledger(self.config, self.there if forward else self.back) as ledger:
                await ledger.store.catch_up()
                return fence_of(ledger.store.view) is not None

        return asyncio.run(look())

    def locations(self, flow: FlowId) -> dict[tuple[str, int], LaneLocation]:
        async def look() -> Sequence[LaneLocation]:
            async with open_ledger(self.config, flow) as ledger:
                config = self.config.flow(flow)
                return await locate_lanes(config, ledger.target, ledger.store, all_topics())

        found = asyncio.run(look())
        return {(each.lane.source.topic, each.lane.source.partition): each for each in found}


def run_failback(config: MirrorConfig, order: FailbackOrder) -> FailbackReport:
    events: list[StepEvent] = []
    return asyncio.run(fail_back(config, order, events.append))


def open_stage(
    pair: dict[str, LocalCluster],
    name: str,
    folder: Path,
    topics: str,
    settings: Settings = IDENTITY,
) -> Stage:
    """`topics` is what both flows mirror; `settings` are theirs."""
    there = FlowId(source=ClusterAlias(f"old-{name}"), target=ClusterAlias(f"new-{name}"))
    flow = {"topics": topics, **settings}
    file = write_config(
        folder / "mm2.properties",
        {there.source: pair["A"], there.target: pair["B"]},
        {str(there): flow, f"{there.target}->{there.source}": flow},
    )
    return Stage(file=file, there=there, old=pair["A"], present=pair["B"], folder=folder)


def contents(records: Sequence[Rec]) -> list[object]:
    return [record.content for record in records]


def with_offsets(records: Iterable[Rec]) -> list[object]:
    return [(record.offset, record.content) for record in records]


def only(cluster: LocalCluster, topic: str) -> list[Rec]:
    """Of a topic with one partition."""
    (records,) = read_all(cluster, topic).values()
    return records
