"""What must hold of runs that the ledger forgot: no answer becomes wrong, some become coarse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.ledger import segments
from heliograph.ledger.entries import RunsEntry, StartEntry
from heliograph.ledger.entry_codec import encode
from heliograph.ledger.locate import LogState, locate
from heliograph.ledger.reverse import LaneStart, lane_entries, reversed_anchors, reversed_runs
from heliograph.ledger.runs import Run
from heliograph.ledger.segments import forgotten
from heliograph.ledger.translate import Clamped, LaneEnd, OffsetMap, Translation, Unsafe
from heliograph.ledger.view import LaneRecord, LedgerView
from heliograph.model import TopicId
from tests.kit.entries import head_entry
from tests.property.test_ledger_folds import Log, compact, replayed
from tests.property.test_ledger_segments import TOPIC, UNHURRIED, planned, record

IDS = [TopicId(f"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f{digit}") for digit in range(3)]

TURNS = [4, 2, 2, 4, 1]
RANDOMS = st.integers(0, 2**32).map(Random)
"""Hypothesis' own draw mostly the first choice, and then hardly anything is forgotten."""


@dataclass(frozen=True, slots=True)
class History:
    """What a lane went through: a run for each record, and where it began again."""

    records: tuple[Run, ...]
    starts: tuple[StartEntry, ...]

    @property
    def end(self) -> LaneEnd:
        last = self.records[-1]
        return LaneEnd(
            position=last.position + 1,
            source_next_offset=last.source_offset + 1,
            target_next_offset=last.target_offset + 1,
        )


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A source topic with gaps, replaced or read again; a target with others' records."""
    records: list[Run] = []
    starts: list[StartEntry] = []
    target, topic = draw(st.integers(0, 3)), IDS[0]
    for number in range(draw(st.integers(1, 3))):
        source = draw(st.integers(0, 6))
        if number and draw(st.booleans()):
            topic = IDS[number]
        for index, gap in enumerate(draw(st.lists(st.integers(0, 2), min_size=1, max_size=20))):
            source += gap
            target += draw(st.integers(0, 1)) if index else 0
            run = Run(position=len(records), source_offset=source, target_offset=target)
            if not index:
                starts.append(start_of(run, topic, adopted=not number and draw(st.booleans())))
            records.append(run)
            source, target = source + 1, target + 1
    return History(tuple(records), tuple(starts))


def start_of(run: Run, topic: TopicId, *, adopted: bool) -> StartEntry:
    return StartEntry(
        topic=TOPIC,
        partition=0,
        position=run.position,
        author="0" * 32,
        source_offset=run.source_offset,
        target_offset=run.target_offset,
        source_topic_id=topic,
        target_topic_id=None,
        at_ms=0,
        adopted=adopted,
    )


def chunk(records: Sequence[Run], author: str) -> RunsEntry:
    """All that a chunk has, as a lane writes it: a run where it does not go on by itself."""
    runs = [records[0]]
    runs += [run for before, run in pairwise(records) if before.at(run.position) != run]
    return RunsEntry(
        topic=TOPIC,
        partition=0,
        author=author * 32,
        runs=tuple(runs),
        end_position=records[-1].position + 1,
    )


def written(history: History, random: Random) -> list[Log]:
    """Starts and chunks in the order in which they are written."""
    edges = [start.position for start in history.starts] + [len(history.records)]
    steps: list[Log] = []
    for start, end in zip(history.starts, edges[1:], strict=True):
        steps.append([encode(start)])
        position = start.position
        while position < end:
            upto = min(end, position + random.randint(1, 4))
            steps.append([encode(chunk(history.records[position:upto], random.choice("ab")))])
            position = upto
    return steps


def lane_of(view: LedgerView) -> LaneRecord:
    lane = view.lane(TOPIC, 0)
    assert lane is not None
    return lane


def forgetting(
    view: LedgerView, size: int, runs_max: int, log_starts: Run | None, author: str, anchors: int
) -> Log:
    fold = view.fold(TOPIC, 0)
    assert fold is not None
    with (
        patch.object(segments, "SEGMENT_RUNS", size),
        patch.object(segments, "ANCHORS_MAX", anchors),
    ):
        found = forgotten(fold, runs_max=runs_max, log_starts=log_starts, author=author, least=1)
    return [record(entry) for entry in found]


def is_safe(now: Translation, exact: Translation) -> bool:
    """The same answer, or one from before it that says so."""
    if isinstance(now, Unsafe) or isinstance(exact, Unsafe):
        return isinstance(now, Unsafe) and isinstance(exact, Unsafe)
    if isinstance(now, Clamped) and now.side == "coarse":
        return now.offset <= exact.offset
    return now == exact


def require_safe(view: LedgerView, known: LedgerView, end: LaneEnd) -> None:
    now, exact = OffsetMap(lane_of(view), end), OffsetMap(lane_of(known), end)
    for asked in range(max(end.source_next_offset, end.target_next_offset) + 60):
        to_target = now.to_target(asked), exact.to_target(asked)
        assert is_safe(*to_target), (asked, *to_target)
        to_source = now.to_source(asked), exact.to_source(asked)
        assert is_safe(*to_source), (asked, *to_source)


@settings(UNHURRIED, max_examples=150)
@given(
    history=histories(),
    size=st.integers(1, 3),
    runs_max=st.integers(0, 12),
    anchors=st.integers(1, 4),
    logs_begin=st.none() | st.integers(0, 50),
    random=RANDOMS,
)
def test_forgetting_makes_no_translation_wrong_only_coarse(
    history: History,
    size: int,
    runs_max: int,
    anchors: int,
    logs_begin: int | None,
    random: Random,
) -> None:
    """Whatever was merged and forgotten when, by whom, how late it landed, and what is left."""
    starts = None
    if logs_begin is not None:
        starts = Run(position=0, source_offset=logs_begin, target_offset=logs_begin)
    known: Log = []
    log: Log = []
    waiting: dict[int, Log] = {}
    steps = written(history, random)
    turns = random.choices(("write", "merge", "forget", "land", "clean"), TURNS, k=80)
    for number, turn in enumerate(turns):
        # Two slots, each with one write under way; no two writes are signed alike.
        slot, author, view = random.randrange(2), f"{number:032x}", replayed(log)
        if turn == "write" and steps:
            known += steps[0]
            log += steps.pop(0)
        elif turn == "merge" and known and slot not in waiting:
            settled = lane_of(replayed(known)).runs.written_until - random.choice([0, 0, 1, 5])
            waiting[slot] = planned(view, settled, size, author)
        elif turn == "forget" and known and slot not in waiting:
            waiting[slot] = forgetting(view, size, runs_max, starts, author, anchors)
        elif turn == "land" and slot in waiting:
            late = waiting.pop(slot)
            log += late[: random.choice([len(late), len(late), random.randrange(len(late) + 1)])]
        elif turn == "clean":
            cut = random.randrange(len(log) + 1)
            log = compact(log[:cut], random) + log[cut:]
    for step in steps:
        known += step
        log += step

    require_safe(replayed(log), replayed(known), history.end)


@settings(UNHURRIED, max_examples=80)
@given(
    history=histories(),
    size=st.integers(1, 3),
    runs_max=st.integers(0, 8),
    random=RANDOMS,
)
def test_every_part_of_a_forgetting_that_landed_and_all_that_compaction_leaves_answer_alike(
    history: History, size: int, runs_max: int, random: Random
) -> None:
    known: Log = [each for step in written(history, random) for each in step]
    log = known + planned(replayed(known), history.end.position, size)
    first = forgetting(replayed(log), size, runs_max, None, "c" * 32, 4)
    plan = first + forgetting(replayed(log + first), size, 0, None, "d" * 32, 4)

    for landed in range(len(plan) + 1):
        left = log + plan[:landed]
        require_safe(replayed(left), replayed(known), history.end)
        assert answers(replayed(compact(left, random)), history) == answers(replayed(left), history)


def answers(view: LedgerView, history: History) -> list[Translation]:
    offsets = OffsetMap(lane_of(view), history.end)
    asked = range(history.end.target_next_offset + 20)
    return [*map(offsets.to_target, asked), *map(offsets.to_source, asked)]


@settings(UNHURRIED, max_examples=80)
@given(
    history=histories(),
    size=st.integers(1, 3),
    head=st.integers(0, 30),
    random=RANDOMS,
)
def test_a_lane_resumes_after_forgetting_exactly_where_it_would_have(
    history: History, size: int, head: int, random: Random
) -> None:
    """From the head on: what is settled is never asked for again."""
    end = history.end
    head = min(end.position, max(head, history.starts[-1].position + 1))
    noted = encode(head_entry(TOPIC, 0, records=head))
    known: Log = [*(each for step in written(history, random) for each in step), noted]
    log = known + planned(replayed(known), head, size)
    log += forgetting(replayed(log), size, 0, None, "c" * 32, 4)

    before, after = lane_of(replayed(known)), lane_of(replayed(log))

    for position in range(head - 1, end.position + 3):
        assert after.runs.run_at(position).at(position) == before.runs.run_at(position).at(position)
    for position in range(head, end.position + 1):
        target = before.runs.target_offset_at(position)
        shown = LogState(end=target, last_sequence=position - 1)
        assert locate(after, shown) == locate(before, shown)
        assert locate(after, LogState(end=target, last_sequence=-1)) == locate(
            before, LogState(end=target, last_sequence=-1)
        )


@settings(UNHURRIED, max_examples=80)
@given(
    history=histories(),
    size=st.integers(1, 3),
    runs_max=st.integers(0, 6),
    random=RANDOMS,
)
def test_the_way_back_of_a_lane_that_forgot_is_safe_too(
    history: History, size: int, runs_max: int, random: Random
) -> None:
    known: Log = [each for step in written(history, random) for each in step]
    log = known + planned(replayed(known), history.end.position, size)
    log += forgetting(replayed(log), size, runs_max, None, "c" * 32, 4)

    back = [replayed_back(lane_of(replayed(each)), history.end) for each in (log, known)]

    reversed_end = LaneEnd(
        position=history.end.position,
        source_next_offset=history.end.target_next_offset,
        target_next_offset=history.end.source_next_offset,
    )
    require_safe(back[0], back[1], reversed_end)


def replayed_back(lane: LaneRecord, end: LaneEnd) -> LedgerView:
    """The ledger of the flow that goes back."""
    here = Run(
        position=end.position,
        source_offset=end.target_next_offset,
        target_offset=end.source_next_offset,
    )
    start = LaneStart(
        topic=TOPIC,
        partition=0,
        here=here,
        before=reversed_runs(lane.runs, end.position),
        anchors=reversed_anchors(lane.runs),
        is_identical=lane.runs.identical(end.position),
        source_end_offset=0,
        source_topic_id=None,
        target_topic_id=None,
    )
    entries = lane_entries(start, author="e" * 32, at_ms=0, detail="")
    return replayed([encode(entry) for entry in entries])
