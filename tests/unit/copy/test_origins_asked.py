"""A lane that meets a batch whose writer it does not know: it waits, asks the ledgers, goes on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

from heliograph.copy.events import SourceFailed
from heliograph.copy.flow import FetchLimits
from heliograph.copy.lane import CarriedLane
from heliograph.copy.machine import _source_reason
from heliograph.copy.origins import Producer
from heliograph.copy.phases import Running
from heliograph.errors import BrokerUnreachable, LedgerUnusable
from heliograph.ledger.kept import NOTHING_KEPT, kept_entry, kept_of
from heliograph.ledger.view import LedgerView
from heliograph.model import (
    ClusterAlias,
    LoopPrevention,
    OffsetRange,
    Paused,
    StallReason,
    TopicId,
    TopicName,
    TopicPartition,
)
from heliograph.wire.fetch import FetchedPartition
from tests.kit.fake_cluster import Asked
from tests.kit.fake_records import records_batch
from tests.unit.copy.kit import TOPIC_ID, carried_lane, running_at
from tests.unit.copy.test_origins import MARK, Source, entry
from tests.unit.copy.test_sources import Side

B = ClusterAlias("B")
RETURNING = FetchLimits(loop_prevention=LoopPrevention.RETURNING, mirrors=(B,))


class Asking(Side):
    """Notes which lanes are put on a stream, and which are taken off."""

    def __init__(self) -> None:
        super().__init__()
        self.streamed: list[CarriedLane] = []

    def _attach(self, lane: CarriedLane, running: Running) -> None:
        self.streamed.append(lane)

    def detach(self, lane: CarriedLane) -> None:
        if lane in self.streamed:
            self.streamed.remove(lane)


def returning_lane(source: Source) -> tuple[CarriedLane, Running]:
    lane = carried_lane()
    lane.flow.source = source.cluster
    lane.flow.carry_by(replace(RETURNING))
    running = running_at(lane)
    lane.enter(running)
    return lane, running


def answer(records: bytes) -> FetchedPartition:
    return FetchedPartition((b"", 0), 0, 9, 9, 0, (), -1, memoryview(bytearray(records)))


def by(producer_id: int) -> bytes:
    return records_batch(3, producer_id=producer_id, epoch=MARK, sequence=0)


def test_a_lane_is_not_fetched_before_the_ledgers_were_read_once() -> None:
    source, side = Source(), Asking()
    source.lists(entry(50))
    lane, running = returning_lane(source)

    side.attach(lane, running)
    before = list(side.streamed)
    asyncio.run(side._learn_origins(lane, running, ()))

    assert (before, side.streamed) == ([], [lane])
    assert lane.flow.origins is not None
    assert lane.flow.origins.known.mirrored == {50}


def test_a_new_producer_of_the_flow_back_is_learned_and_its_batch_left_out() -> None:
    source, side = Source(), Asking()
    source.lists(entry(50))
    lane, running = returning_lane(source)
    asyncio.run(side._learn_origins(lane, running, ()))
    source.lists(entry(52))

    side.fetched(lane, running, answer(by(52)))
    waits, stood_at = list(side.streamed), running.cursor.next_offset
    origins = lane.flow.origins
    assert origins is not None
    asyncio.run(origins.learn([Producer(52, MARK)]))
    side.fetched(lane, running, answer(by(52)))

    assert (waits, stood_at) == ([], 0)
    assert running.cursor.next_offset == 3
    assert not running.outgoing


def test_a_ledger_that_does_not_answer_keeps_the_lane_waiting_and_shows_it() -> None:
    source, side = Source(), Asking()
    source.lists(entry(50))
    lane, running = returning_lane(source)

    def unreachable(_: Asked) -> None:
        raise BrokerUnreachable("cluster A: gone")

    source.cluster.before = unreachable
    asyncio.run(side._learn_origins(lane, running, ()))

    assert [type(event) for event in side.events] == [SourceFailed]
    assert side.streamed == []


def test_a_lane_that_left_meanwhile_is_not_put_back() -> None:
    source, side = Source(), Asking()
    source.lists(entry(50))
    lane, running = returning_lane(source)
    lane.enter(Paused())

    asyncio.run(side._learn_origins(lane, running, ()))

    assert side.streamed == []


def test_a_lost_ledger_of_the_flow_back_is_shown_as_that() -> None:
    assert _source_reason(LedgerUnusable("gone")) is StallReason.LEDGER_UNUSABLE


def test_what_a_failback_keeps_is_of_one_topic_and_not_of_its_successor() -> None:
    view, orders = LedgerView(), TopicName("orders")
    parts = {0: OffsetRange(start=0, end=40), 2: OffsetRange(start=3, end=7)}
    view.apply(kept_entry(orders, TOPIC_ID, parts))

    def kept(partition: int, topic_id: TopicId = TOPIC_ID) -> OffsetRange:
        return kept_of(view, TopicPartition(topic=orders, partition=partition), topic_id)

    assert [kept(0), kept(1), kept(2)] == [parts[0], NOTHING_KEPT, parts[2]]
    assert kept(0, TopicId("0c12b63f-6f93-41ba-bebd-37dfba57c4d5")) == NOTHING_KEPT


def test_what_is_kept_from_the_beginning_reads_as_earlier_versions_wrote_it() -> None:
    entry = kept_entry(TopicName("orders"), TOPIC_ID, {0: OffsetRange(start=0, end=40)})

    assert json.loads(entry.text) == {"v": 1, "topic_id": TOPIC_ID, "ends": {"0": 40}}


def test_a_lane_of_which_all_is_left_out_notes_how_far_it_read() -> None:
    lane, _ = returning_lane(Source())
    lane.source_seen.end_offset = 900
    head = lane.head()
    lane.head_written.position, lane.head_written.badge = head.position, head.state
    lane.head_written.wrote(head.source_next_offset, ticket=0)
    quiet = lane.head_is_due(settling=False)

    lane.reached.source_next_offset = 900

    assert (quiet, lane.head_is_due(settling=False)) == (False, True)
