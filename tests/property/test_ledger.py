"""What must hold of the ledger for every lane and consumer; test_ledger_folds.py has the logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.errors import WireError
from heliograph.ledger.entries import (
    AclEntry,
    Entry,
    FlowEntry,
    HeadEntry,
    LeaseEntry,
    LossEntry,
    MemoEntry,
    RunsEntry,
    SegmentEntry,
    StartEntry,
)
from heliograph.ledger.entry_codec import decode, encode
from heliograph.ledger.packed_runs import PackedRuns, pack_anchors, pack_runs
from heliograph.ledger.positions import SEQUENCES, position_from_sequence, sequence_of
from heliograph.ledger.runs import OFFSET_MAX, Run, Runs
from heliograph.ledger.translate import Clamped, Exact, LaneEnd, OffsetMap, Unsafe
from heliograph.model import ClusterAlias, FlowId, OffsetRange, StallReason, TopicId, TopicName
from tests.kit.maps import map_of, offset_of

UNHURRIED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The machine may be busy with brokers; slow is not wrong."""
INT64 = st.integers(0, OFFSET_MAX)
TOPICS = st.text("azAZ09._-", min_size=1, max_size=249).map(TopicName)
PARTITIONS = st.integers(0, 2**31 - 1)
TEXTS = st.text(max_size=255)
AUTHORS = st.uuids().map(lambda author: author.hex)
TOPIC_IDS = st.none() | st.uuids().map(lambda topic_id: TopicId(str(topic_id)))
GAPS = st.integers(0, 3) | st.just(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    source_offset: int
    target_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ALane:
    """A lane record by record, and the same as runs."""

    records: tuple[Mirrored, ...]
    runs: Runs
    end: LaneEnd

    @property
    def map(self) -> OffsetMap:
        return map_of(self.runs, self.end)


@st.composite
def lanes(draw: st.DrawFn) -> ALane:
    first_position = draw(st.integers(0, 2**33))
    source, target = draw(st.integers(0, 50)), draw(st.integers(0, 50))
    mirrored: list[Mirrored] = []
    for source_gap, target_gap in draw(st.lists(st.tuples(GAPS, GAPS), min_size=1, max_size=40)):
        source, target = source + source_gap, target + target_gap
        mirrored.append(Mirrored(source_offset=source, target_offset=target))
        source, target = source + 1, target + 1
    written_ahead = draw(st.integers(0, len(mirrored)))
    there = mirrored[: len(mirrored) - written_ahead]
    last = there[-1] if there else mirrored[0]
    after = 1 if there else 0
    # The lane may have read on through a gap before it found the next record, or found none.
    next_source = mirrored[len(there)].source_offset if written_ahead else source + 3
    return ALane(
        records=tuple(there),
        runs=Runs(runs_of(first_position, mirrored, draw(st.randoms(use_true_random=False)))),
        end=LaneEnd(
            position=first_position + len(there),
            source_next_offset=draw(
                st.integers(
                    last.source_offset + after, max(next_source, last.source_offset + after)
                )
            ),
            target_next_offset=last.target_offset + after,
        ),
    )


def runs_of(first_position: int, mirrored: Sequence[Mirrored], random: Random) -> list[Run]:
    """A run at every gap, and now and then one that only continues the run before."""
    runs: list[Run] = []
    for index, record in enumerate(mirrored):
        position = first_position + index
        if runs and random.random() < 0.9:
            shift = position - runs[-1].position
            expected = (runs[-1].source_offset + shift, runs[-1].target_offset + shift)
            if expected == (record.source_offset, record.target_offset):
                continue
        runs.append(
            Run(
                position=position,
                source_offset=record.source_offset,
                target_offset=record.target_offset,
            )
        )
    return runs


@UNHURRIED
@given(lane=lanes(), source_next_offset=st.integers(0, 250))
def test_a_consumer_moved_to_the_target_reads_exactly_the_mirrored_records_it_had_not_read(
    lane: ALane, source_next_offset: int
) -> None:
    unread = {record for record in lane.records if record.source_offset >= source_next_offset}

    moved = lane.map.to_target(source_next_offset)

    assert not isinstance(moved, Unsafe)
    assert {record for record in lane.records if record.target_offset >= moved.offset} == unread
    assert moved.offset <= lane.end.target_next_offset
    assert (moved.side == "after") == (source_next_offset > lane.end.source_next_offset)


@UNHURRIED
@given(lane=lanes(), target_next_offset=st.integers(0, 250))
def test_a_consumer_moved_to_the_source_reads_exactly_the_mirrored_records_it_had_not_read(
    lane: ALane, target_next_offset: int
) -> None:
    unread = {record for record in lane.records if record.target_offset >= target_next_offset}

    moved = lane.map.to_source(target_next_offset)

    assert not isinstance(moved, Unsafe)
    assert {record for record in lane.records if record.source_offset >= moved.offset} == unread
    assert moved.offset <= lane.end.source_next_offset
    assert (moved.side == "after") == (target_next_offset > lane.end.target_next_offset)


@UNHURRIED
@given(lane=lanes(), index=st.integers(0, 40))
def test_a_consumer_before_a_record_that_moves_there_and_back_is_where_it_was(
    lane: ALane, index: int
) -> None:
    locations = [(record.source_offset, record.target_offset) for record in lane.records]
    locations.append((lane.end.source_next_offset, lane.end.target_next_offset))
    source_offset, target_offset = locations[index % len(locations)]

    there = lane.map.to_target(source_offset)
    back = lane.map.to_source(target_offset)

    assert there == Exact(offset=target_offset)
    assert back == Exact(offset=source_offset)


@UNHURRIED
@given(lane=lanes(), source_next_offset=st.integers(0, 250))
def test_moving_a_second_time_changes_nothing(lane: ALane, source_next_offset: int) -> None:
    there = offset_of(lane.map.to_target(source_next_offset))

    back = offset_of(lane.map.to_source(there))

    assert offset_of(lane.map.to_target(back)) == there


@UNHURRIED
@given(lane=lanes(), asked=st.integers(0, 250))
def test_an_adopted_lane_answers_as_any_other_but_for_what_came_before_it(
    lane: ALane, asked: int
) -> None:
    adopted = map_of(lane.runs, lane.end, [_adopted_start(lane)])

    for plain, found in (
        (lane.map.to_target(asked), adopted.to_target(asked)),
        (lane.map.to_source(asked), adopted.to_source(asked)),
    ):
        is_before = isinstance(plain, Clamped) and plain.side == "before"
        assert isinstance(found, Unsafe) == is_before
        assert is_before or found == plain


def _adopted_start(lane: ALane) -> StartEntry:
    first = lane.runs.first
    assert first is not None
    return StartEntry(
        topic=TopicName("orders"),
        partition=0,
        position=first.position,
        author="a",
        source_offset=first.source_offset,
        target_offset=first.target_offset,
        source_topic_id=None,
        target_topic_id=None,
        at_ms=1,
        adopted=True,
    )


@UNHURRIED
@given(lane=lanes())
def test_every_record_is_found_by_its_position_and_its_position_by_either_offset(
    lane: ALane,
) -> None:
    first = lane.end.position - len(lane.records)

    for position, record in enumerate(lane.records, first):
        assert lane.runs.source_offset_at(position) == record.source_offset
        assert lane.runs.target_offset_at(position) == record.target_offset
        assert lane.runs.position_of_source(record.source_offset) == position
        assert lane.runs.position_of_target(record.target_offset) == position


@UNHURRIED
@given(lane=lanes())
def test_a_lane_is_identical_when_all_its_records_have_equal_offsets(lane: ALane) -> None:
    equal = all(record.source_offset == record.target_offset for record in lane.records)

    assert lane.runs.identical(lane.end.position) == equal


@st.composite
def some_runs(draw: st.DrawFn) -> tuple[Run, ...]:
    """Within one entry the source may begin again, the target never goes back."""
    position, source, target = draw(st.integers(0, 2**40)), draw(INT64), draw(st.integers(0, 2**62))
    runs = [Run(position=position, source_offset=source, target_offset=target)]
    big = st.integers(1, 5) | st.integers(1, 2**40)
    skip = st.integers(0, 3) | st.integers(0, 2**40)
    for records, target_skip in draw(st.lists(st.tuples(big, skip), max_size=20)):
        position, target = position + records, target + records + target_skip
        runs.append(Run(position=position, source_offset=draw(INT64), target_offset=target))
    return tuple(runs)


FLOW_ENTRIES = st.builds(
    FlowEntry,
    flow=st.builds(FlowId, source=TEXTS.map(ClusterAlias), target=TEXTS.map(ClusterAlias)),
    producer_id=INT64,
    producer_epoch=st.integers(0, 2**15 - 1),
    source_cluster_id=TEXTS,
    created_ms=INT64,
)
START_ENTRIES = st.builds(
    StartEntry,
    topic=TOPICS,
    partition=PARTITIONS,
    position=INT64,
    author=AUTHORS,
    source_offset=INT64,
    target_offset=INT64,
    source_topic_id=TOPIC_IDS,
    target_topic_id=TOPIC_IDS,
    at_ms=INT64,
)
HEAD_ENTRIES = st.builds(
    HeadEntry,
    topic=TOPICS,
    partition=PARTITIONS,
    position=INT64,
    source_next_offset=INT64,
    source_end_offset=INT64,
    target_next_offset=INT64,
    source_topic_id=TOPIC_IDS,
    target_topic_id=TOPIC_IDS,
    at_ms=INT64,
    state=TEXTS,
    detail=TEXTS,
    source_leader_epoch=st.none() | st.integers(0, 2**31 - 1),
    begun_at=st.none() | INT64,
)
LEASE_ENTRIES = st.builds(
    LeaseEntry,
    author=AUTHORS,
    host=TEXTS,
    pid=INT64,
    at_ms=INT64,
    lease_ms=INT64,
    slot_count=INT64,
)
RUNS_ENTRIES = st.builds(
    lambda topic, partition, author, runs, more: RunsEntry(
        topic=topic,
        partition=partition,
        author=author,
        runs=runs,
        end_position=None if more is None else runs[-1].position + more,
    ),
    topic=TOPICS,
    partition=PARTITIONS,
    author=AUTHORS,
    runs=some_runs(),
    more=st.none() | st.integers(1, 2**40),
)
SEGMENT_ENTRIES = st.builds(
    lambda topic, partition, author, runs, more, is_coarse: SegmentEntry(
        topic=topic,
        partition=partition,
        author=author,
        packed=pack_anchors(runs, runs[-1].position + more, is_identical=is_coarse)
        if is_coarse is not None
        else pack_runs(runs, runs[-1].position + more),
    ),
    topic=TOPICS,
    partition=PARTITIONS,
    author=AUTHORS,
    runs=some_runs(),
    more=st.integers(1, 2**40),
    is_coarse=st.none() | st.booleans(),
)
LOSS_ENTRIES = st.builds(
    LossEntry,
    topic=TOPICS,
    partition=PARTITIONS,
    position=INT64,
    lost=st.tuples(INT64, INT64).map(lambda ends: OffsetRange(start=min(ends), end=max(ends))),
    reason=st.sampled_from(StallReason),
    at_ms=INT64,
)
ACL_TEXTS = st.text(min_size=1, max_size=60)
ACL_ENTRIES = st.builds(
    AclEntry,
    binding=st.builds(
        AclBinding,
        name=ACL_TEXTS,
        pattern=st.sampled_from(AclPattern),
        principal=ACL_TEXTS,
        host=ACL_TEXTS,
        operation=st.sampled_from(AclOperation),
        permission=st.sampled_from(AclPermission),
    ),
    at_ms=INT64,
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-OFFSET_MAX, OFFSET_MAX) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=8,
)
MEMO_ENTRIES = st.builds(
    MemoEntry,
    subject=st.text(min_size=1, max_size=60),
    text=st.dictionaries(st.text(max_size=9), JSON_VALUES, max_size=4).map(json.dumps),
)
ENTRIES = (
    FLOW_ENTRIES
    | LEASE_ENTRIES
    | START_ENTRIES
    | HEAD_ENTRIES
    | RUNS_ENTRIES
    | SEGMENT_ENTRIES
    | LOSS_ENTRIES
    | ACL_ENTRIES
    | MEMO_ENTRIES
)


@UNHURRIED
@given(entry=ENTRIES)
def test_an_entry_survives_its_bytes(entry: Entry) -> None:
    key, value = encode(entry)

    assert decode(key, value) == entry


@settings(UNHURRIED, max_examples=120)
@given(entry=ENTRIES, cuts=st.randoms(use_true_random=False), flips=st.integers(1, 4))
def test_mutated_bytes_are_refused_or_mean_something_that_can_be_written(
    entry: Entry, cuts: Random, flips: int
) -> None:
    mutated = [bytearray(part) for part in encode(entry)]
    for _ in range(flips):
        part = mutated[cuts.randrange(2)]
        where = cuts.randrange(len(part) + 1)
        part[where : where + cuts.randrange(3)] = cuts.randbytes(cuts.randrange(3))

    with suppress(WireError):
        read = decode(bytes(mutated[0]), bytes(mutated[1]))
        assert read is not None
        assert decode(*encode(read)) == read


@settings(UNHURRIED, max_examples=120)
@given(value=st.binary(max_size=200))
def test_random_bytes_never_make_more_runs_than_there_are_bytes(value: bytes) -> None:
    with suppress(WireError):
        entry = decode(b"run|orders|3|1234|" + b"a" * 32, b"\x01" + value)
        assert isinstance(entry, RunsEntry)
        assert len(entry.runs) <= len(value)


@settings(UNHURRIED, max_examples=120)
@given(lane=lanes(), sizes=st.lists(st.integers(1, 7), min_size=1), random=st.randoms())
def test_packed_runs_answer_as_the_runs_that_are_in_them(
    lane: ALane, sizes: list[int], random: Random
) -> None:
    """Whatever blocks they are packed in, and in whatever order these were written."""
    runs, at = list(lane.runs), 0
    blocks: list[PackedRuns] = []
    while at < len(runs):
        some = runs[at : at + sizes[len(blocks) % len(sizes)]]
        at += len(some)
        end = runs[at].position if at < len(runs) else runs[-1].position + 1
        blocks.append(pack_runs(some, end))
    random.shuffle(blocks)
    packed = Runs()
    for block in blocks:
        packed.put(block, block.end_position, resumes=False)

    assert list(packed) == runs
    assert len(packed) == len(runs)
    for asked in range(0, 250, 7):
        assert packed.position_of_source(asked) == lane.runs.position_of_source(asked)
        assert packed.position_of_target(asked) == lane.runs.position_of_target(asked)
        assert packed.identical(asked) == lane.runs.identical(asked)
    for position in range(runs[0].position, runs[-1].position + 3):
        assert packed.source_offset_at(position) == lane.runs.source_offset_at(position)
        assert packed.target_offset_at(position) == lane.runs.target_offset_at(position)


@UNHURRIED
@given(
    position=st.integers(1, 2**40) | st.integers(1, 2**20).map(lambda near: SEQUENCES * 3 + near),
    head_behind=st.integers(-(2**30), 2**30 - 1),
)
def test_the_position_is_found_from_its_sequence_across_wraps(
    position: int, head_behind: int
) -> None:
    head_position = max(0, position - head_behind)
    last_sequence = sequence_of(position - 1)

    assert 0 <= last_sequence < SEQUENCES
    assert position_from_sequence(last_sequence, head_position) == position
