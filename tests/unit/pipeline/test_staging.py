from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heliograph.errors import PipelineRefused
from heliograph.pipeline.packing import Columns, OnError, TargetTopics, Times
from heliograph.pipeline.partitioner import partitions_of
from heliograph.pipeline.staging import Folder, StagedPart, Stager
from tests.kit.batches import records_of

TOPICS = TargetTopics(partition_counts={"out": 3, "other": 1}, default_topic="out")

TIMED = TargetTopics(
    partition_counts={"out": 3}, default_topic="out", times={"out": Times(100, 2_000)}
)


def columns(count: int, **given: Any) -> Columns:
    empty: dict[str, Any] = dict.fromkeys(
        ("topics", "partitions", "timestamps_ms", "keys", "headers")
    )
    values = [b"v%d" % number for number in range(count)]
    times = [time for time in given.get("timestamps_ms") or [] if time is not None]
    between = (min(times), max(times)) if times else None
    return Columns(**{**empty, "values": values, "times_between": between, **given})


def staged(
    folder: Path, *rows: Columns, topics: TargetTopics = TOPICS, at_ms: int = 1_000
) -> list[StagedPart]:
    stager = Stager(Folder(str(folder)), topics, task=0, at_ms=at_ms)
    for each in rows:
        stager.add(each)
    return stager.finish()


def contents(folder: Path, part: StagedPart) -> list[bytes | None]:
    found: list[bytes | None] = []
    for piece in part.pieces:
        batch = (folder / piece.file).read_bytes()[piece.at : piece.at + piece.size_bytes]
        found += [record.value for record in records_of(batch)]
    return found


def test_rows_keep_their_order_in_their_partition(tmp_path: Path) -> None:
    parts = staged(tmp_path, columns(4, partitions=[1, 0, 1, 0]), columns(1, partitions=[1]))

    assert [str(part.target) for part in parts] == ["out-0", "out-1"]
    assert contents(tmp_path, parts[0]) == [b"v1", b"v3"]
    assert contents(tmp_path, parts[1]) == [b"v0", b"v2", b"v0"]
    assert [part.record_count for part in parts] == [2, 3]


def test_rows_with_a_key_go_where_javas_producer_puts_them(tmp_path: Path) -> None:
    keys = [b"key-%d" % number for number in range(50)]

    parts = staged(tmp_path, columns(50, keys=keys))

    expected = partitions_of(keys, 3)
    for part in parts:
        wanted = [b"v%d" % n for n, at in enumerate(expected) if at == part.target.partition]
        assert contents(tmp_path, part) == wanted


def test_rows_without_a_key_are_spread(tmp_path: Path) -> None:
    parts = staged(tmp_path, columns(2_500))

    assert [part.record_count for part in parts] == [1_000, 1_000, 500]


def test_a_row_may_lack_what_others_have(tmp_path: Path) -> None:
    rows = columns(
        3,
        topics=["other", None, "other"],
        partitions=[None, 2, 0],
        keys=[b"k", None, None],
        timestamps_ms=[5, None, 7],
        headers=[[("h", b"1"), ("h", None)], [], []],
    )

    other, out = staged(tmp_path, rows)

    (piece,) = other.pieces
    first, second = records_of((tmp_path / piece.file).read_bytes()[piece.at :][: piece.size_bytes])
    assert (first.timestamp_ms, first.key, first.headers) == (
        5,
        b"k",
        ((b"h", b"1"), (b"h", None)),
    )
    assert (second.timestamp_ms, second.key) == (7, None)
    assert str(out.target) == "out-2"


def test_many_rows_are_cut_into_batches_a_broker_takes(tmp_path: Path) -> None:
    rows = columns(2_000, partitions=[0] * 2_000)
    rows = Columns(
        topics=None,
        partitions=rows.partitions,
        timestamps_ms=None,
        keys=None,
        values=[b"x" * 1_000] * 2_000,
        headers=None,
    )

    (part,) = staged(tmp_path, rows)

    assert len(part.pieces) == 4
    assert all(piece.size_bytes <= 512 * 1024 for piece in part.pieces)
    assert part.record_count == 2_000


@pytest.mark.parametrize(
    ("rows", "topics", "words"),
    [
        (columns(1, partitions=[3]), TOPICS, "is for partition 3, and it has 3"),
        (columns(1, partitions=[-1]), TOPICS, "is for partition -1"),
        (columns(1, topics=["gone"]), TOPICS, "has no topic gone"),
        (columns(1), TargetTopics(partition_counts={"out": 1}), "names no topic"),
        (
            columns(1, partitions=[0]),
            TargetTopics(
                partition_counts={"out": 1}, default_topic="out", record_bytes_max={"out": 10}
            ),
            "max.message.bytes is 10",
        ),
        (
            columns(1, timestamps_ms=[3_001]),
            TIMED,
            "the timestamp 3001, and the topic takes 900 to",
        ),
        (columns(2, timestamps_ms=[None, 899]), TIMED, "has the timestamp 899"),
        (columns(2, nameless=frozenset({1})), TOPICS, "topic out: a header has no name"),
    ],
)
def test_a_row_that_no_partition_takes_is_refused(
    tmp_path: Path, rows: Columns, topics: TargetTopics, words: str
) -> None:
    with pytest.raises(PipelineRefused, match=words):
        staged(tmp_path, rows, topics=topics)


def policy(on_error: OnError, **more: Any) -> TargetTopics:
    counts = {"out": 1, "dead": 1}
    return TargetTopics(partition_counts=counts, default_topic="out", on_error=on_error, **more)


def test_rows_that_cannot_be_written_are_skipped_and_counted(tmp_path: Path) -> None:
    stager = Stager(Folder(str(tmp_path)), policy(OnError.SKIP, keyed=frozenset({"out"})), task=0)

    stager.add(columns(3, partitions=[0, 7, 0], keys=[b"a", b"b", None]))
    (part,) = stager.finish()

    assert contents(tmp_path, part) == [b"v0"]
    assert stager.left_out == 2 and "is for partition 7" in stager.reason


def test_rows_that_cannot_be_written_go_to_the_dead_letters_with_the_reason(tmp_path: Path) -> None:
    topics = policy(OnError.DEAD_LETTER, dead_letter_topic="dead", record_bytes_max={"out": 200})
    rows = columns(4, partitions=[0, 0, 7, 0], keys=[b"k"] * 4, headers=[[("h", b"1")]] * 4)
    rows.values[1] = b"x" * 500

    dead, out = staged(tmp_path, rows, topics=topics)

    assert contents(tmp_path, out) == [b"v0", b"v3"]
    (piece,) = dead.pieces
    there = (tmp_path / piece.file).read_bytes()[piece.at :][: piece.size_bytes]
    misplaced, large = records_of(there)
    assert (misplaced.value, large.value) == (b"v2", b"x" * 500)
    assert misplaced.headers == (
        (b"h", b"1"),
        (
            b"__connect.errors.exception.message",
            b"topic out: a row is for partition 7, and it has 1",
        ),
        (b"heliograph.target.topic", b"out"),
    )
    assert b"max.message.bytes is 200" in (large.headers[1][1] or b"")


def test_a_row_whose_timestamp_its_topic_refuses_is_a_letter_of_now(tmp_path: Path) -> None:
    times = {"out": Times(100, 1_000), "dead": Times(100, 1_000)}
    topics = policy(OnError.DEAD_LETTER, dead_letter_topic="dead", times=times)
    rows = columns(4, keys=[b"k"] * 4, timestamps_ms=[899, 900, 2_000, 2_001])

    dead, out = staged(tmp_path, rows, topics=topics)

    assert contents(tmp_path, out) == [b"v1", b"v2"]
    (piece,) = dead.pieces
    letters = records_of((tmp_path / piece.file).read_bytes()[piece.at :][: piece.size_bytes])
    assert [(each.value, each.timestamp_ms) for each in letters] == [(b"v0", 1_000), (b"v3", 1_000)]


def test_a_dead_letter_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    topics = policy(
        OnError.DEAD_LETTER, dead_letter_topic="dead", record_bytes_max={"out": 200, "dead": 300}
    )
    rows = columns(1, partitions=[0])
    rows.values[0] = b"x" * 500

    with pytest.raises(PipelineRefused, match="on its way to the dead-letter topic"):
        staged(tmp_path, rows, topics=topics)


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(PipelineRefused, match="folder "):
        Folder(f"{tmp_path}/file/staged").make()


def test_a_folder_that_is_full_says_so() -> None:
    with pytest.raises(PipelineRefused, match="No space left"):
        Folder("/dev").write("full", [b"x" * 100_000])
