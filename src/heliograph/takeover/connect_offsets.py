"""Where Kafka Connect keeps a MirrorMaker 2's positions: keys and values. No I/O; runs anywhere.

    key    ["<connector>",{"cluster":"<source alias>","partition":<n>,"topic":"<source topic>"}]
    value  {"offset":<n>}, the last offset that was mirrored; null where it was reset

Connect finds a position by the bytes of its key, so a key that means the same in another spelling
is another key: no spaces, the members in the order of Java's HashMap, text in UTF-8 unescaped. The
key also decides the partition, by Java's murmur2, but Connect reads all of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from heliograph.errors import WireError
from heliograph.model import ClusterAlias, FlowId, TopicName

SOURCE_CONNECTOR: Final = "MirrorSourceConnector"
"""What a dedicated MirrorMaker 2 calls the connector that copies records."""
JSON_BYTES_MAX: Final = 4_096
PARTITION_MAX: Final = 2**31 - 1
OFFSET_MAX: Final = 2**63 - 1
_MEMBERS: Final = {"cluster", "partition", "topic"}

_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_M: Final = 0x5BD1E995
_MASK_32: Final = 0xFFFFFFFF
_MASK_31: Final = 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class StoredOffsetKey:
    """Whose position it is."""

    connector: str
    cluster: ClusterAlias
    topic: TopicName
    partition: int


def strimzi_connector(flow: FlowId) -> str:
    """What Strimzi's operator calls the connector of a flow."""
    return f"{flow}.{SOURCE_CONNECTOR}"


def encode_position_key(key: StoredOffsetKey) -> bytes:
    if not 0 <= key.partition <= PARTITION_MAX:
        raise WireError(f"Connect offset of partition {key.partition}")
    where = {"cluster": key.cluster, "partition": key.partition, "topic": key.topic}
    return _json([key.connector, where])


def decode_position_key(key: bytes | None) -> StoredOffsetKey:
    """Raises `WireError` for everything else, positions of other connectors included."""
    parsed = _parsed("key", key)
    if not isinstance(parsed, list) or len(parsed) != 2:
        raise WireError("Connect offset key: not a connector and a place")
    connector, where = parsed
    if not isinstance(connector, str) or not isinstance(where, dict):
        raise WireError("Connect offset key: not a connector and a place")
    if where.keys() != _MEMBERS:
        raise WireError("Connect offset key: not of a mirrored partition")
    cluster, partition, topic = where["cluster"], where["partition"], where["topic"]
    if not isinstance(cluster, str) or not isinstance(topic, str):
        raise WireError("Connect offset key: cluster or topic is no text")
    # JSON's true would pass as an int.
    if type(partition) is not int or not 0 <= partition <= PARTITION_MAX:
        raise WireError("Connect offset key: the partition is no number of one")
    return StoredOffsetKey(
        connector=connector,
        cluster=ClusterAlias(cluster),
        topic=TopicName(topic),
        partition=partition,
    )


def encode_position(last_offset: int) -> bytes:
    if not 0 <= last_offset <= OFFSET_MAX:
        raise WireError(f"Connect offset is {last_offset}, not between 0 and {OFFSET_MAX}")
    return _json({"offset": last_offset})


def decode_position(value: bytes | None) -> int | None:
    """The last offset that was mirrored; None where the position was removed."""
    if value is None:
        return None
    parsed = _parsed("value", value)
    if parsed is None:
        return None
    offset = parsed.get("offset") if isinstance(parsed, dict) and len(parsed) == 1 else None
    if type(offset) is not int or not 0 <= offset <= OFFSET_MAX:
        raise WireError("Connect offset value: not an offset")
    return offset


def partition_of(key: bytes, partitions: int) -> int:
    """Where Java's producer puts a record with this key."""
    return (murmur2(key) & _MASK_31) % partitions


def murmur2(octets: bytes) -> int:
    """Kafka's 32-bit MurmurHash2, unsigned."""
    size = len(octets)
    whole = size & ~3
    h = (_MURMUR_SEED ^ size) & _MASK_32
    for at in range(0, whole, 4):
        k = int.from_bytes(octets[at : at + 4], "little") * _MURMUR_M & _MASK_32
        k = (k ^ k >> 24) * _MURMUR_M & _MASK_32
        h = h * _MURMUR_M & _MASK_32 ^ k
    if size > whole:
        h = (h ^ int.from_bytes(octets[whole:], "little")) * _MURMUR_M & _MASK_32
    h = (h ^ h >> 13) * _MURMUR_M & _MASK_32
    return h ^ h >> 15


def _json(document: object) -> bytes:
    try:
        encoded = json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as exc:
        raise WireError(f"Connect offset: not text: {exc.reason}") from exc
    if len(encoded) > JSON_BYTES_MAX:
        raise WireError(f"Connect offset has {len(encoded)} bytes, at most {JSON_BYTES_MAX} fit")
    return encoded


def _parsed(what: str, octets: bytes | None) -> object:
    if octets is None or len(octets) > JSON_BYTES_MAX:
        raise WireError(f"Connect offset {what}: missing, or more than {JSON_BYTES_MAX} bytes")
    try:
        parsed: object = json.loads(octets)
    # Bytes that are no text, text that is no JSON, brackets nested beyond the parser's stack.
    except (ValueError, RecursionError) as exc:
        raise WireError(f"Connect offset {what}: not JSON") from exc
    return parsed
