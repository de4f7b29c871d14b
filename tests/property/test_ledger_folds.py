"""What must hold of the ledger for every log, whoever wrote it, however late and compacted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliograph.acl import AclBinding, AclOperation, AclPattern, AclPermission
from heliograph.ledger.entries import (
    AclEntry,
    AclKey,
    Entry,
    FlowEntry,
    LeaseEntry,
    LossEntry,
    MemoEntry,
    MemoKey,
    RunsEntry,
    StartEntry,
)
from heliograph.ledger.entry_codec import decode, encode, encode_key
from heliograph.ledger.replay_guard import ReplayGuard
from heliograph.ledger.runs import Run
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, FlowId, OffsetRange, StallReason, TopicName

UNHURRIED = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The machine may be busy with brokers; slow is not wrong."""
AUTHORS = st.uuids().map(lambda author: author.hex)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Write tombstones for all of the lane's keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoke:
    """Write a tombstone for one ACL."""

    binding: AclBinding


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsay:
    """Write a tombstone for one memo."""

    subject: str


TOPIC = TopicName("orders")
SIGNED = st.sampled_from(
    ["a" * 32, "b" * 32, *(sign.join(("c" * 12, "c" * 18)) for sign in ("80", "81"))]
)
"""Two whose runs replace what is there, one that predicts, one that corrects."""
SMALL_RUNS = st.builds(
    lambda first, steps, skipped, author, more: RunsEntry(
        topic=TOPIC,
        partition=0,
        author=author,
        end_position=None if more is None else first + steps * 2 + more,
        runs=tuple(
            Run(
                position=first + shift,
                source_offset=1_000 * steps + 2 * shift,
                target_offset=skipped + shift,
            )
            for shift in range(0, steps * 2, 2)
        ),
    ),
    first=st.integers(0, 20),
    steps=st.integers(1, 6),
    skipped=st.integers(0, 20),
    author=SIGNED,
    more=st.none() | st.integers(0, 9),
)
SMALL_FLOWS = st.builds(
    FlowEntry,
    flow=st.just(FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))),
    producer_id=st.integers(0, 3),
    producer_epoch=st.integers(0, 3),
    source_cluster_id=st.just("x"),
    created_ms=st.just(0),
)
SMALL_STARTS = st.builds(
    StartEntry,
    topic=st.just(TOPIC),
    partition=st.just(0),
    position=st.sampled_from([0, 0, 10]),
    author=AUTHORS,
    source_offset=st.integers(0, 3),
    target_offset=st.integers(0, 3),
    source_topic_id=st.none(),
    target_topic_id=st.none(),
    at_ms=st.just(0),
)
SMALL_LOSSES = st.builds(
    LossEntry,
    topic=st.just(TOPIC),
    partition=st.just(0),
    position=st.integers(0, 3),
    lost=st.builds(OffsetRange, start=st.integers(0, 2), end=st.integers(3, 9)),
    reason=st.just(StallReason.RETENTION_OVERRUN),
    at_ms=st.just(0),
)
BINDINGS = st.builds(
    AclBinding,
    name=st.just("A.orders"),
    pattern=st.just(AclPattern.LITERAL),
    principal=st.sampled_from(["User:alice", "User:bob"]),
    host=st.just("*"),
    operation=st.sampled_from([AclOperation.READ, AclOperation.ALTER]),
    permission=st.just(AclPermission.ALLOW),
)
SMALL_ACLS = st.builds(AclEntry, binding=BINDINGS, at_ms=st.just(0))
SUBJECTS = st.sampled_from(["fence", "failover", "failover/1/check"])
SMALL_MEMOS = st.builds(
    MemoEntry, subject=SUBJECTS, text=st.integers(0, 3).map(lambda n: f'{{"v":{n}}}')
)
STEPS = (
    SMALL_STARTS
    | SMALL_RUNS
    | SMALL_RUNS
    | SMALL_FLOWS
    | SMALL_LOSSES
    | SMALL_ACLS
    | st.builds(Revoke, binding=BINDINGS)
    | SMALL_MEMOS
    | st.builds(Unsay, subject=SUBJECTS)
    | st.builds(Forget)
)
Log = list[tuple[bytes, bytes | None]]


@settings(UNHURRIED, max_examples=150)
@given(steps=st.lists(STEPS, max_size=25), random=st.randoms(use_true_random=False))
def test_what_compaction_leaves_of_a_log_replays_to_the_same_view(
    steps: list[Entry | Forget | Revoke | Unsay], random: Random
) -> None:
    log: Log = []
    view = LedgerView()
    for step in steps:
        if isinstance(step, Forget):
            keys = view.lane_keys(TOPIC, 0)
            records: Log = [(encode_key(key), None) for key in keys]
        elif isinstance(step, Revoke):
            records = [(encode_key(AclKey(binding=step.binding)), None)]
        elif isinstance(step, Unsay):
            records = [(encode_key(MemoKey(subject=step.subject)), None)]
        else:
            records = [encode(step)]
        for key, value in records:
            view.apply_record(key, value)
        log.extend(records)

    compacted = replayed(compact(log, random))

    assert seen(compacted) == seen(view) == seen(replayed(log))


def compact(log: Log, random: Random) -> Log:
    """As a broker may: drop what a later record replaces, and tombstones with nothing before."""
    kept: Log = []
    for index, (key, value) in enumerate(log):
        is_last = all(later != key for later, _ in log[index + 1 :])
        is_dropped = not is_last and random.random() < 0.7
        if value is None and is_last and all(before != key for before, _ in kept):
            is_dropped = random.random() < 0.7
        if not is_dropped:
            kept.append((key, value))
    return kept


def replayed(log: Log) -> LedgerView:
    view = LedgerView()
    for key, value in log:
        view.apply_record(key, value)
    return view


def seen(view: LedgerView) -> tuple[object, ...]:
    lane = view.lane(TOPIC, 0)
    if lane is None:
        return (view.flow, view.acls, dict(view.memos), None)
    runs = list(lane.runs)
    memos = dict(view.memos)
    return (view.flow, view.acls, memos, lane.starts, runs, lane.losses, lane.head)


Layout = tuple[int, ...]
"""A source as mirrors see it: the source offset of each record, by position."""


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    gaps = draw(st.lists(st.integers(0, 2), min_size=1, max_size=30))
    return tuple(index + sum(gaps[: index + 1]) for index in range(len(gaps)))


@st.composite
def cuts(draw: st.DrawFn, start: int, end: int) -> list[int]:
    inner = draw(st.sets(st.integers(start, end), max_size=6))
    return sorted({start, *inner, end})


def begun(layout: Layout) -> StartEntry:
    """The lane begins at position 0, source and target offset 0."""
    return StartEntry(
        topic=TOPIC,
        partition=0,
        position=0,
        author="0" * 32,
        source_offset=layout[0],
        target_offset=0,
        source_topic_id=None,
        target_topic_id=None,
        at_ms=0,
    )


def chunks(
    layout: Layout, edges: Sequence[int], author: str, expected: int, ahead: ReplayGuard
) -> list[RunsEntry]:
    """What a mirror writes that fetched `layout` cut at these positions, as a lane does."""
    entries: list[RunsEntry] = []
    for start, end in pairwise(edges):
        runs: list[Run] = []
        for position in range(start, end):
            if layout[position] != expected:
                runs.append(mapped(layout, position))
            expected = layout[position] + 1
        told = ahead.runs_to_write(mapped(layout, start), runs)
        if told:
            entries.append(
                RunsEntry(
                    topic=TOPIC,
                    partition=0,
                    author=author * 32,
                    runs=tuple(told),
                    end_position=end,
                )
            )
    return entries


def mapped(layout: Layout, position: int) -> Run:
    return Run(position=position, source_offset=layout[position], target_offset=position)


def interleaved(first: list[Entry], second: list[Entry], random: Random) -> list[Entry]:
    first, second, mixed = first[:], second[:], []
    while first or second:
        mixed.append((first if not second or (first and random.random() < 0.5) else second).pop(0))
    return mixed


def written_until(entries: Sequence[Entry]) -> int:
    view = LedgerView()
    for entry in entries:
        view.apply(entry)
    lane = view.lane(TOPIC, 0)
    return lane.runs.written_until if lane else 0


def map_of(entries: Sequence[Entry], end: int) -> list[int]:
    view = LedgerView()
    for entry in entries:
        view.apply(entry)
    lane = view.lane(TOPIC, 0)
    assert lane is not None
    assert [lane.runs.target_offset_at(position) for position in range(end)] == list(range(end))
    return [lane.runs.source_offset_at(position) for position in range(end)]


@UNHURRIED
@given(layout=layouts(), draw=st.data(), random=st.randoms(use_true_random=False))
def test_two_mirrors_that_cut_one_source_differently_fold_to_one_map_however_late_either_is(
    layout: Layout, draw: st.DataObject, random: Random
) -> None:
    written = [
        chunks(layout, draw.draw(cuts(0, len(layout))), author, layout[0], ReplayGuard())
        for author in "ab"
    ]

    mixed = interleaved([*written[0]], [*written[1]], random)

    assert map_of([begun(layout), *mixed], len(layout)) == list(layout)


@UNHURRIED
@given(layout=layouts(), draw=st.data())
def test_a_successor_never_takes_away_the_runs_of_batches_that_still_land(
    layout: Layout, draw: st.DataObject
) -> None:
    end = len(layout)
    resumed_at = draw.draw(st.integers(0, end - 1))
    slow = chunks(layout, draw.draw(cuts(0, end)), "a", layout[0], ReplayGuard())
    ahead = ReplayGuard(resumed_at, written_until([begun(layout), *slow]))

    successor = chunks(layout, draw.draw(cuts(resumed_at, end)), "b", layout[resumed_at], ahead)

    for count in range(len(successor) + 1):
        assert map_of([begun(layout), *slow, *successor[:count]], end) == list(layout)


@UNHURRIED
@given(layout=layouts(), draw=st.data())
def test_a_successor_of_a_dead_mirror_maps_a_source_that_was_compacted_since(
    layout: Layout, draw: st.DataObject
) -> None:
    resumed_at = draw.draw(st.integers(0, len(layout) - 1))
    dead = chunks(layout, draw.draw(cuts(0, len(layout))), "a", layout[0], ReplayGuard())
    kept = draw.draw(st.sets(st.sampled_from(layout[resumed_at:])))
    compacted = (*layout[:resumed_at], *sorted(kept), *(layout[-1] + more for more in (1, 2, 3)))
    ahead = ReplayGuard(resumed_at, written_until([begun(layout), *dead]))
    edges = draw.draw(cuts(resumed_at, len(compacted)))

    successor = chunks(compacted, edges, "b", layout[resumed_at], ahead)

    assert map_of([begun(layout), *dead, *successor], len(compacted)) == list(compacted)


@UNHURRIED
@given(
    layout=layouts(),
    draw=st.data(),
    prefix=st.integers(0, 40),
    random=st.randoms(use_true_random=False),
)
def test_compacting_any_prefix_leaves_the_map_of_all_that_was_appended(
    layout: Layout, draw: st.DataObject, prefix: int, random: Random
) -> None:
    written = [
        chunks(layout, draw.draw(cuts(0, len(layout))), author, layout[0], ReplayGuard())
        for author in "ab"
    ]
    mixed = interleaved([*written[0]], [*written[1], *written[1]], random)
    log: Log = [encode(entry) for entry in (begun(layout), *mixed)]

    left = compact(log[:prefix], random) + log[prefix:]

    entries = [decode(key, value) for key, value in left]
    assert map_of([entry for entry in entries if entry], len(layout)) == list(layout)


LEASES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 6), st.integers(0, 9)), max_size=20
)


@UNHURRIED
@given(steps=LEASES)
def test_a_lease_changes_hands_only_when_it_is_over_or_let_go(
    steps: list[tuple[str, int, int]],
) -> None:
    view = LedgerView()
    at_ms = 0
    for author, later_ms, lease_ms in steps:
        at_ms += later_ms
        entry = LeaseEntry(
            author=author * 32, host="h", pid=1, at_ms=at_ms, lease_ms=lease_ms, slot_count=1
        )
        before = view.holder

        view.apply(entry)

        holder = view.holder
        if before is not None and holder is not None and before.author != holder.author:
            assert at_ms > before.until_ms
        if before is not None and holder is None:
            assert (before.author, lease_ms) == (entry.author, 0)
