"""A moment in which nothing is broken and nothing written: all is compared with what was meant."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from heliograph.config.load import load_config
from heliograph.groups.snapshot import FlowSnapshot, read_snapshot
from heliograph.ledger.view import LaneRecord
from heliograph.model import TopicName, TopicPartition
from tests.campaign.checks import Finding, LaneFacts, Place, check_lane
from tests.campaign.layout import FOLLOWED, Channel, flow_of
from tests.campaign.piped import look_at_pipeline
from tests.campaign.truth import Fate, Sent, settle
from tests.campaign.watch import lane_rows
from tests.campaign.world import World
from tests.kit.records import Rec, read_all
from tests.kit.topics import topic_config

CAUGHT_UP_S_MAX: Final = 120.0
_SETTINGS_S_MAX: Final = 90.0
"""A request that was begun with a password that is over takes `admin.timeout.ms`, a minute."""


@contextmanager
def _nobody_writes(world: World) -> Iterator[None]:
    with ExitStack() as stack:
        for writer in world.writers:
            stack.enter_context(writer.resting())
        yield


def look(world: World) -> list[Finding]:
    """Everything healed and caught up with, then every check of every lane."""
    world.heal()
    with _nobody_writes(world):
        # What an operation began late may have broken something again.
        world.heal()
        began_s = time.monotonic()
        late = _await_caught_up(world)
        caught_up_s = round(time.monotonic() - began_s, 1)
        found = list(late)
        lanes = lost = 0
        if not late:
            found += [*_settings(world), *look_at_pipeline(world)]
            snapshots = {name: _snapshot(world, name) for name in world.flows}
            for channel in world.channels:
                for facts in _facts_of(world, channel, snapshots[str(channel.flow)]):
                    found += check_lane(facts)
                    lanes += 1
                    lost += sum(each.end - each.start for each in facts.losses)
        found += [
            Finding(check="nonmonotonic-poll", lane=alias, what=what)
            for alias, tail in world.tails.items()
            for what in tail.problems
        ]
        world.journal.note(
            "quiet",
            caught_up_s=caught_up_s,
            lanes=lanes,
            lost_offsets=lost,
            records=world.truth.count,
            findings=[str(each) for each in found],
        )
    return found


def _await_caught_up(world: World) -> list[Finding]:
    """Until every lane has read all that its source has, and is idle."""
    deadline_s = time.monotonic() + CAUGHT_UP_S_MAX
    while True:
        behind = _behind(world)
        if not behind:
            return []
        if time.monotonic() > deadline_s:
            return [Finding(check="unseen", lane=lane, what=what) for lane, what in behind.items()]
        time.sleep(0.3)


def _behind(world: World) -> dict[str, str]:
    wanted = {
        (channel.source, channel.topic, number): f"{channel}-{number}"
        for channel in world.channels
        for number in range(world.partitions(channel))
    }
    ends: dict[tuple[str, str, int], int] = {}
    for alias, asked in world.ends.items():
        places = [(topic, number) for source, topic, number in wanted if source == alias]
        found = asked.of(places, committed=False)
        ends |= {(alias, *place): end for place, end in found.items()}
    rows = lane_rows(world.drivers)
    behind: dict[str, str] = {}
    for channel in world.channels:
        for number in range(world.partitions(channel)):
            lane = f"{channel}-{number}"
            end = ends.get((channel.source, channel.topic, number))
            at = rows.get((str(channel.flow), channel.topic, number))
            if end is None:
                behind[lane] = "the source does not tell its end"
            elif at is None:
                behind[lane] = "no driver that leads its flow tells of it"
            elif at[1]["state"] != "idle" or at[1]["source_read_offset"] < end:
                row = at[1]
                behind[lane] = (
                    f"{row['state']} {row['reason'] or ''} {row['detail'] or ''} at source offset "
                    f"{row['source_read_offset']} of {end}, "
                    f"{CAUGHT_UP_S_MAX:.0f} s after all was healed"
                )
    return behind


def _snapshot(world: World, flow: str) -> FlowSnapshot:
    return asyncio.run(read_snapshot(load_config(world.file), flow_of(flow), lambda _: True))


def _facts_of(world: World, channel: Channel, snapshot: FlowSnapshot) -> Iterator[LaneFacts]:
    source = read_all(world.clusters[channel.source], channel.topic)
    target = read_all(world.clusters[channel.target], channel.target_topic)
    incarnation = world.truth.incarnation(channel.source, channel.topic)
    sent = world.truth.of(channel.source, channel.topic)
    settle(sent, source, incarnation)
    for number in sorted(source):
        place = TopicPartition(topic=TopicName(channel.topic), partition=number)
        location = snapshot.locations.get(place)
        record = None if location is None else location.record
        begins_at, position, at_ms = _present(record)
        losses = () if record is None else record.losses
        now = [each.lost for each in losses if each.position >= position and each.at_ms >= at_ms]
        tail = world.tails[channel.target].seen
        yield LaneFacts(
            lane=f"{channel}-{number}",
            source_name=(channel.source, channel.topic),
            target_name=(channel.target, channel.target_topic),
            partition=number,
            incarnation=incarnation,
            compacted=channel.compacted,
            both_ways=channel.both_ways,
            sent=_in(sent, number),
            target=_rest(target, number),
            find=world.truth.find,
            expected=channel.expected,
            begins_at=begins_at,
            losses=now,
            earlier_losses=[each.lost for each in losses if each.lost not in now],
            cuts=world.truth.cuts(channel.source, channel.topic, number),
            offset_map=None if location is None else location.offset_map,
            seen=list(tail.get((channel.target_topic, number), ())),
            places=_places(world, channel, number, incarnation),
        )


def _in(sent: list[Sent], number: int) -> list[Sent]:
    return [each for each in sent if each.partition == number]


def _rest(target: Mapping[int, list[Rec]], number: int) -> list[Rec]:
    return target.get(number, [])


def _present(record: LaneRecord | None) -> tuple[int, int, int]:
    """Where the lane began on the topic as it is now: source offset, position, time."""
    if record is None or not record.starts:
        return 0, 0, 0
    present = record.starts[-1].source_topic_id
    first = next(each for each in record.starts if each.source_topic_id == present)
    return first.source_offset, first.position, first.at_ms


def _places(world: World, channel: Channel, number: int, incarnation: int) -> list[Place]:
    return [
        Place(
            operation=each.operation,
            group=each.group,
            source_offset=each.source_offset,
            target_offset=each.target_offset,
            is_clamped_after=each.is_clamped_after,
        )
        for each in world.moves
        if (each.channel, each.partition, each.incarnation) == (channel, number, incarnation)
    ]


def _settings(world: World) -> list[Finding]:
    """What was set on the source is set on the target."""
    deadline_s = time.monotonic() + _SETTINGS_S_MAX
    while True:
        found: list[Finding] = []
        for channel in world.channels:
            wanted = world.settings.get((channel.source, channel.topic))
            if wanted is None:
                continue
            have = topic_config(world.clusters[channel.target], channel.target_topic)[FOLLOWED]
            if have != wanted:
                what = f"{FOLLOWED} is {have}, and {wanted} on the source"
                found.append(Finding(check="settings", lane=str(channel), what=what))
        if not found or time.monotonic() > deadline_s:
            return found
        time.sleep(0.5)


def latencies(world: World) -> dict[int, list[float]]:
    """By the operation that was last when a record was sent: how long after its acknowledgement
    each was seen on the target."""
    found: dict[int, list[float]] = {}
    for alias, tail in world.tails.items():
        for seen in [each for some in list(tail.seen.values()) for each in list(some)]:
            sent = world.truth.find(seen.id)
            # What clients wrote into a copy themselves was not mirrored there.
            if sent is None or sent.cluster == alias:
                continue
            if sent.fate is Fate.COMMITTED and sent.acked_s:
                late_s = max(0.0, seen.at_s - sent.acked_s)
                found.setdefault(sent.operation, []).append(late_s)
    return found
