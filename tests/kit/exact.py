"""Whether a copy is exact: records equal and in order, and a map that says where each one is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from heliograph.ledger.service import LedgerService
from heliograph.ledger.translate import Exact, LaneEnd, OffsetMap
from heliograph.ledger.view import LaneRecord
from heliograph.model import FlowId, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.maps import offset_of
from tests.kit.records import Rec, difference, read_all

_GAP_CHECKED: Final = 100
_NUMBER: Final = re.compile(rb"v(\d+)")


def assert_exact(
    source: LocalCluster,
    target: LocalCluster,
    ledgers: LedgerService,
    flow: FlowId,
    topic: str,
    target_topic: str,
    *,
    settled: bool = True,
) -> int:
    """Equal, in order, no repeats, no records of others; each source offset translates; how many.

    `settled`: the last writer has settled, so the heads say where the logs end.
    """
    wanted, mirrored = read_all(source, topic), read_all(target, target_topic)
    assert wanted.keys() == mirrored.keys()
    for number, records in wanted.items():
        problem = difference(records, mirrored[number])
        assert problem is None, f"{topic}-{number}: {problem}"
        lane = ledgers.view(flow).lane(TopicName(topic), number)
        assert lane is not None, f"the ledger does not know {topic}-{number}"
        if not records:
            continue
        assert_exact_lane(lane, records, mirrored[number], begins_here=True)
        positions = [lane.runs.position_of_source(record.offset) for record in records]
        assert positions == list(range(len(records))), f"{topic}-{number}: positions with gaps"
        if settled:
            assert lane.head is not None, f"{topic}-{number}: the ledger has no head"
            ends = len(records), mirrored[number][-1].offset + 1
            assert (lane.head.position, lane.head.target_next_offset) == ends, f"{topic}-{number}"
    return sum(map(len, wanted.values()))


def assert_survivors_exact(
    source: LocalCluster,
    target: LocalCluster,
    ledgers: LedgerService,
    flow: FlowId,
    topic: str,
    target_topic: str,
) -> int:
    """As `assert_exact`, of a topic whose source was compacted while it was copied; how many.

    Records are numbered (`v17...`) in the order they were written. What the source still has is on
    the target, where the map says. What the target has besides was there when it was read: in
    order, and once.
    """
    wanted, mirrored = read_all(source, topic), read_all(target, target_topic)
    for number, records in mirrored.items():
        written = [int(each[1]) for rec in records if (each := _NUMBER.match(rec.value or b""))]
        assert written == sorted(set(written)), f"{topic}-{number}: out of order or repeated"
        lane = ledgers.view(flow).lane(TopicName(topic), number)
        assert lane is not None, f"the ledger does not know {topic}-{number}"
        assert_exact_lane(lane, wanted[number], records, gaps=False)
        assert lane.head is not None, f"{topic}-{number}: the ledger has no head"
        assert lane.head.position == len(records), f"{topic}-{number}: positions with gaps"
    survivors, copied = (sum(map(len, found.values())) for found in (wanted, mirrored))
    assert survivors < copied, f"{topic}: nothing of the source was compacted in time"
    return copied


def assert_exact_lane(
    lane: LaneRecord,
    source: Sequence[Rec],
    target: Sequence[Rec],
    *,
    gaps: bool = True,
    begins_here: bool = False,
) -> None:
    """`source` is all mirrored; `target` may hold records of others too.

    Offsets that hold no record are asked for as well, unless without `gaps`. Where the lane
    `begins_here`, with the first of these records, no answer may be only the nearest offset.
    """
    runs, there = lane.runs, {record.offset: record for record in target}
    last = source[-1].offset
    last_position = runs.position_of_source(last)
    last_target = runs.target_offset_at(last_position)
    end = LaneEnd(
        position=last_position + 1,
        source_next_offset=last + 1,
        target_next_offset=last_target + 1,
    )
    offsets = OffsetMap(lane, end)
    asked = source[0].offset if begins_here else 0
    for record in source:
        position = runs.position_of_source(record.offset)
        found = runs.target_offset_at(position)
        assert runs.source_offset_at(position) == record.offset, f"no run holds {record.offset}"
        assert found in there, f"source {record.offset} maps to {found}, where nothing is"
        assert there[found].content == record.content, f"source {record.offset} is not at {found}"
        assert offsets.to_source(found) == Exact(offset=record.offset)
        # A consumer that stands in a gap goes on with the record behind it.
        gap_start = max(asked, record.offset - _GAP_CHECKED) if gaps else record.offset
        for offset in range(gap_start, record.offset + 1):
            answer = offsets.to_target(offset)
            assert offset_of(answer) == found, f"source offset {offset}"
            assert not begins_here or isinstance(answer, Exact), f"source offset {offset}"
        asked = record.offset + 1
    assert offsets.to_target(last + 1) == Exact(offset=last_target + 1)
