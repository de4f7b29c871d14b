"""An archive that goes on at another cluster, by the flow's offset map. Runs on the driver."""

from __future__ import annotations

import asyncio

from heliograph.archive.book import Book, Commit
from heliograph.clock import now_ms
from heliograph.config.schema import MirrorConfig
from heliograph.errors import ArchiveRefused
from heliograph.groups.snapshot import read_snapshot
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.spark_checkpoint.move import flow_positions
from heliograph.spark_checkpoint.translate import translate_source


def moved(config: MirrorConfig, book: Book, cluster: ClusterAlias, topic: TopicName) -> Commit:
    """The commit that says where each partition goes on. The cluster left need not answer."""
    if book.cluster is None or book.topic is None:
        raise ArchiveRefused(f"{book.folder.uri}: the archive holds nothing yet")
    flow = FlowId(source=ClusterAlias(book.cluster), target=cluster)
    if flow not in {each.id for each in config.flows}:
        raise ArchiveRefused(
            f"the archive is of cluster {book.cluster}, and the file has no flow {flow}: only its "
            "offset map could tell where the archive goes on"
        )
    source = TopicName(book.topic)
    known = asyncio.run(read_snapshot(config, flow, lambda _: False, ask_source=False))
    positions = flow_positions(known)
    wanted = positions.target_topic(source)
    if wanted != topic:
        raise ArchiveRefused(
            f"the archive's topic {source} is {wanted} on cluster {cluster}: say --topic {wanted}"
        )
    if source not in positions.topics:
        raise ArchiveRefused(f"flow {flow} has mirrored nothing of topic {source}")
    start = {
        TopicPartition(topic=source, partition=partition): offset
        for partition, offset in book.positions.items()
    }
    found = translate_source("archive", start, None, positions)
    return Commit(
        cluster=cluster,
        topic=topic,
        at_ms=now_ms(),
        is_move=True,
        moved_to={at.partition: offset for at, offset in found.start.items()},
        notes=tuple(f"{move.source}: {note}" for move in found.moves for note in move.notes),
    )
