"""Topics into an archive and back, against real brokers; tasks run in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest

from heliograph.archive import book as books
from heliograph.archive import restore as restoring
from heliograph.archive import write as writing
from heliograph.archive.restore import RestoreResult, RestoreWish, restore_topic
from heliograph.archive.restore_task import restore_part
from heliograph.archive.write import Archived, ArchiveWish, archive_topic
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.errors import ArchiveRefused
from heliograph.model import ClusterAlias, TopicName
from heliograph_tools.localkafka.cluster import LocalCluster
from tests.kit.inside import running_inside
from tests.kit.mirror import write_config
from tests.kit.records import (
    NewRec,
    Rec,
    Transaction,
    assert_same_records,
    end_offsets,
    numbered,
    produce,
    produce_transactions,
    read_all,
)
from tests.kit.topics import create_topic, delete_records_before, delete_topic, wait_until

CONTEXT: Any = SimpleNamespace(defaultParallelism=1)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_context: Any, _name: str, units: Sequence[Any], work: Any, heard: Any) -> None:
        for unit in units:
            heard(work(unit))

    monkeypatch.setattr(writing, "run_units", run)
    monkeypatch.setattr(restoring, "run_units", run)


@pytest.fixture
def config(pair: dict[str, LocalCluster], tmp_path: Path) -> MirrorConfig:
    return load_config(write_config(tmp_path / "mm2.properties", pair, {"A->B": {}}))


def archived(
    config: MirrorConfig, folder: Path, topic: str, cluster: str = "A", **more: Any
) -> Archived:
    wish = ArchiveWish(
        config=config,
        cluster=ClusterAlias(cluster),
        topic=TopicName(topic),
        folder=str(folder),
        **more,
    )
    return archive_topic(CONTEXT, wish)


def restored(config: MirrorConfig, folder: Path, topic: str, **more: Any) -> RestoreResult:
    cluster = config.clusters[ClusterAlias("B")]
    wish = RestoreWish(
        cluster=cluster, folder=str(folder), topic=TopicName(topic), replication_factor=1, **more
    )
    return restore_topic(CONTEXT, wish)


def values(folder: Path) -> list[bytes]:
    return sorted(pq.read_table(folder).column("value").to_pylist())


def of(records: dict[int, list[Rec]]) -> list[bytes]:
    return sorted(rec.value or b"" for part in records.values() for rec in part)


class Killed(Exception):
    """The process is gone."""


_ADD = books.Book.add


def added_and_killed(book: books.Book, commit: books.Commit) -> None:
    """Killed before the files are where readers see them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(books.Book, "finish", lambda _: None)
        _ADD(book, commit)
    raise Killed


def test_an_archive_goes_on_where_it_was_and_is_restored_with_its_offsets(
    pair: dict[str, LocalCluster],
    config: MirrorConfig,
    tmp_path: Path,
    topic: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target, folder = topic("in"), topic("back"), tmp_path / "archive"
    create_topic(pair["A"], source, partitions=2)
    produce(pair["A"], source, numbered(300, partitions=2))
    headers = (("h", b"1"), ("h", None))
    produce(pair["A"], source, [NewRec(key=None, value=None, partition=1, headers=headers)])
    delete_records_before(pair["A"], source, {0: 40})

    first = archived(config, folder, source, records_per_file=50)
    produce(pair["A"], source, numbered(60, partitions=2, start=300))
    with monkeypatch.context() as patched:
        patched.setattr(books.Book, "add", added_and_killed)
        with pytest.raises(Killed):
            archived(config, folder, source)
    assert pq.read_table(folder).num_rows == 261
    second = archived(config, folder, source)
    again = archived(config, folder, source)
    done = restored(config, folder, target)

    assert (first.records, second.records, again.records) == (261, 0, 0)
    table = pq.read_table(folder)
    assert table.num_rows == 321 and set(table.column("cluster").to_pylist()) == {"A"}
    assert done.records == 321
    assert assert_same_records(pair["A"], pair["B"], source, target) == 321
    assert read_all(pair["B"], target)[0][0].offset == 40
    assert restored(config, folder, target).was_done
    produce(pair["A"], source, numbered(40, partitions=2, start=360))
    delete_records_before(pair["A"], source, {0: 195})
    with pytest.raises(ArchiveRefused, match="were deleted before they were archived"):
        archived(config, folder, source)
    assert archived(config, folder, source, skip_lost=True).lost == ((0, 180, 195),)


def test_a_restore_that_is_killed_goes_on(
    pair: dict[str, LocalCluster],
    config: MirrorConfig,
    tmp_path: Path,
    topic: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target, folder = topic("in"), topic("back"), tmp_path / "archive"
    create_topic(pair["A"], source, partitions=2)
    produce(pair["A"], source, numbered(200, partitions=2))
    produce_transactions(
        pair["A"],
        source,
        [Transaction(records=[NewRec(key=b"k", value=b"last", partition=0)], commit=True)],
        transactional_id=source,
    )
    wait_until(lambda: end_offsets(pair["A"], source)[0] == 102, "the transaction's marker")
    produce(pair["A"], source, [NewRec(key=b"k", value=b"behind the marker", partition=0)])
    assert archived(config, folder, source).records == 202

    with pytest.raises(ArchiveRefused, match="--offsets new"):
        restored(config, folder, target)
    parts, work = list[Any](), restore_part

    def killed_at_the_second(order: Any, part: Any) -> Any:
        parts.append(part)
        if len(parts) == 2:
            raise Killed
        return work(order, part)

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "restore_part", killed_at_the_second)
        with pytest.raises(Killed):
            restored(config, folder, target, same_offsets=False)
    done = restored(config, folder, target, same_offsets=False)

    assert done.records == 202
    assert of(read_all(pair["B"], target)) == of(read_all(pair["A"], source))
    plain = topic("plain")
    folder = _plain_archive(pair, config, tmp_path, plain)
    with pytest.raises(ArchiveRefused, match="has records up to offset"):
        restored(config, folder, target, name="other")
    delete_topic(pair["A"], plain)
    create_topic(pair["A"], plain)
    produce(pair["A"], plain, numbered(9))
    with pytest.raises(ArchiveRefused, match="was deleted and created again"):
        archived(config, folder, plain)


def _plain_archive(
    pair: dict[str, LocalCluster], config: MirrorConfig, tmp_path: Path, source: str
) -> Path:
    folder = tmp_path / "plain"
    create_topic(pair["A"], source)
    produce(pair["A"], source, numbered(3))
    archived(config, folder, source)
    return folder


def test_an_archive_that_failed_over_goes_on_exactly_at_the_other_cluster(
    pair: dict[str, LocalCluster], tmp_path: Path, topic: Callable[[str], str]
) -> None:
    source, folder = topic("orders"), tmp_path / "archive"
    create_topic(pair["A"], source, partitions=2)
    produce(pair["A"], source, numbered(100, partitions=2))
    delete_records_before(pair["A"], source, {0: 7})
    file = write_config(tmp_path / "mm2.properties", pair, {"A->B": {"topics": source}})
    config, mirrored = load_config(file), f"A.{source}"

    with running_inside(file):
        archived(config, folder, source)
        produce(pair["A"], source, numbered(40, partitions=2, start=100))
        wait_until(
            lambda: sum(map(len, read_all(pair["B"], mirrored).values())) == 133, "all records"
        )
    produce(pair["B"], mirrored, [NewRec(key=b"k", value=b"of B", partition=0)])
    with pytest.raises(ArchiveRefused, match=f"say --topic {mirrored}"):
        archived(config, folder, source, "B")
    moved = archived(config, folder, mirrored, "B")
    again = archived(config, folder, mirrored, "B")

    assert (moved.moved_from, moved.records, moved.notes) == ("A", 41, ())
    assert (again.moved_from, again.records) == (None, 0)
    assert values(folder) == sorted([*of(read_all(pair["A"], source)), b"of B"])
    with pytest.raises(ArchiveRefused, match="no flow B->A"):
        archived(config, folder, source, "A")
    commits = sorted((folder / "_heliograph" / "commits").iterdir())
    assert [json.loads(each.read_text())["is_move"] for each in commits] == [False, True, False]
