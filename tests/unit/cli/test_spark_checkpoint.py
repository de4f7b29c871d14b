"""What `heliograph offsets --spark-checkpoint` says of the copy it wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heliograph.cli.spark_checkpoint import CheckpointDocument, head_line, remark_lines
from heliograph.model import ClusterAlias, FlowId, TopicName, TopicPartition
from heliograph.spark_checkpoint.move import CheckpointTranslation
from heliograph.spark_checkpoint.translate import PartitionMove

ORDERS = TopicName("orders")
MOVE = PartitionMove(
    query_source="0",
    source=TopicPartition(topic=ORDERS, partition=0),
    target=TopicPartition(topic=TopicName("A.orders"), partition=0),
    source_offset=40,
    target_offset=45,
    lag_records=5,
)
MADE = CheckpointTranslation(
    flow=FlowId(source=ClusterAlias("A"), target=ClusterAlias("B")),
    directory=Path("/data/query"),
    out=Path("/data/copy"),
    layout=2,
    batch=7,
    is_committed=True,
    left_out_batches=0,
    moves=(MOVE,),
    untouched_sources=(),
    renamed={ORDERS: TopicName("A.orders")},
    bootstrap_servers=("b1:9092", "b2:9092"),
)
BEHIND = replace(MOVE, clamped="after", notes=("the query had read 3 offsets beyond",))


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (MADE, "A->B: 1 partition, after batch 7, offsets log v2: exact"),
        (
            replace(MADE, is_committed=False),
            "A->B: 1 partition, batch 7 will run again, offsets log v2: exact",
        ),
        (
            replace(MADE, batch=None, layout=None),
            "A->B: 1 partition, no batch planned yet: exact",
        ),
        (
            replace(MADE, moves=(BEHIND,)),
            "A->B: 1 partition, after batch 7, offsets log v2: not exact everywhere",
        ),
    ],
)
def test_the_first_line_says_where_the_query_goes_on_and_whether_exactly(
    made: CheckpointTranslation, line: str
) -> None:
    assert head_line(made) == line


def test_it_is_said_how_to_start_the_query() -> None:
    assert remark_lines(MADE) == [
        "Written to /data/copy. Start the query with that checkpointLocation and with",
        "  kafka.bootstrap.servers = b1:9092,b2:9092",
        "  A.orders instead of orders",
    ]


def test_what_is_not_exact_is_said_with_its_partition_and_what_to_do() -> None:
    lines = remark_lines(replace(MADE, moves=(BEHIND,), untouched_sources=("1",)))

    assert lines[:3] == [
        "orders-0: the query had read 3 offsets beyond",
        "If the mirror is running, let it catch up and translate again.",
        "Not translated, because they read no topic that A->B mirrors: query sources 1.",
    ]


def test_the_json_has_every_partition_with_both_offsets() -> None:
    document = CheckpointDocument.of(MADE).plain()

    assert document["is_exact"] is True
    assert document["renamed"] == {"orders": "A.orders"}
    (told,) = document["partitions"]
    assert (told["source_offset"], told["target_offset"], told["lag_records"]) == (40, 45, 5)
