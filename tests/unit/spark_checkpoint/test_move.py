"""Checkpoint folders: what is read, what a copy has, and what is refused before one is made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from heliograph.errors import CheckpointError
from heliograph.ledger.translate import Exact
from heliograph.model import TopicName, TopicPartition
from heliograph.spark_checkpoint.folder import read_folder, require_apart, write_copy
from heliograph.spark_checkpoint.move import TranslatedFolder, translate_folder
from heliograph.spark_checkpoint.translate import FlowPositions, Mirrored

SHIFT = 100
HEAD = "v1\n{}\n"


def offsets(number: int) -> str:
    return f'{HEAD}{{"orders":{{"0":{number}}}}}'


def moved(number: int) -> str:
    return f'{HEAD}{{"A.orders":{{"0":{number + SHIFT}}}}}'


COMMITTED = {
    "metadata": '{"id":"7"}',
    ".metadata.crc": "crc of metadata",
    "sources/0/0": '\0v1\n{"orders":{"0":1}}',
    "sources/0/.0.crc": "crc of the beginning",
    "offsets/3": offsets(30),
    "offsets/4": offsets(40),
    "offsets/5": offsets(50),
    "offsets/.5.crc": "crc of 5",
    "offsets/5.crc": "crc of 5, by Spark",
    "offsets/.6.1f7a.tmp": "half",
    "commits/3": "v1\n{}",
    "commits/4": "v1\n{}",
    "commits/.4.crc": "crc of commit 4",
    "commits/5": "v1\n{}",
    "state/0/0/1.delta": "state",
    "state/0/0/.1.delta.crc": "crc of state",
}
PLANNED = {path: text for path, text in COMMITTED.items() if path != "commits/5"}


def flow() -> FlowPositions:
    return FlowPositions(
        lanes={
            TopicPartition(topic=TopicName("orders"), partition=number): Mirrored(
                target=TopicPartition(topic=TopicName("A.orders"), partition=number),
                source_next_offset=1_000,
                target_start_offset=0,
                target_end_offset=1_000 + SHIFT,
            )
            for number in range(2)
        },
        to_target=lambda _, offset: Exact(offset=offset + SHIFT),
        target_topic=lambda topic: TopicName(f"A.{topic}"),
    )


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def read(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def copied(directory: Path, out: Path) -> TranslatedFolder:
    folder = read_folder(directory)
    found = translate_folder(folder, flow())
    write_copy(folder, out, found.changed)
    return found


def test_a_copy_has_the_last_two_batches_translated_and_the_rest_as_it_is(tmp_path: Path) -> None:
    directory, out = write(tmp_path / "query", COMMITTED), tmp_path / "deep" / "copy"

    found = copied(directory, out)

    assert read(out) == {
        "metadata": '{"id":"7"}',
        ".metadata.crc": "crc of metadata",
        "sources/0/0": '\0v1\n{"A.orders":{"0":101}}',
        "offsets/4": moved(40),
        "offsets/5": moved(50),
        "commits/4": "v1\n{}",
        "commits/.4.crc": "crc of commit 4",
        "commits/5": "v1\n{}",
        "state/0/0/1.delta": "state",
        "state/0/0/.1.delta.crc": "crc of state",
    }
    assert read(directory) == COMMITTED
    assert [(move.source_offset, move.target_offset) for move in found.moves] == [(50, 150)]
    assert not list(out.parent.glob(".*"))


def test_a_planned_batch_goes_on_from_the_one_before(tmp_path: Path) -> None:
    found = copied(write(tmp_path / "query", PLANNED), tmp_path / "copy")

    (move,) = found.moves
    assert (move.source_offset, move.target_offset) == (40, 140)
    assert (move.planned_source_offset, move.planned_target_offset) == (50, 150)
    assert read(tmp_path / "copy")["offsets/4"] == moved(40)


def test_a_partition_that_is_new_in_a_planned_batch_gets_a_start_of_its_own(
    tmp_path: Path,
) -> None:
    files = PLANNED | {"offsets/5": f'{HEAD}{{"orders":{{"0":50,"1":9}}}}'}

    copied(write(tmp_path / "query", files), tmp_path / "copy")

    after = read(tmp_path / "copy")
    assert after["offsets/4"] == f'{HEAD}{{"A.orders":{{"0":140,"1":100}}}}'
    assert after["offsets/5"] == f'{HEAD}{{"A.orders":{{"0":150,"1":109}}}}'


def test_a_first_batch_that_is_only_planned_goes_on_from_where_the_source_began(
    tmp_path: Path,
) -> None:
    files = {
        "metadata": "{}",
        # Found by its topics: folders need not have the numbers of the log.
        "sources/4/0": '\0v1\n{"orders":{"0":7}}',
        "offsets/0": offsets(50),
    }

    found = copied(write(tmp_path / "query", files), tmp_path / "copy")

    (move,) = found.moves
    assert (move.source_offset, move.planned_source_offset) == (7, 50)
    assert read(tmp_path / "copy")["sources/4/0"] == '\0v1\n{"A.orders":{"0":107}}'


def test_a_first_batch_without_a_beginning_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "query", {"metadata": "{}", "offsets/0": offsets(50)})

    with pytest.raises(CheckpointError, match="nothing says where it began"):
        copied(tmp_path / "query", tmp_path / "copy")


def test_a_query_that_planned_nothing_goes_on_from_where_its_sources_began(tmp_path: Path) -> None:
    files = {"metadata": "{}", "sources/0/0": '\0v1\n{"orders":{"0":7}}'}
    (tmp_path / "query" / "offsets").mkdir(parents=True)

    found = copied(write(tmp_path / "query", files), tmp_path / "copy")

    assert [(move.source_offset, move.target_offset) for move in found.moves] == [(7, 107)]
    assert read(tmp_path / "copy")["sources/0/0"] == '\0v1\n{"A.orders":{"0":107}}'


def test_sources_that_read_something_else_are_copied_as_they_are(tmp_path: Path) -> None:
    others = '\n{"logOffset":3}\n{"clicks":{"0":5}}\n-'
    files = COMMITTED | {
        "offsets/5": offsets(50) + others,
        "offsets/4": offsets(40) + others,
        "sources/1/0": "v1\nfiles",
        "sources/2/0": '\0v1\n{"clicks":{"0":1}}',
    }

    found = copied(write(tmp_path / "query", files), tmp_path / "copy")

    after = read(tmp_path / "copy")
    assert after["offsets/5"] == moved(50) + others
    assert (after["sources/1/0"], after["sources/2/0"]) == (
        "v1\nfiles",
        '\0v1\n{"clicks":{"0":1}}',
    )
    assert found.untouched == ("1", "2", "3")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"offsets/0": offsets(1)}, "not the checkpoint of a streaming query"),
        ({"metadata": "{}"}, "not the checkpoint of a streaming query"),
        ({"metadata": "{}", "offsets/0": "v9\n{}"}, "offsets/0: version 9 .* newer"),
        ({"metadata": "{}", "offsets/0": "junk"}, "offsets/0: does not begin"),
        ({"metadata": "{}", "offsets/x": "", "commits/2": "v1\n{}"}, "query: has commits/2"),
    ],
)
def test_what_is_no_checkpoint_is_refused_with_its_path(
    tmp_path: Path, files: dict[str, str], why: str
) -> None:
    write(tmp_path / "query", files)

    with pytest.raises(CheckpointError, match=why):
        read_folder(tmp_path / "query")


@pytest.mark.parametrize("place", ["s3a://bucket/query", "hdfs://name/query", "file:///data/query"])
def test_a_checkpoint_elsewhere_must_be_brought_here_first(place: str) -> None:
    with pytest.raises(CheckpointError, match="bring the checkpoint here first"):
        read_folder(Path(place))


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not a folder"):
        read_folder(tmp_path / "nowhere")


@pytest.mark.parametrize("place", ["query", "query/inside", ".", "taken", "file", "link"])
def test_a_copy_goes_nowhere_but_to_a_place_of_its_own(tmp_path: Path, place: str) -> None:
    write(tmp_path, {"query/metadata": "{}", "taken/by": "others", "file": "of others"})
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    with pytest.raises(CheckpointError, match=r"cannot be in the checkpoint|is there already"):
        require_apart(tmp_path / "query", tmp_path / place)


def test_an_empty_folder_may_become_the_copy(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()

    copied(write(tmp_path / "query", COMMITTED), tmp_path / "copy")

    assert "offsets/5" in read(tmp_path / "copy")


def test_a_query_that_goes_on_while_it_is_copied_is_noticed(tmp_path: Path) -> None:
    folder = read_folder(write(tmp_path / "query", COMMITTED))
    write(tmp_path / "query", {"offsets/6": offsets(60)})

    with pytest.raises(CheckpointError, match="stop the query first"):
        write_copy(folder, tmp_path / "copy", {})

    assert [path.name for path in tmp_path.iterdir()] == ["query"]


def test_a_link_to_a_folder_is_not_followed_and_nothing_is_written(tmp_path: Path) -> None:
    directory = write(tmp_path / "query", COMMITTED)
    (directory / "state" / "elsewhere").symlink_to(tmp_path, target_is_directory=True)

    with pytest.raises(CheckpointError, match="elsewhere is a link"):
        copied(directory, tmp_path / "copy")

    assert [path.name for path in tmp_path.iterdir()] == ["query"]
