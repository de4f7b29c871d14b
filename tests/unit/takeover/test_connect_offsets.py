"""Connect's offset records: the bytes MirrorMaker 2 looks for, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import WireError
from heliograph.model import ClusterAlias, FlowId, TopicName
from heliograph.takeover.connect_offsets import (
    SOURCE_CONNECTOR,
    StoredOffsetKey,
    decode_position,
    decode_position_key,
    encode_position,
    encode_position_key,
    murmur2,
    partition_of,
    strimzi_connector,
)

ORDERS = StoredOffsetKey(
    connector=SOURCE_CONNECTOR,
    cluster=ClusterAlias("A"),
    topic=TopicName("orders"),
    partition=0,
)
# As MirrorMaker 2 4.x writes it: Java's HashMap gives cluster, partition, topic in this order.
ORDERS_KEY = b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"orders"}]'


def test_a_key_has_the_very_bytes_that_connect_looks_for() -> None:
    assert encode_position_key(ORDERS) == ORDERS_KEY
    assert decode_position_key(ORDERS_KEY) == ORDERS


def test_a_position_is_the_last_offset_that_was_mirrored() -> None:
    assert encode_position(41) == b'{"offset":41}'
    assert decode_position(b'{"offset":41}') == 41


@pytest.mark.parametrize("removed", [None, b"null"])
def test_a_position_that_was_reset_is_none(removed: bytes | None) -> None:
    assert decode_position(removed) is None


def test_strimzi_names_the_connector_after_the_flow() -> None:
    flow = FlowId(source=ClusterAlias("A"), target=ClusterAlias("B"))

    assert strimzi_connector(flow) == "A->B.MirrorSourceConnector"


def test_a_key_in_another_order_means_the_same() -> None:
    spelled = b'["MirrorSourceConnector", {"topic": "orders", "cluster": "A", "partition": 0}]'

    assert decode_position_key(spelled) == ORDERS


def test_names_are_written_as_java_writes_them() -> None:
    key = StoredOffsetKey(
        connector='x"y', cluster=ClusterAlias("Köln"), topic=TopicName("t"), partition=3
    )

    encoded = encode_position_key(key)

    assert encoded == '["x\\"y",{"cluster":"Köln","partition":3,"topic":"t"}]'.encode()
    assert decode_position_key(encoded) == key


@pytest.mark.parametrize(
    "garbage",
    [
        None,
        b"",
        b"\xff\xfe",
        b"[" * 3_000,
        b'["MirrorSourceConnector"]',
        b'["MirrorSourceConnector",[]]',
        b'[7,{"cluster":"A","partition":0,"topic":"orders"}]',
        b'["c",{"cluster":"A","partition":true,"topic":"orders"}]',
        b'["c",{"cluster":"A","partition":-1,"topic":"orders"}]',
        b'["c",{"cluster":"A","partition":0,"topic":null}]',
        b'["c",{"cluster":"A","partition":0,"topic":"t","more":1}]',
        b'["MirrorCheckpointConnector",{"partition":0,"topic":"A.orders","group":"g"}]',
        b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]',
        b'["c",{"cluster":"A","partition":0,"topic":"' + b"x" * 5_000 + b'"}]',
    ],
)
def test_a_key_of_anything_else_is_refused(garbage: bytes | None) -> None:
    with pytest.raises(WireError):
        decode_position_key(garbage)


@pytest.mark.parametrize(
    "garbage",
    [b"", b"41", b"[]", b"{}", b'{"offset":-1}', b'{"offset":"41"}', b'{"offset":true}',
     b'{"offset":1,"x":2}', b'{"offset":9223372036854775808}'],
)  # fmt: skip
def test_a_value_of_anything_else_is_refused(garbage: bytes) -> None:
    with pytest.raises(WireError):
        decode_position(garbage)


def test_what_connect_could_not_read_is_never_written() -> None:
    with pytest.raises(WireError):
        encode_position(-1)
    with pytest.raises(WireError):
        encode_position_key(
            StoredOffsetKey(
                connector="c", cluster=ClusterAlias("A"), topic=TopicName("t"), partition=-1
            )
        )


# Kafka's own vectors, clients/src/test/java/org/apache/kafka/common/utils/UtilsTest.java.
@pytest.mark.parametrize(
    ("octets", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(octets: bytes, signed: int) -> None:
    assert murmur2(octets) == signed % 2**32


def test_a_key_goes_to_the_partition_javas_producer_would_choose() -> None:
    assert partition_of(b"foobar", 25) == (-790332482 & 0x7FFFFFFF) % 25


@given(
    connector=st.text(st.characters(codec="utf-8"), max_size=50),
    cluster=st.text(st.characters(codec="utf-8"), max_size=50),
    topic=st.text(st.characters(codec="utf-8"), max_size=249),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
)
def test_what_was_written_reads_back(
    connector: str, cluster: str, topic: str, partition: int, offset: int
) -> None:
    key = StoredOffsetKey(
        connector=connector,
        cluster=ClusterAlias(cluster),
        topic=TopicName(topic),
        partition=partition,
    )

    assert decode_position_key(encode_position_key(key)) == key
    assert decode_position(encode_position(offset)) == offset


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_wire_error(octets: bytes) -> None:
    for decode in (decode_position_key, decode_position):
        try:
            decode(octets)
        except WireError:
            continue
