"""What must hold of merged runs: the map stays what it was, whatever landed when and is left."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from unittest.mock import patch

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliograph.ledger import segments
from heliograph.ledger.entries import Entry, RunsEntry, StartEntry, Tombstone, only_raises
from heliograph.ledger.entry_codec import encode, encode_key
from heliograph.ledger.replay_guard import ReplayGuard
from heliograph.ledger.runs import Run
from heliograph.ledger.segments import merged
from heliograph.ledger.view import LedgerView
from heliograph.model import TopicName
from tests.property.test_ledger_folds import (
    SMALL_RUNS,
    SMALL_STARTS,
    Layout,
    Log,
    begun,
    chunks,
    compact,
    cuts,
    layouts,
    replayed,
)

UNHURRIED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
TOPIC = TopicName("orders")
AUTHOR = "c" * 32


def agreeing(entry: RunsEntry | StartEntry) -> RunsEntry | StartEntry:
    """Writers may contradict each other about the source; where they do about the target, nothing
    is merged until the lane was resynced. What only raises may be behind the others, or ahead."""
    if isinstance(entry, StartEntry):
        return replace(entry, target_offset=entry.position + 10)
    ahead = entry.runs[0].target_offset if only_raises(entry.author) else 10
    runs = [run._replace(target_offset=run.position + ahead) for run in entry.runs]
    return replace(entry, runs=tuple(runs))


STEPS = (SMALL_RUNS | SMALL_RUNS | SMALL_STARTS).map(agreeing)


def record(entry: Entry | Tombstone) -> tuple[bytes, bytes | None]:
    return (encode_key(entry.key), None) if isinstance(entry, Tombstone) else encode(entry)


def planned(view: LedgerView, settled: int, size: int, author: str = AUTHOR) -> Log:
    """What a slot would write that merges all it may, in segments of this size."""
    fold = view.fold(TOPIC, 0)
    assert fold is not None
    with patch.object(segments, "SEGMENT_RUNS", size):
        return [record(entry) for entry in merged(fold, settled, author=author, least=1)]


def mapped(view: LedgerView, beyond: int = 5) -> list[tuple[int, int, int]]:
    lane = view.lane(TOPIC, 0)
    if lane is None or not lane.runs or lane.runs.first is None:
        return []
    runs = lane.runs
    return [
        (position, runs.source_offset_at(position), runs.target_offset_at(position))
        for position in range(lane.runs.first.position, runs.written_until + beyond)
    ]


@settings(UNHURRIED, max_examples=120)
@given(
    steps=st.lists(STEPS, min_size=1, max_size=14),
    settled=st.integers(0, 60),
    size=st.integers(1, 5),
    random=st.randoms(use_true_random=False),
)
def test_a_merge_changes_no_map_whatever_part_of_it_has_landed_and_compaction_has_removed(
    steps: list[RunsEntry | StartEntry], settled: int, size: int, random: Random
) -> None:
    """Of any log at all, also one whose writers contradict each other."""
    log: Log = [encode(step) for step in steps]
    before = mapped(replayed(log))

    plan = planned(replayed(log), settled, size)

    for landed in range(len(plan) + 1):
        assert mapped(replayed(log + plan[:landed])) == before
    landed = random.randrange(len(plan) + 1)
    assert mapped(replayed(compact(log + plan[:landed], random))) == before
    assert mapped(replayed(compact(log + plan, random))) == before
    again = planned(replayed(log + plan), settled, size, "d" * 32)
    assert mapped(replayed(log + plan + again)) == before


@settings(UNHURRIED, max_examples=80)
@given(
    steps=st.lists(STEPS, min_size=1, max_size=10),
    settled=st.integers(0, 60),
    size=st.integers(1, 5),
    random=st.randoms(use_true_random=False),
)
def test_no_order_of_removal_brings_back_what_a_merge_replaced(
    steps: list[RunsEntry | StartEntry], settled: int, size: int, random: Random
) -> None:
    """Of entries with an end; those without are removed from the oldest on, and only so."""
    bounded = [
        replace(step, end_position=step.runs[-1].position + 1)
        if isinstance(step, RunsEntry) and step.end_position is None
        else step
        for step in steps
    ]
    log: Log = [encode(step) for step in bounded]
    before = mapped(replayed(log))
    plan = planned(replayed(log), settled, size)
    gone = [each for each in plan if each[1] is None]
    random.shuffle(gone)

    for count in range(len(gone) + 1):
        left = log + [each for each in plan if each[1] is not None] + gone[:count]
        assert mapped(replayed(left)) == before


@UNHURRIED
@given(layout=layouts(), draw=st.data(), random=st.randoms(use_true_random=False))
def test_two_mirrors_that_merge_late_and_at_once_fold_to_the_map_of_their_source(
    layout: Layout, draw: st.DataObject, random: Random
) -> None:
    """Each merges what it has read, up to a head; its merge may land after the other's."""
    end = len(layout)
    written = [
        [
            encode(entry)
            for entry in chunks(layout, draw.draw(cuts(0, end)), author, layout[0], quiet)
        ]
        for author, quiet in (("a", ReplayGuard()), ("b", ReplayGuard()))
    ]
    log: Log = [encode(begun(layout))]
    waiting: list[Log] = []
    while any(written) or waiting:
        turn = random.random()
        if turn < 0.5 and any(written):
            log.append(random.choice([each for each in written if each]).pop(0))
        elif turn < 0.8 and any(written):
            settled = random.randrange(end + 1)
            waiting.append(
                planned(replayed(log), settled, random.randint(1, 4), random.choice("cd") * 32)
            )
        elif waiting:
            log += waiting.pop(random.randrange(len(waiting)))
        if random.random() < 0.2:
            cut = random.randrange(len(log) + 1)
            log = compact(log[:cut], random) + log[cut:]

    assert [(source, target) for _, source, target in mapped(replayed(log), 0)][:end] == [
        (layout[position], position) for position in range(min(end, len(mapped(replayed(log), 0))))
    ]
    view = replayed(log)
    lane = view.lane(TOPIC, 0)
    assert lane is not None
    assert [lane.runs.source_offset_at(position) for position in range(end)] == list(layout)


@UNHURRIED
@given(layout=layouts(), draw=st.data(), size=st.integers(1, 6))
def test_a_merged_lane_has_few_entries(layout: Layout, draw: st.DataObject, size: int) -> None:
    """Full segments, one that grows, and the start."""
    end = len(layout)
    log: Log = [encode(begun(layout))]
    for cut, after in zip(range(end), range(1, end + 1), strict=True):
        log += [
            encode(e)
            for e in chunks(layout, [cut, after], "a", layout[max(0, cut - 1)], ReplayGuard())
        ]
        log += planned(replayed(log), cut + 1, size)

    fold = replayed(log).fold(TOPIC, 0)

    assert fold is not None
    runs: list[Run] = list(fold.runs)
    assert len(fold.written) <= 2 + -(-len(runs) // size)
