"""`heliograph archive` and `heliograph restore`: topics as Parquet, and back. On the driver."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Final, Literal

import typer

from heliograph.archive.book import Commit
from heliograph.archive.restore import RestoreResult, RestoreWish, restore_topic
from heliograph.archive.write import RECORDS_PER_FILE, Archived, ArchiveWish, archive_topic
from heliograph.cli.document import Document
from heliograph.cli.options import AsJson, File
from heliograph.cli.output import remarks, results
from heliograph.config.load import load_config
from heliograph.config.schema import MirrorConfig
from heliograph.engine.session import start_session, stop_session
from heliograph.model import ClusterAlias, TopicName
from heliograph.words import counted

ARCHIVE_HELP: Final = """Archive a topic as Parquet, each record once; the next run goes on.

All that is in the topic now is written to a folder of Parquet files, with offsets, timestamps,
headers and leader epochs; the next run goes on behind it. Killed anywhere, the next run repeats
nothing. With another --cluster, to which the file mirrors the topic, the archive goes on there:
the flow's offset map says where.

Exits with 1 when something is refused or fails; what was committed until then stays.

Examples:

  heliograph archive mm2.properties --cluster A --topic orders --to /archive/orders

  heliograph archive mm2.properties --cluster B --topic A.orders --to /archive/orders --every 60
"""

RESTORE_HELP: Final = """Restore a topic from an archive, each record once, with its offsets.

Records go back with keys, values, headers and timestamps, and to the offsets they had, into a
topic that is created where there is none. Killed anywhere, the same command goes on.

Exits with 1 when something is refused or fails.

Examples:

  heliograph restore mm2.properties --from /archive/orders --cluster B --topic orders

  heliograph restore mm2.properties --from /archive/orders --cluster B --topic old --offsets new
"""

Cluster = Annotated[str, typer.Option("--cluster", help="Alias of a cluster of FILE.")]
Topic = Annotated[str, typer.Option("--topic", help="The topic's name on that cluster.")]


class ArchiveDocument(Document):
    records: int
    files: int
    bytes: int
    positions: dict[str, int]
    lost: tuple[tuple[int, int, int], ...]
    moved_from: str | None
    notes: tuple[str, ...]


class _Restored(Document):
    partition: int
    records: int
    next_offset: int


class RestoreDocument(Document):
    records: int
    was_done: bool
    partitions: tuple[_Restored, ...]


def archive(
    file: File,
    cluster: Cluster,
    topic: Topic,
    to: Annotated[str, typer.Option("--to", help="Folder that every executor reaches.")],
    every: Annotated[
        int | None, typer.Option("--every", min=1, help="Repeat after so many seconds.")
    ] = None,
    records_per_file: Annotated[
        int, typer.Option("--records-per-file", min=1, help="Most records of one file.")
    ] = RECORDS_PER_FILE,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="Go on behind records that are gone.")
    ] = False,
    read_uncommitted: Annotated[
        bool, typer.Option("--read-uncommitted", help="Archive aborted records too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    wish = ArchiveWish(
        config=config,
        cluster=known_cluster(config, cluster),
        topic=TopicName(topic),
        folder=to,
        read_committed=not read_uncommitted,
        records_per_file=records_per_file,
        skip_lost=skip_lost,
    )
    with _session(config) as context:
        while True:
            done = archive_topic(context, wish, _told)
            if as_json:
                _archived(done).print()
            else:
                _say(done, to)
            if every is None:
                return
            time.sleep(every)


def restore(
    file: File,
    whence: Annotated[str, typer.Option("--from", help="Folder of the archive.")],
    cluster: Cluster,
    topic: Topic,
    offsets: Annotated[
        Literal["same", "new"],
        typer.Option("--offsets", help="Keep offsets, or append behind what is there."),
    ] = "same",
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", help="Of what is created; -1 is the broker's.")
    ] = -1,
    name: Annotated[
        str | None, typer.Option("--name", help="Of the ledger, to restore a second time.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    config = load_config(file)
    wish = RestoreWish(
        cluster=config.clusters[known_cluster(config, cluster)],
        folder=whence,
        topic=TopicName(topic),
        same_offsets=offsets == "same",
        replication_factor=replication_factor,
        name=name,
    )
    with _session(config) as context:
        done = restore_topic(context, wish)
    if as_json:
        _restored(done).print()
        return
    if done.was_done:
        results().print(f"topic {topic} was restored before; nothing was written", soft_wrap=True)
        return
    where = "with their offsets" if wish.same_offsets else "with new offsets"
    partitions = counted(len(done.partitions), "partition")
    results().print(
        f"{counted(done.records, 'record')} of {partitions} are in {topic} on {cluster}, {where}",
        soft_wrap=True,
    )


def known_cluster(config: MirrorConfig, alias: str) -> ClusterAlias:
    """Raises `typer.BadParameter`."""
    if ClusterAlias(alias) not in config.clusters:
        known = ", ".join(sorted(config.clusters))
        raise typer.BadParameter(f"--cluster: the file has no cluster {alias} ({known})")
    return ClusterAlias(alias)


@contextmanager
def _session(config: MirrorConfig) -> Iterator[Any]:
    context = start_session(
        config.engine,
        clusters=config.clusters,
        secret_variables=config.secret_variables,
        say=lambda what: remarks().print(what),
        tries=4,
    )
    try:
        yield context
    finally:
        stop_session(context)


def _told(commit: Commit) -> None:
    if commit.is_move:
        remarks().print(f"goes on at cluster {commit.cluster}, topic {commit.topic}")
        return
    records = counted(sum(file.records for file in commit.files), "record")
    remarks().print(f"committed: {records} in {counted(len(commit.files), 'file')}")


def _say(done: Archived, folder: str) -> None:
    for note in done.notes:
        remarks().print(note, soft_wrap=True)
    for partition, start, end in done.lost:
        remarks().print(
            f"partition {partition}: offsets {start:,} to {end:,} were gone", soft_wrap=True
        )
    files = counted(sum(1 for file in done.files if file.name), "file")
    results().print(f"{counted(done.records, 'record')} in {files} of {folder}", soft_wrap=True)


def _archived(done: Archived) -> ArchiveDocument:
    return ArchiveDocument(
        records=done.records,
        files=sum(1 for file in done.files if file.name),
        bytes=sum(file.bytes for file in done.files),
        positions={str(number): at for number, at in sorted(done.positions.items())},
        lost=done.lost,
        moved_from=done.moved_from,
        notes=done.notes,
    )


def _restored(done: RestoreResult) -> RestoreDocument:
    return RestoreDocument(
        records=done.records,
        was_done=done.was_done,
        partitions=tuple(
            _Restored(
                partition=each.end.partition,
                records=each.records,
                next_offset=each.end.offset,
            )
            for each in done.partitions
        ),
    )
