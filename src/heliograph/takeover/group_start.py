"""Where lanes begin by what a consumer group committed on the source: MirrorMaker 1's. Driver only.

A lane that has not begun begins where `start.group` stands. One that has begun goes on by its own
ledger; but where somebody else has committed a later offset as that group since, the records up
to there were copied by that somebody, and the lane goes on behind them. What the mirror itself
commits (`lag.group`) is told apart by its metadata.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.clients import Clients
from heliograph.broker.cluster import EARLIEST, LATEST, Cluster
from heliograph.broker.group_view import GroupOffset
from heliograph.broker.log import read_batches
from heliograph.clock import now_ms
from heliograph.config.schema import FlowConfig, MirrorConfig
from heliograph.errors import BrokerError, GroupActive, GroupTaken
from heliograph.groups.lag_group import MIRRORED
from heliograph.ledger.access import OpenLedger, open_ledger
from heliograph.ledger.entries import StartEntry, new_author
from heliograph.ledger.locate import (
    AheadOfEnd,
    At,
    LogState,
    NeedsScan,
    NothingLeft,
    RecordsMissing,
    Scan,
    is_other_topic,
    locate,
)
from heliograph.ledger.locations import LaneLocation, locate_lanes
from heliograph.ledger.service import LedgerService
from heliograph.model import FlowId, Lane, LaneId, StartOffset, TopicPartition

log = logging.getLogger("heliograph")

Committed = Mapping[TopicPartition, GroupOffset]


def begun_by_group(
    config: MirrorConfig,
    flow: FlowConfig,
    clients: Clients,
    ledgers: LedgerService,
    planned: tuple[Lane, ...],
    carried: Iterable[Lane],
) -> tuple[Lane, ...]:
    """`planned` with the places where those begin that are not `carried` yet; blocks.

    While nothing of the flow has begun, the group is looked at anew: slots may come late, and who
    copied before may have gone on. Raises `GroupActive` while the group has members: they copy
    records at this moment; `GroupTaken` where no lane need go on meanwhile.
    """
    group = flow.start_group_id
    if group is None:
        return planned
    begun = ledgers.ask(flow.id, lambda view: frozenset(view.begun()))
    # A lane that is carried keeps the place it was given, or it would look like another one.
    places = {lane.id: lane.start_at for lane in carried} if begun else {}
    fresh = [lane for lane in planned if lane.id not in places]
    if fresh:
        committed = _committed(clients, flow.id, group, GroupActive if begun else GroupTaken)
        newborn = [lane for lane in fresh if lane.id.source not in begun]
        places |= _places(clients, flow, group, newborn, committed)
        moved = {
            lane.id.source: committed[lane.id.source].offset
            for lane in fresh
            if lane.id.source in begun & committed.keys()
            and committed[lane.id.source].metadata != MIRRORED
        }
        if moved:
            _follow(config, flow, ledgers, group, moved)
    return tuple(replace(lane, start_at=places.get(lane.id, lane.start_at)) for lane in planned)


def _committed(clients: Clients, flow: FlowId, group: str, refusal: type[GroupActive]) -> Committed:
    groups = clients.groups(clients.source(flow))
    view = groups.describe([group]).get(group)
    if view is not None and not view.is_idle:
        raise refusal(
            f"group {group} on {flow.source} has members, so MirrorMaker 1 or another reader of "
            "that group is running; stop it, and the mirror goes on where the group committed last"
        )
    return groups.offsets([group]).get(group, {})


def _places(
    clients: Clients,
    flow: FlowConfig,
    group: str,
    newborn: Sequence[Lane],
    committed: Committed,
) -> dict[LaneId, StartOffset]:
    wanted = [lane for lane in newborn if lane.id.source in committed]
    source: ClusterAdmin = clients.admin(clients.source(flow.id))
    ends = source.list_offsets([lane.id.source for lane in wanted], "latest")
    found: dict[LaneId, StartOffset] = {}
    for lane in wanted:
        at = lane.id.source
        offset = committed[at].offset
        if at in ends and offset > ends[at]:
            log.warning(
                "%s: group %s committed %d, the source ends at %d: its topic was recreated, so the "
                "lane begins at %s",
                *(lane.id, group, offset, ends[at], flow.start_at),
            )
        else:
            found[lane.id] = StartOffset(offset)
    if newborn:
        log.info(
            "%s: %d of %d new lanes begin where group %s committed, the others at %s",
            *(flow.id, len(found), len(newborn), group, flow.start_at),
        )
    return found


def _follow(
    config: MirrorConfig,
    flow: FlowConfig,
    ledgers: LedgerService,
    group: str,
    moved: Mapping[TopicPartition, int],
) -> None:
    """Send lanes forward that somebody else has carried on as the same group."""
    starts = asyncio.run(_starts_behind(config, flow, moved))
    ledgers.note(flow.id, starts)
    for start in starts:
        log.warning(
            "%s: group %s was carried on by others to offset %d; the lane goes on there",
            *(f"{flow.id}/{start.topic}-{start.partition}", group, start.source_offset),
        )


async def _starts_behind(
    config: MirrorConfig, flow: FlowConfig, moved: Mapping[TopicPartition, int]
) -> list[StartEntry]:
    topics = {at.topic for at in moved}
    async with open_ledger(config, flow.id) as ledger:
        located = await locate_lanes(flow, ledger.target, ledger.store, topics.__contains__)
        found: list[StartEntry] = []
        for location in located:
            offset = moved.get(location.lane.source, -1)
            # The ledger may note less than the log has, so the log is read before it counts.
            if offset > location.source_next_offset:
                start = await _start_behind(ledger, location, offset)
                found += [] if start is None else [start]
        return found


async def _start_behind(
    ledger: OpenLedger, location: LaneLocation, offset: int
) -> StartEntry | None:
    """None where the lane is there already, or waits for an operator anyway."""
    target, record = ledger.target, location.record
    topic = target.topic(location.target.topic)
    last = record.starts[-1]
    if topic is None or is_other_topic(last.target_topic_id, topic.id):
        return None
    end = await _offset(target, location.target, LATEST)
    log_state = LogState(
        start=await _offset(target, location.target, EARLIEST),
        end=end,
        last_sequence=location.last_sequence,
    )
    known = locate(record, log_state)
    found = (
        await _scanned(ledger, location, log_state, known)
        if isinstance(known, NeedsScan)
        else known
    )
    if (
        not isinstance(found, At | NothingLeft)
        or record.runs.source_offset_at(found.position) >= offset
    ):
        return None
    return replace(
        last,
        position=found.position,
        # The first start at a position counts, so one that follows at once takes the other's key.
        author=last.author if last.position == found.position else new_author(),
        source_offset=offset,
        target_offset=end,
        at_ms=now_ms(),
        adopted=True,
    )


async def _scanned(
    ledger: OpenLedger, location: LaneLocation, log_state: LogState, needs: NeedsScan
) -> At | AheadOfEnd | RecordsMissing | NothingLeft:
    """Our batches say where the lane is; what lies behind them is the others'."""
    scan, flow = Scan(location.record, needs, log_state), ledger.store.view.flow
    async for header, _ in read_batches(
        ledger.target, location.target, scan.read_from, log_state.end
    ):
        if flow is not None and header.producer_id == flow.producer_id:
            scan.see(header)
        if scan.is_complete():
            break
    return scan.found()


async def _offset(cluster: Cluster, at: TopicPartition, time: int) -> int:
    found = (await cluster.list_offsets([at], time))[at]
    if isinstance(found, BrokerError):
        raise found
    return found
