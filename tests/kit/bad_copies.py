"""A flow that somebody else mirrored badly, with a ledger that says otherwise."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from heliograph.broker.admin import ClusterAdmin
from heliograph.broker.records import Record, RecordWriter
from heliograph.ledger.entries import (
    HeadEntry,
    RunsEntry,
    StartEntry,
    new_author,
)
from heliograph.ledger.runs import Run
from heliograph.ledger.service import LedgerService
from heliograph.model import TopicName
from heliograph.wire.mirror_records import Checkpoint, encode_checkpoint
from tests.kit.drilling import Scene
from tests.kit.ledgers import open_ledger
from tests.kit.mirror import lasting_topic
from tests.kit.records import (
    NewRec,
    numbered,
    produce,
)
from tests.kit.topics import create_topic


def copied_badly(scene: Scene, *, changed: int, missing: int) -> None:
    """60 records mirrored as by somebody else, who left a ledger and a checkpoint at 10."""
    source, target = scene.pair["A"], scene.pair["B"]
    for cluster, name in ((source, scene.orders), (target, scene.copy)):
        lasting_topic(cluster, name)
    sent = numbered(60)
    bad = NewRec(key=sent[changed].key, value=b"other", timestamp_ms=sent[changed].timestamp_ms)
    got = [bad if n == changed else one for n, one in enumerate(sent) if n != missing]
    produce(source, scene.orders, sent)
    produce(target, scene.copy, got)
    scene.at_source({0: 10})
    orders, author = TopicName(scene.orders), new_author()
    runs = (
        Run(position=0, source_offset=0, target_offset=0),
        Run(position=missing, source_offset=missing + 1, target_offset=missing),
    )
    ids: dict[str, Any] = {"source_topic_id": None, "target_topic_id": None, "at_ms": 1}
    at: dict[str, Any] = {"topic": orders, "partition": 0}
    with closing(LedgerService(scene.config.clusters)) as ledgers:
        open_ledger(ledgers, scene.flow, ClusterAdmin(scene.config.target_of(scene.flow)), None)
        ledgers.note(
            scene.flow,
            [
                StartEntry(
                    **at, **ids, position=0, author=author, source_offset=0, target_offset=0
                ),
                RunsEntry(**at, author=author, runs=runs, end_position=59),
                HeadEntry(
                    **at,
                    **ids,
                    position=59,
                    source_next_offset=60,
                    source_end_offset=60,
                    target_next_offset=59,
                    state="idle",
                    detail="",
                ),
            ],
        )
    checkpoints = create_topic(target, f"{scene.flow.source}.checkpoints.internal")
    key, value = encode_checkpoint(
        Checkpoint(
            group=scene.group,
            topic=TopicName(scene.copy),
            partition=0,
            upstream_offset=10,
            downstream_offset=10,
            metadata="",
        )
    )
    with closing(RecordWriter(scene.config.target_of(scene.flow))) as writer:
        writer.write(TopicName(checkpoints), [Record(key=key, value=value)])
