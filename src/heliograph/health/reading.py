"""Flows judged by what their clusters say, without asking a driver. Runs on the driver.

As `heliograph status` reads: the answer is the same while a mirror runs, after it ended, and when
it ran on another machine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from heliograph.broker.cluster import NO_OFFSET
from heliograph.clock import now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError
from heliograph.health.sight import (
    FlowSight,
    GroupsSight,
    LedgerFacts,
    facts_of,
    groups_sight,
    lane_of_status,
    own_topics,
    why_idle,
)
from heliograph.health.verdict import FlowVerdict, verdict
from heliograph.inspect.flow_status import FlowStatus, LaneStatus
from heliograph.inspect.groups import read_groups
from heliograph.inspect.status import ANSWER_S_MAX, StatusReader
from heliograph.inspect.waiting import Adoption
from heliograph.ledger.access import within
from heliograph.model import FlowId, LaneId, TopicPartition

SAMPLE_S: Final = 1.0


async def read_verdicts(
    config: MirrorConfig, adoptions: Mapping[FlowId, Adoption] | None = None
) -> list[FlowVerdict]:
    """Of every flow of `config`; looks twice, to see what grows."""
    reader = StatusReader(config, None, adoptions)
    try:
        first = await reader.read()
        (groups, _) = await asyncio.gather(
            _groups(config), asyncio.sleep(SAMPLE_S if first.lanes else 0)
        )
        second = await reader.read()
        before = {lane.lane: lane for lane in first.lanes}
        return [
            verdict(
                await _sight(reader, config.flow(status.flow), status, before, groups),
                config.flow(status.flow),
            )
            for status in second.flows
        ]
    finally:
        await reader.close()


async def _groups(config: MirrorConfig) -> dict[FlowId, GroupsSight]:
    found = await read_groups(config, [flow.id for flow in config.flows], lambda _: True)
    return {each.flow: groups_sight(each) for each in found.flows}


async def _sight(
    reader: StatusReader,
    flow: FlowConfig,
    status: FlowStatus,
    before: Mapping[LaneId, LaneStatus],
    groups: Mapping[FlowId, GroupsSight],
) -> FlowSight:
    at_ms = now_ms()
    problem = status.problem
    recent: frozenset[TopicPartition] = frozenset()
    if not problem and status.lanes:
        try:
            recent = await _written(reader, flow, status, at_ms)
        except BrokerError as exc:
            problem = str(exc)
    own = own_topics(flow, {lane.lane.source.topic for lane in status.lanes})
    facts = facts_of(reader.ledger(flow.id).view, at_ms) if status.is_known else LedgerFacts()
    return FlowSight(
        flow=flow.id,
        at_ms=at_ms,
        lanes=tuple(
            lane_of_status(
                lane,
                own,
                before.get(lane.lane),
                at_ms if lane.lane.source in recent else None,
            )
            for lane in status.lanes
        ),
        unknown=(problem,) if problem else (),
        idle_because=why_idle(status) if status.is_known else "",
        waiting=tuple(f"{lane.lane.source} ({lane.state})" for lane in status.waiting),
        facts=facts,
        groups=groups.get(flow.id),
    )


async def _written(
    reader: StatusReader, flow: FlowConfig, status: FlowStatus, at_ms: int
) -> frozenset[TopicPartition]:
    """Source partitions with a record that is not older than producers must be quiet for."""
    if not flow.cutover.quiet_s:
        return frozenset()
    source = reader.source(flow.id)
    places = [lane.lane.source for lane in status.lanes]
    since_ms = at_ms - 1000 * flow.cutover.quiet_s
    found = await within(
        source.list_offsets(places, since_ms), ANSWER_S_MAX, f"cluster {source.alias}"
    )
    for answer in found.values():
        if isinstance(answer, BrokerError):
            raise answer
    return frozenset(at for at, offset in found.items() if offset != NO_OFFSET)
