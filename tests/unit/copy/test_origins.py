"""Which batches of a source a mirror wrote: decided by their producer, asked of ledgers, never
guessed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.copy.chunk import LaneCursor, prepare_chunk
from heliograph.copy.origins import Origin, Origins, Producer, SourceOrigins
from heliograph.errors import LedgerUnusable
from heliograph.ledger.entries import FlowEntry, ledger_topic
from heliograph.ledger.mark import mark_of, renewed
from heliograph.ledger.runs import Run, Runs
from heliograph.ledger.store import LedgerStore
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, OffsetRange
from heliograph.wire.batch import Stamp, parse_header
from tests.kit.batches import Record, batch_of
from tests.kit.fake_cluster import FakeCluster
from tests.kit.fake_records import records_batch
from tests.unit.copy.test_chunk import cursor_at

A, B, C = map(ClusterAlias, "ABC")
BACK = FlowId(source=B, target=A)
MARK = mark_of(BACK)
STAMP = Stamp(producer_id=7, producer_epoch=MARK)
TRANSACTIONAL = 0x10


def entry(producer_id: int, flow: FlowId = BACK) -> FlowEntry:
    return FlowEntry(
        flow=flow,
        producer_id=producer_id,
        producer_epoch=mark_of(flow),
        source_cluster_id="",
        created_ms=1,
    )


def origin(known: Origins, producer_id: int, epoch: int, attributes: int = 0) -> Origin:
    batch = batch_of(Record(offset=0), attributes=attributes)
    written = bytearray(records_batch(1, producer_id=producer_id, epoch=epoch, sequence=0))
    written[21:23] = bytes(batch[21:23])
    header = parse_header(memoryview(written))
    assert header is not None
    return known.of(header)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "attributes", "expected"),
    [
        pytest.param(50, MARK, 0, Origin.MIRRORED, id="listed"),
        pytest.param(50, 0, 0, Origin.MIRRORED, id="listed, of a version without marks"),
        pytest.param(-1, -1, 0, Origin.LOCAL, id="of no producer"),
        pytest.param(51, 3, 0, Origin.LOCAL, id="of an ordinary producer"),
        pytest.param(52, MARK, 0, Origin.UNKNOWN, id="marked, and not listed yet"),
        pytest.param(52, MARK + 1, 0, Origin.UNKNOWN, id="marked by another flow"),
        pytest.param(53, MARK, 0, Origin.LOCAL, id="marked, and no ledger has it"),
        pytest.param(52, MARK, TRANSACTIONAL, Origin.LOCAL, id="of transactions that began often"),
    ],
)
def test_a_batch_is_judged_by_its_producer(
    producer_id: int, epoch: int, attributes: int, expected: Origin
) -> None:
    known = Origins(mirrored={50}, local={53})

    assert origin(known, producer_id, epoch, attributes) is expected


@dataclass
class Source:
    """The source of A->B: cluster A, where B->A writes, and C->A."""

    cluster: FakeCluster = field(default_factory=lambda: FakeCluster("A"))

    def lists(self, *entries: FlowEntry) -> None:
        name = ledger_topic(entries[0].flow.source)
        if name not in self.cluster.topics:
            self.cluster.create(name, is_compacted=True)

        async def write() -> None:
            store = LedgerStore(self.cluster, name)
            await store.write(entries)
            await store.close()

        asyncio.run(write())

    def asks(self, *, reads_all: bool = False) -> SourceOrigins:
        return SourceOrigins(self.cluster, [B], reads_all=reads_all)


def test_a_producer_that_is_newer_than_the_last_look_is_asked_for() -> None:
    source = Source()
    source.lists(entry(50))
    origins = source.asks()
    asyncio.run(origins.learn())
    assert origins.known.mirrored == {50}

    source.lists(entry(52))
    assert origin(origins.known, 52, MARK) is Origin.UNKNOWN
    asyncio.run(origins.learn([Producer(52, MARK), Producer(53, MARK)]))

    assert origins.known == Origins(mirrored={50, 52}, local={53})


def test_what_was_asked_once_is_not_asked_again() -> None:
    source = Source()
    source.lists(entry(50))
    origins = source.asks()
    asyncio.run(origins.learn([Producer(53, MARK)]))
    asked = len(source.cluster.asked)

    asyncio.run(origins.learn([Producer(53, MARK), Producer(50, MARK)]))

    assert len(source.cluster.asked) == asked


def test_without_a_ledger_nothing_was_mirrored() -> None:
    origins = Source().asks()

    asyncio.run(origins.learn([Producer(52, MARK + 1)]))

    assert origins.known == Origins(mirrored=set(), local={52})


def test_a_ledger_that_is_gone_while_its_batches_are_there_is_no_answer() -> None:
    origins = Source().asks()

    with pytest.raises(LedgerUnusable, match="Restore the topic"):
        asyncio.run(origins.learn([Producer(52, MARK)]))

    assert origins.known == Origins(set(), set())


def test_returning_leaves_out_one_flow_and_mirrored_all_of_them() -> None:
    source = Source()
    source.lists(entry(50))
    source.lists(entry(60, FlowId(source=C, target=A)))
    returning, mirrored = source.asks(), source.asks(reads_all=True)

    asyncio.run(returning.learn())
    asyncio.run(mirrored.learn())

    assert returning.known.mirrored == {50}
    assert mirrored.known.mirrored == {50, 60}


def test_a_flow_that_gets_another_producer_keeps_those_it_had_listed() -> None:
    view = LedgerView()
    for producer_id in (50, 51, 52):
        for each in renewed(view, entry(producer_id)):
            view.apply(each)

    assert view.flow == entry(52)
    assert {each.producer_id for each in view.producers} == {50, 51, 52}


def test_a_batch_nobody_knows_ends_the_chunk_before_it() -> None:
    known, cursor = Origins({50}, set()), cursor_at(0)
    fetched = _log([(-1, 2), (50, 3), (52, 1), (-1, 1)])

    chunk = prepare_chunk(fetched, cursor, STAMP, origins=known)

    assert chunk.unknown == Producer(52, MARK)
    assert [each.record_count for each in chunk.batches] == [2]
    assert cursor.next_offset == 5


def test_what_lay_there_when_a_failback_began_is_copied_whoever_wrote_it() -> None:
    cursor = cursor_at(0)
    fetched = _log([(50, 2), (52, 2), (50, 2)])

    chunk = prepare_chunk(
        fetched, cursor, STAMP, origins=Origins({50, 52}, set()), kept=OffsetRange(start=0, end=4)
    )

    assert [each.source_offset for each in chunk.batches] == [0, 2]
    assert cursor.next_offset == 6


def test_what_is_kept_may_begin_within_a_batch() -> None:
    """Where a failback found that the other side had lost the rest of it."""
    for start in (0, 1):
        cursor = cursor_at(start)
        fetched = _log([(50, 5), (-1, 2), (50, 2)])

        chunk = prepare_chunk(
            fetched, cursor, STAMP, origins=Origins({50}, set()), kept=OffsetRange(start=3, end=7)
        )

        assert [(each.source_offset, each.record_count) for each in chunk.batches] == [
            (3, 2),
            (5, 2),
        ]
        assert cursor.next_offset == 9


@given(
    st.lists(st.tuples(st.sampled_from([-1, 40, 50, 51]), st.integers(1, 12)), max_size=40),
    st.data(),
)
def test_runs_say_where_every_record_went_that_no_mirror_brought(
    batches: list[tuple[int, int]], data: st.DataObject
) -> None:
    """However the log is cut into fetches, and whatever is tiny enough to be put together."""
    known, cursor = Origins({50, 51}, set()), cursor_at(0)
    runs, placed = Runs(), dict[int, int]()
    runs.replace_from((Run(position=0, source_offset=0, target_offset=1000),))
    while batches:
        count = data.draw(st.integers(1, len(batches)))
        some, batches = batches[:count], batches[count:]
        chunk = prepare_chunk(_log(some, cursor.next_offset), cursor, STAMP, origins=known)
        if chunk.runs:
            runs.replace_from(chunk.runs)
        offset = cursor.next_offset - sum(size for _, size in some)
        for producer_id, size in some:
            if producer_id not in known.mirrored:
                for at in range(offset, offset + size):
                    placed[at] = len(placed)
            offset += size

    assert cursor.position == len(placed)
    assert all(runs.source_offset_at(position) == at for at, position in placed.items())
    assert all(runs.target_offset_at(position) == 1000 + position for position in placed.values())


def _log(batches: list[tuple[int, int]], start: int = 0) -> memoryview:
    """Of producers and their records, one batch after the other."""
    found = b""
    for producer_id, count in batches:
        epoch = -1 if producer_id < 0 else MARK if producer_id >= 50 else 0
        batch = bytearray(records_batch(count, producer_id=producer_id, epoch=epoch, sequence=0))
        batch[:8] = start.to_bytes(8)
        found, start = found + bytes(batch), start + count
    return memoryview(bytearray(found))


def test_a_cursor_moves_past_what_is_left_out() -> None:
    cursor: LaneCursor = cursor_at(0)

    chunk = prepare_chunk(_log([(50, 4)]), cursor, STAMP, origins=Origins({50}, set()))

    assert (chunk.batches, chunk.runs, cursor.next_offset, cursor.position) == ([], [], 4, 0)
