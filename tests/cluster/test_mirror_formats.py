"""Records and names of MirrorMaker 2 are, to the byte, what Java's own classes make of them."""

from __future__ import annotations

import pytest

from heliograph.compat.upstream import is_checkpoints
from heliograph.errors import WireError
from heliograph.model import ClusterAlias, TopicName
from heliograph.topics.naming import is_heartbeats, original_topic
from heliograph.wire.mirror_records import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)
from tests.kit.both_clients import EVERY_POLICY, GARBAGE, Pair, Policy, both
from tests.kit.java import Java, Refused

TEXTS = ["", "A", "us-west.orders", "läuft – 日本語", "x" * 32_767]
NUMBERS = [0, 1, 101, 2**31, 2**63 - 1]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:8])
def test_heartbeats_have_javas_bytes_both_ways(java: Java, text: str, number: int) -> None:
    mine = Heartbeat(source=text, target="B", timestamp_ms=number)

    theirs = java.heartbeat_bytes(text, "B", number)

    assert encode_heartbeat(mine) == theirs
    assert decode_heartbeat(*theirs) == mine
    assert java.read_heartbeat(*encode_heartbeat(mine)) == (text, "B", number)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:8])
def test_checkpoints_have_javas_bytes_both_ways(java: Java, text: str, number: int) -> None:
    mine = Checkpoint(
        group=text,
        topic=TopicName(f"A.{text[:200]}"),
        partition=min(number, 2**31 - 1),
        upstream_offset=number,
        downstream_offset=number // 2,
        metadata=text,
    )
    fields = (
        mine.group,
        mine.topic,
        mine.partition,
        mine.upstream_offset,
        mine.downstream_offset,
        mine.metadata,
    )

    theirs = java.checkpoint_bytes(*fields)

    assert encode_checkpoint(mine) == theirs
    assert decode_checkpoint(*theirs) == mine
    assert java.read_checkpoint(*encode_checkpoint(mine)) == fields


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:8])
def test_offset_syncs_have_javas_bytes_both_ways(java: Java, text: str, number: int) -> None:
    partition = min(number, 2**31 - 1)
    mine = OffsetSync(
        topic=TopicName(text),
        partition=partition,
        upstream_offset=number,
        downstream_offset=number // 3,
    )

    theirs = java.offset_sync_bytes(text, partition, number, number // 3)

    assert encode_offset_sync(mine) == theirs
    assert decode_offset_sync(*theirs) == mine
    assert java.read_offset_sync(*encode_offset_sync(mine)) == (
        text,
        partition,
        number,
        number // 3,
    )


def test_what_java_refuses_to_read_is_refused_here_too(java: Java) -> None:
    for key, value in GARBAGE:
        with pytest.raises(Refused, match="SchemaException"):
            java.read_checkpoint(key, value)
        with pytest.raises(WireError):
            decode_checkpoint(key, value)


NAMES = [
    *("orders", "a.orders", "b.a.orders", "a_orders", "b_a_orders", "a--b--orders", "a_b.c--d"),
    *("heartbeats", "a.heartbeats", "b.a.heartbeats", "a_heartbeats", "a--heartbeats"),
    *("device-heartbeats", "a.device-heartbeats", "heartbeats.a", "heartbeatss", "xheartbeats"),
    *("a.checkpoints.internal", "a_checkpoints_internal", "a--checkpoints--internal"),
    *("checkpoints.internal", "x.internal", "x-internal", "x_internal", "internal", "--internal"),
    *("mm2-offset-syncs.a.internal", "mm2-offset-syncs_a_internal", "mm2-status.a.internal"),
    *("__consumer_offsets", "__a.b", ".a", "..a", "a.", "a..", "a..b", "_a", "a_", "__", ".", "-"),
]


@EVERY_POLICY
def test_policies_read_every_name_as_javas_do(pair: Pair, java: Java, policy: Policy) -> None:
    with both(java, pair["B"], policy) as (client, theirs):
        ours = client.replication_policy

        for name in map(TopicName, NAMES):
            mine = (
                ours.topic_source(name),
                ours.upstream_topic(name),
                original_topic(ours, name),
                ours.is_internal(name),
                is_heartbeats(ours, name),
                is_checkpoints(ours, name),
                client.remote_topic_name("src", name),
                ours.checkpoints_topic(ClusterAlias(name)),
                ours.offset_syncs_topic(ClusterAlias(name)),
            )
            assert mine == (
                theirs.policy.topicSource(name),
                theirs.policy.upstreamTopic(name),
                theirs.policy.originalTopic(name),
                theirs.policy.isInternalTopic(name),
                theirs.policy.isHeartbeatsTopic(name),
                theirs.policy.isCheckpointsTopic(name),
                theirs.policy.formatRemoteTopic("src", name),
                theirs.policy.checkpointsTopic(name),
                theirs.policy.offsetSyncsTopic(name),
            ), name
