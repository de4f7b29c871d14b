"""MirrorMaker 2's records come back as they went; garbage is `WireError` and nothing else."""

from __future__ import annotations

import contextlib

from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.errors import WireError
from heliograph.model import TopicName
from heliograph.wire.mirror_records import (
    INT64_MAX,
    PARTITION_MAX,
    STRING_BYTES_MAX,
    Checkpoint,
    Heartbeat,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
    is_checkpoint_value,
)

# Everything UTF-8 can say, not only what a topic may be called: Java checks no names here.
texts = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.just("x" * STRING_BYTES_MAX),
)
topics = texts.map(TopicName)
int64s = st.one_of(st.integers(0, INT64_MAX), st.sampled_from([0, INT64_MAX]))
partitions = st.one_of(st.integers(0, PARTITION_MAX), st.sampled_from([0, PARTITION_MAX]))

heartbeats = st.builds(Heartbeat, source=texts, target=texts, timestamp_ms=int64s)
checkpoints = st.builds(
    Checkpoint,
    group=texts,
    topic=topics,
    partition=partitions,
    upstream_offset=int64s,
    downstream_offset=int64s,
    metadata=texts,
)
syncs = st.builds(
    OffsetSync,
    topic=topics,
    partition=partitions,
    upstream_offset=int64s,
    downstream_offset=int64s,
)
garbage = st.one_of(st.none(), st.binary(max_size=80))


@given(heartbeats)
def test_a_heartbeat_is_read_as_it_was_written(heartbeat: Heartbeat) -> None:
    assert decode_heartbeat(*encode_heartbeat(heartbeat)) == heartbeat


@given(checkpoints)
def test_a_checkpoint_is_read_as_it_was_written(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(*encode_checkpoint(checkpoint)) == checkpoint


@given(syncs)
def test_an_offset_sync_is_read_as_it_was_written(sync: OffsetSync) -> None:
    assert decode_offset_sync(*encode_offset_sync(sync)) == sync


@given(garbage, garbage)
@example(b"\x7f\xff", b"\x80\x00")
def test_garbage_is_an_error_of_the_wire_or_means_exactly_what_it_says(
    key: bytes | None, value: bytes | None
) -> None:
    with contextlib.suppress(WireError):
        assert encode_heartbeat(decode_heartbeat(key, value)) == (key, value)
    with contextlib.suppress(WireError):
        assert encode_checkpoint(decode_checkpoint(key, value)) == (key, value)
    with contextlib.suppress(WireError):
        assert encode_offset_sync(decode_offset_sync(key, value)) == (key, value)


@given(checkpoints, st.data())
def test_a_record_with_a_damaged_byte_is_refused_or_reads_as_another(
    checkpoint: Checkpoint, data: st.DataObject
) -> None:
    key, value = encode_checkpoint(checkpoint)
    damaged = bytearray(value)
    damaged[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))

    with contextlib.suppress(WireError):
        found = decode_checkpoint(key, bytes(damaged))
        assert found != checkpoint
        assert encode_checkpoint(found) == (key, bytes(damaged))


@given(checkpoints, st.binary(max_size=40), st.integers(0, 40))
def test_a_value_is_taken_for_a_checkpoint_exactly_where_it_can_be_decoded(
    checkpoint: Checkpoint, noise: bytes, cut: int
) -> None:
    key, value = encode_checkpoint(checkpoint)

    for tried in (value, value[:-1], value + b"x", value[:cut] + noise, noise):
        try:
            decode_checkpoint(key, tried)
        except WireError:
            decodes = False
        else:
            decodes = True
        assert is_checkpoint_value(tried) == decodes
