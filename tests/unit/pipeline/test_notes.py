from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.errors import PipelineRefused
from heliograph.ledger.entry_codec import decode, encode
from heliograph.ledger.view import LedgerView
from heliograph.model import ClusterAlias, TopicName, TopicPartition
from heliograph.pipeline.notes import (
    AlreadyDone,
    Begin,
    Claim,
    Done,
    GoOn,
    PartEnd,
    claim_entry,
    done_entries,
    first_claim,
    following,
    forgotten,
    last_done,
    merged_ends,
    next_step,
    pipeline_flow,
    starts_of,
    withdrawn,
)

HERE = "t1"


def part(partition: int = 0, position: int = 0, offset: int = 0) -> PartEnd:
    return PartEnd(topic="out", partition=partition, position=position, offset=offset)


def claim(batch: int, token: str = HERE, query: str = "q") -> Claim:
    return Claim(batch=batch, token=token, query=query, staging="/s", at_ms=1, starts=(part(),))


def done(batch: int, token: str = HERE, query: str = "q", *ends: PartEnd) -> Done:
    return Done(batch=batch, token=token, query=query, at_ms=1, ends=ends or (part(),))


def view_of(*notes: Claim | Done) -> LedgerView:
    view = LedgerView()
    for note in notes:
        for entry in [claim_entry(note)] if isinstance(note, Claim) else done_entries(note):
            view.apply(entry)
    return view


def step(view: LedgerView, batch: int, query: str = "q") -> object:
    return next_step(view, batch, query, lambda token: token == HERE)


def test_a_batch_that_nobody_knows_begins() -> None:
    assert step(view_of(), 0) == Begin()
    assert step(view_of(done(3)), 4) == Begin()


def test_a_batch_that_was_claimed_here_goes_on() -> None:
    assert step(view_of(done(3), claim(4)), 4) == GoOn(claim(4))


def test_a_batch_that_is_done_is_not_written_again() -> None:
    assert step(view_of(claim(4), done(4)), 4) == AlreadyDone()


@pytest.mark.parametrize(
    ("notes", "batch", "query", "words"),
    [
        ([done(4)], 3, "q", "too old: batch 4 has been written"),
        ([done(4)], 5, "other", "written by another query"),
        ([done(4, "elsewhere")], 4, "q", "copy of the query that wrote it"),
        ([claim(4, "elsewhere")], 4, "q", "staged in /s and is half written"),
        ([claim(4)], 5, "q", "batch 4 is half written, and no other batch can be written"),
        ([done(3), claim(5)], 4, "q", "batch 5 is half written, and no other batch can be written"),
    ],
)
def test_another_query_or_state_or_copy_is_refused(
    notes: list[Claim | Done], batch: int, query: str, words: str
) -> None:
    with pytest.raises(PipelineRefused, match=words):
        step(view_of(*notes), batch, query)


def test_a_batch_without_a_number_follows_all_others_unless_one_is_half_written() -> None:
    assert following(view_of()) == 0
    assert following(view_of(claim(4), done(4), claim(4, "late copy"))) == 5
    with pytest.raises(PipelineRefused, match="write it again by its number, 5"):
        following(view_of(done(4), claim(5)))


def test_of_two_claims_the_first_counts_until_it_is_withdrawn() -> None:
    view = view_of(claim(4, "first"), claim(4, "second"))
    assert first_claim(view, 4) == claim(4, "first")

    view.remove(withdrawn(claim(4, "first")).key)

    assert first_claim(view, 4) == claim(4, "second")


def test_a_note_written_late_by_an_earlier_batch_takes_nothing_back() -> None:
    view = view_of(done(11), done(9))

    assert last_done(view) == done(11)


def test_only_notes_of_old_batches_are_forgotten() -> None:
    view = view_of(claim(1), done(1), claim(12), done(12))

    keys = {entry.key for entry in forgotten(view, 12)}

    assert {key.subject for key in keys} == {"pipeline-claim|1|t1", "pipeline-done|1"}  # type: ignore[union-attr]


def test_ends_of_each_task_in_each_partition_fit_however_many_there_are() -> None:
    ends = tuple(
        replace(part(n % 32, 10**12 + n, 10**12), topic="o" * 249, producer=9_000 + n // 32)
        for n in range(200 * 32)
    )
    view = LedgerView()

    entries = done_entries(done(7, HERE, "q", *ends))
    for entry in entries:
        key, value = encode(entry)
        read = decode(key, value)
        assert read is not None
        view.apply(read)

    assert len(entries) == 7
    assert last_done(view) == done(7, HERE, "q", *ends)
    assert len(forgotten(view, 17)) == 0
    assert len(forgotten(view, 18)) == 7


def test_notes_of_further_ends_without_the_last_one_are_of_no_batch() -> None:
    *more, _ = done_entries(done(8, HERE, "q", *(part(n) for n in range(1_500))))
    view = view_of(done(7))

    for entry in more:
        view.apply(entry)

    assert more and last_done(view) == done(7)


def test_a_claim_that_the_ledger_would_not_take_is_refused_before_it_is_written() -> None:
    starts = tuple(part(n) for n in range(20_000))

    with pytest.raises(PipelineRefused, match="is for 20,000 target partitions"):
        claim_entry(replace(claim(4), starts=starts))


def test_a_partition_begins_where_it_ended_or_at_the_end_of_its_log() -> None:
    new = TopicPartition(topic=TopicName("out"), partition=1)
    view = view_of(done(1, HERE, "q", part(0, 50, 60)))

    starts = starts_of(view, [part().target, new], {part().target: 99, new: 7})

    assert starts == (part(0, 50, 60), part(1, 0, 7))


def test_ends_of_partitions_that_a_batch_did_not_touch_are_kept() -> None:
    before = done(1, HERE, "q", part(0, 50, 60), part(1, 5, 5))

    assert merged_ends(before, [part(1, 9, 9)]) == (part(0, 50, 60), part(1, 9, 9))
    assert merged_ends(None, [part(1, 9, 9)]) == (part(1, 9, 9),)


def test_a_pipeline_has_a_ledger_of_its_own_name() -> None:
    assert pipeline_flow("masked", ClusterAlias("B")).source == "pipeline.masked"
    with pytest.raises(PipelineRefused, match="other characters"):
        pipeline_flow("a b", ClusterAlias("B"))
