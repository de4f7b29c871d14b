"""MirrorMaker 2's bytes, by the vectors of its reference; what it never writes is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from heliograph.errors import WireError
from heliograph.model import TopicName
from heliograph.wire.mirror_records import (
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
)

# From the reference of MirrorMaker 2, sections 1.9.1 to 1.9.3.
HEARTBEAT = Heartbeat(source="A", target="B", timestamp_ms=1_700_000_000_000)
HEARTBEAT_KEY = bytes.fromhex("000141 000142")
HEARTBEAT_VALUE = bytes.fromhex("0000 0000018bcfe56800")

CHECKPOINT = Checkpoint(
    group="grp",
    topic=TopicName("A.orders"),
    partition=3,
    upstream_offset=200,
    downstream_offset=101,
)
CHECKPOINT_KEY = bytes.fromhex("0003677270 0008412e6f7264657273 00000003")
CHECKPOINT_VALUE = bytes.fromhex("0000 00000000000000c8 0000000000000065 0000")

SYNC = OffsetSync(
    topic=TopicName("orders"), partition=3, upstream_offset=200, downstream_offset=101
)
SYNC_KEY = bytes.fromhex("00066f7264657273 00000003")
SYNC_VALUE = bytes.fromhex("00000000000000c8 0000000000000065")

MINUS_ONE = b"\xff" * 8


def test_a_heartbeat_has_the_bytes_of_mirror_maker_2() -> None:
    assert encode_heartbeat(HEARTBEAT) == (HEARTBEAT_KEY, HEARTBEAT_VALUE)
    assert decode_heartbeat(HEARTBEAT_KEY, HEARTBEAT_VALUE) == HEARTBEAT


def test_a_checkpoint_has_the_bytes_of_mirror_maker_2() -> None:
    assert encode_checkpoint(CHECKPOINT) == (CHECKPOINT_KEY, CHECKPOINT_VALUE)
    assert decode_checkpoint(CHECKPOINT_KEY, CHECKPOINT_VALUE) == CHECKPOINT


def test_an_offset_sync_has_the_bytes_of_mirror_maker_2() -> None:
    assert encode_offset_sync(SYNC) == (SYNC_KEY, SYNC_VALUE)
    assert decode_offset_sync(SYNC_KEY, SYNC_VALUE) == SYNC


def test_the_metadata_of_a_commit_travels_with_its_checkpoint() -> None:
    noted = replace(CHECKPOINT, metadata="до завтра")

    key, value = encode_checkpoint(noted)

    assert value.endswith("до завтра".encode())
    assert decode_checkpoint(key, value) == noted


@pytest.mark.parametrize("version", [b"\x00\x01", b"\xff\xff"])
def test_a_version_nobody_knows_is_refused(version: bytes) -> None:
    with pytest.raises(WireError, match="version"):
        decode_heartbeat(HEARTBEAT_KEY, version + HEARTBEAT_VALUE[2:])
    with pytest.raises(WireError, match="version"):
        decode_checkpoint(CHECKPOINT_KEY, version + CHECKPOINT_VALUE[2:])


def test_every_record_cut_short_anywhere_is_refused() -> None:
    for size in range(len(HEARTBEAT_KEY)):
        with pytest.raises(WireError):
            decode_heartbeat(HEARTBEAT_KEY[:size], HEARTBEAT_VALUE)
    for size in range(len(HEARTBEAT_VALUE)):
        with pytest.raises(WireError):
            decode_heartbeat(HEARTBEAT_KEY, HEARTBEAT_VALUE[:size])
    for size in range(len(CHECKPOINT_KEY)):
        with pytest.raises(WireError):
            decode_checkpoint(CHECKPOINT_KEY[:size], CHECKPOINT_VALUE)
    for size in range(len(CHECKPOINT_VALUE)):
        with pytest.raises(WireError):
            decode_checkpoint(CHECKPOINT_KEY, CHECKPOINT_VALUE[:size])
    for size in range(len(SYNC_KEY)):
        with pytest.raises(WireError):
            decode_offset_sync(SYNC_KEY[:size], SYNC_VALUE)
    for size in range(len(SYNC_VALUE)):
        with pytest.raises(WireError):
            decode_offset_sync(SYNC_KEY, SYNC_VALUE[:size])


def test_bytes_after_the_last_field_are_refused() -> None:
    with pytest.raises(WireError, match="1 bytes after"):
        decode_heartbeat(HEARTBEAT_KEY + b"x", HEARTBEAT_VALUE)
    with pytest.raises(WireError, match="1 bytes after"):
        decode_heartbeat(HEARTBEAT_KEY, HEARTBEAT_VALUE + b"x")
    with pytest.raises(WireError, match="1 bytes after"):
        decode_checkpoint(CHECKPOINT_KEY, CHECKPOINT_VALUE + b"x")
    with pytest.raises(WireError, match="1 bytes after"):
        decode_offset_sync(SYNC_KEY, SYNC_VALUE + b"x")


def test_a_record_without_key_or_value_is_refused() -> None:
    with pytest.raises(WireError, match="key: missing"):
        decode_heartbeat(None, HEARTBEAT_VALUE)
    with pytest.raises(WireError, match="value: missing"):
        decode_checkpoint(CHECKPOINT_KEY, None)
    with pytest.raises(WireError, match="value: missing"):
        decode_offset_sync(SYNC_KEY, None)


def test_a_length_that_lies_is_refused_before_it_sizes_anything() -> None:
    with pytest.raises(WireError, match="32767 bytes"):
        decode_offset_sync(b"\x7f\xff" + SYNC_KEY[2:], SYNC_VALUE)
    with pytest.raises(WireError, match="-1 bytes"):
        decode_offset_sync(b"\xff\xff" + SYNC_KEY[2:], SYNC_VALUE)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(WireError, match="UTF-8"):
        decode_heartbeat(b"\x00\x01\xff" + HEARTBEAT_KEY[3:], HEARTBEAT_VALUE)


def test_negative_numbers_are_refused() -> None:
    with pytest.raises(WireError, match="negative"):
        decode_heartbeat(HEARTBEAT_KEY, b"\x00\x00" + MINUS_ONE)
    with pytest.raises(WireError, match="negative"):
        decode_offset_sync(SYNC_KEY[:-4] + MINUS_ONE[:4], SYNC_VALUE)
    with pytest.raises(WireError, match="negative"):
        decode_offset_sync(SYNC_KEY, SYNC_VALUE[:8] + MINUS_ONE)


def test_what_could_not_be_read_back_is_never_written() -> None:
    with pytest.raises(WireError, match="at most 32767"):
        encode_checkpoint(replace(CHECKPOINT, metadata="é" * (STRING_BYTES_MAX // 2 + 1)))
    with pytest.raises(WireError, match="not text"):
        encode_checkpoint(replace(CHECKPOINT, metadata="\ud800"))
    with pytest.raises(WireError, match="downstream offset is -1"):
        encode_offset_sync(replace(SYNC, downstream_offset=-1))
    with pytest.raises(WireError, match="upstream offset"):
        encode_offset_sync(replace(SYNC, upstream_offset=2**63))
    with pytest.raises(WireError, match="partition"):
        encode_offset_sync(replace(SYNC, partition=2**31))
