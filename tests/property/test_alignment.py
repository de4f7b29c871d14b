"""A simulated MirrorMaker 2, killed at random, is read exactly or told to be in doubt."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from heliograph.ledger.runs import Runs
from heliograph.ledger.translate import LaneEnd
from heliograph.takeover.alignment import Alignment, OffsetSyncAnchor, Stretch, align
from tests.kit.maps import map_of, offset_of

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a MirrorMaker 2 did to one partition, and what it left behind."""

    source: list[int]
    target: list[int]
    copied: int
    """Records of the source that are on the target, counted from the first."""
    stored_next: int | None
    anchors: tuple[OffsetSyncAnchor, ...]
    repeats: int


@st.composite
def stories(draw: st.DrawFn, letters: int | None) -> Story:
    """Lives that begin at the stored position, store some later one, and are killed."""
    size = draw(st.integers(1, 24))
    if letters is None:
        source = list(range(size))
    else:
        source = draw(st.lists(st.integers(0, letters - 1), min_size=size, max_size=size))
    target: list[int] = []
    anchors: list[OffsetSyncAnchor] = []
    stored = copied = repeats = 0
    for _ in range(draw(st.integers(1, 4))):
        end = draw(st.integers(stored, size))
        if end > stored and draw(st.booleans()):
            anchors.append(OffsetSyncAnchor(source_offset=stored, target_offset=len(target)))
        repeats += max(0, min(end, copied) - stored)
        target += source[stored:end]
        copied = max(copied, end)
        stored = draw(st.integers(stored, end))
    return Story(
        source=source,
        target=target,
        copied=copied,
        stored_next=stored or None,
        anchors=tuple(anchors),
        repeats=repeats,
    )


def stretch(records: list[int]) -> Stretch:
    made = Stretch()
    for offset, record in enumerate(records):
        made.add(offset, record)
    return made


def read(story: Story, *, pinned: bool = True) -> Alignment:
    return align(
        stretch(story.source),
        stretch(story.target),
        stored_next=story.stored_next,
        anchors=story.anchors if pinned else (),
    )


@settings(UNHURRIED, max_examples=200)
@given(stories(letters=None))
def test_records_that_differ_are_read_exactly(story: Story) -> None:
    found = read(story)

    assert (found.next_source_offset or 0) == story.copied
    assert found.repeated_records == story.repeats
    assert found.unsure is None
    assert (found.foreign, found.missing, found.is_short) == ((), (), False)


@settings(UNHURRIED, max_examples=400)
@given(st.integers(1, 3).flatmap(stories), st.booleans())
def test_nothing_is_lost_and_what_may_be_repeated_is_told(story: Story, pinned: bool) -> None:
    found = read(story, pinned=pinned)

    taken = found.next_source_offset or 0
    unsure_end = taken if found.unsure is None else found.unsure.end
    assert taken <= story.copied <= unsure_end, "lost" if taken > story.copied else "repeated"
    assert found.unsure is None or found.unsure.start == taken
    assert taken >= (story.stored_next or 0)


@settings(UNHURRIED, max_examples=200)
@given(st.sampled_from([None, 1, 2, 3]).flatmap(stories))
def test_the_map_has_every_record_at_a_copy_of_it_and_goes_forward(story: Story) -> None:
    found = read(story)

    runs, taken = Runs(found.runs), found.next_source_offset or 0
    assert found.mapped_records == taken
    for position in range(found.mapped_records):
        offset = runs.source_offset_at(position)
        assert offset == position
        assert story.target[runs.target_offset_at(position)] == story.source[offset]
    assert runs.overlap_at is None


@settings(UNHURRIED, max_examples=200)
@given(stories(letters=None), st.data())
def test_a_consumer_sent_there_meets_every_record_it_has_not_read(
    story: Story, data: st.DataObject
) -> None:
    found = read(story)
    assume(found.runs)
    taken = found.next_source_offset or 0
    next_offset = data.draw(st.integers(0, taken))
    end = LaneEnd(
        position=found.mapped_records,
        source_next_offset=taken,
        target_next_offset=len(story.target),
    )

    answer = map_of(Runs(found.runs), end).to_target(next_offset)

    met = set(story.target[offset_of(answer) :])
    assert set(range(next_offset, story.copied)) <= met


@settings(UNHURRIED, max_examples=200)
@given(stories(letters=None), st.data())
def test_batches_sent_twice_and_records_of_others_change_nothing_but_their_counts(
    story: Story, data: st.DataObject
) -> None:
    """A producer without idempotence sends a batch again whose acknowledgement was lost."""
    target, repeats, others = list[int](), story.repeats, 0
    at = 0
    while at < len(story.target):
        size = data.draw(st.integers(1, 5))
        batch = story.target[at : at + size]
        times = data.draw(st.sampled_from([1, 1, 1, 2]))
        target += batch * times
        repeats += len(batch) * (times - 1)
        if data.draw(st.sampled_from([False, False, True])):
            others += 1
            target.append(-others)
        at += size

    found = align(stretch(story.source), stretch(target), stored_next=story.stored_next)

    assert (found.next_source_offset or 0) == story.copied
    assert (found.repeated_records, found.foreign_records) == (repeats, others)
    assert (found.unsure, found.missing_records) == (None, 0)
