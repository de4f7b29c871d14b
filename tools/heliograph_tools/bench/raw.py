"""A blocking Kafka connection that speaks three requests, to measure from outside. Runs anywhere.

It shares no code with the mirrors it measures. Only one-broker clusters are measured, so there is
no metadata here: the bootstrap broker leads every partition. Versions are the oldest that a 4.x
broker takes, without tagged fields: Produce 3, Fetch 4, ListOffsets 2.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from heliograph.errors import BrokerError, BrokerUnreachable

_PRODUCE: Final = (0, 3)
_FETCH: Final = (1, 4)
_LIST_OFFSETS: Final = (2, 2)
_UNKNOWN_TOPIC_OR_PARTITION: Final = 3
_LEADER_NOT_AVAILABLE: Final = 5
_NOT_LEADER: Final = 6
_STILL_COMING: Final = frozenset({_UNKNOWN_TOPIC_OR_PARTITION, _LEADER_NOT_AVAILABLE, _NOT_LEADER})
"""A topic that was just created, or is about to be: that is no error."""
_LATEST_TIMESTAMP: Final = -1
_CLIENT_ID: Final = b"heliograph-bench"
_TIMEOUT_MS: Final = 30_000
_FRAME_BYTES_MAX: Final = 256 * 1024 * 1024
_LIST_OFFSETS_ROW: Final = struct.Struct(">ihqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    host: str
    port: int

    @classmethod
    def first_of(cls, bootstrap: str) -> Address:
        host, _, port = bootstrap.split(",")[0].strip().rpartition(":")
        return cls(host=host, port=int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    partition: int
    records: bytes


class RawConnection:
    """One socket; requests are answered in order. One thread may send while one receives."""

    def __init__(self, address: Address) -> None:
        try:
            self._socket = socket.create_connection((address.host, address.port), timeout=60.0)
        except OSError as exc:
            raise BrokerUnreachable(f"{address.host}:{address.port}: {exc}") from exc
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb", buffering=1 << 16)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reader.close()
        self._socket.close()

    def end_offsets(self, topic: str, partitions: int) -> list[int]:
        """The end of every partition of a topic; 0 where the topic is not there yet."""
        return [max(0, offset) for offset in self._ask_ends(topic, partitions)]

    def serves(self, topic: str, partitions: int) -> bool:
        """Whether every partition has been taken on by the broker, after a topic's creation."""
        return min(self._ask_ends(topic, partitions)) >= 0

    def _ask_ends(self, topic: str, partitions: int) -> list[int]:
        entries = b"".join(
            struct.pack(">iq", partition, _LATEST_TIMESTAMP) for partition in range(partitions)
        )
        body = (
            struct.pack(">ibi", -1, 0, 1) + _string(topic) + struct.pack(">i", partitions) + entries
        )
        self.send(_frame(_LIST_OFFSETS, body))
        return _parse_ends(self.receive(), partitions)

    def receive_produced(self) -> None:
        """Take one answer to a produce request; any partition's error is raised."""
        answer = self.receive()
        (topics,) = struct.unpack_from(">i", answer, 0)
        at = 4
        for _ in range(topics):
            (name_bytes,) = struct.unpack_from(">h", answer, at)
            at += 2 + name_bytes
            (count,) = struct.unpack_from(">i", answer, at)
            at += 4
            for partition, error, _, _ in _LIST_OFFSETS_ROW.iter_unpack(
                answer[at : at + count * _LIST_OFFSETS_ROW.size]
            ):
                if error:
                    raise BrokerError(f"produce to partition {partition}: broker error {error}")
            at += count * _LIST_OFFSETS_ROW.size

    def fetch(
        self, topic: str, next_offsets: Mapping[int, int], wait_ms: int, bytes_max: int
    ) -> list[FetchedPartition]:
        """Wait for anything new in the partitions, at most `wait_ms`."""
        entries = b"".join(
            struct.pack(">iqi", partition, offset, bytes_max)
            for partition, offset in next_offsets.items()
        )
        body = (
            struct.pack(">iiiibi", -1, wait_ms, 1, bytes_max, 0, 1)
            + _string(topic)
            + struct.pack(">i", len(next_offsets))
            + entries
        )
        self.send(_frame(_FETCH, body))
        return _parse_fetch(self.receive())

    def send(self, frame: bytes) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as exc:
            raise BrokerUnreachable(f"sending: {exc}") from exc

    def receive(self) -> bytes:
        """The body of the next answer."""
        try:
            head = self._reader.read(8)
            if len(head) < 8:
                raise BrokerUnreachable("the broker closed the connection")
            size, _ = struct.unpack(">ii", head)
            if not 4 <= size <= _FRAME_BYTES_MAX:
                raise BrokerError(f"an answer of {size} bytes")
            body: bytes = self._reader.read(size - 4)
        except OSError as exc:
            raise BrokerUnreachable(f"receiving: {exc}") from exc
        if len(body) < size - 4:
            raise BrokerUnreachable("the broker closed the connection")
        return body


def produce_frame(topic: str, batches: Iterable[tuple[int, bytes]], acks: int = 1) -> bytes:
    """A whole request: one batch for each named partition. May be sent any number of times."""
    entries = [struct.pack(">ii", partition, len(batch)) + batch for partition, batch in batches]
    head = struct.pack(">hhii", -1, acks, _TIMEOUT_MS, 1) + _string(topic)
    return _frame(_PRODUCE, head + struct.pack(">i", len(entries)) + b"".join(entries))


def _frame(api: tuple[int, int], body: bytes) -> bytes:
    key, version = api
    # Answers come in order on one connection, so the correlation id tells nothing and stays 0.
    head = struct.pack(">hhih", key, version, 0, len(_CLIENT_ID)) + _CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def _parse_ends(answer: bytes, partitions: int) -> list[int]:
    """-1 for a partition that is not served yet."""
    _, topics, name_bytes = struct.unpack_from(">iih", answer, 0)
    if topics != 1:
        raise BrokerError(f"asked for the end of one topic, got {topics}")
    at = 10 + name_bytes
    (count,) = struct.unpack_from(">i", answer, at)
    ends = [-1] * partitions
    rows = answer[at + 4 : at + 4 + count * _LIST_OFFSETS_ROW.size]
    for partition, error, _, offset in _LIST_OFFSETS_ROW.iter_unpack(rows):
        if error and error not in _STILL_COMING:
            raise BrokerError(f"end of partition {partition}: broker error {error}")
        ends[partition] = -1 if error else offset
    return ends


def _parse_fetch(answer: bytes) -> list[FetchedPartition]:
    found: list[FetchedPartition] = []
    _, topics = struct.unpack_from(">ii", answer, 0)
    at = 8
    for _ in range(topics):
        (name_bytes,) = struct.unpack_from(">h", answer, at)
        (count,) = struct.unpack_from(">i", answer, at + 2 + name_bytes)
        at += 6 + name_bytes
        for _ in range(count):
            partition, error, _, _, aborted = struct.unpack_from(">ihqqi", answer, at)
            if error:
                raise BrokerError(f"fetch of partition {partition}: broker error {error}")
            at += 26 + 16 * max(0, aborted)
            (size,) = struct.unpack_from(">i", answer, at)
            at += 4
            if size > 0:
                found.append(FetchedPartition(partition=partition, records=answer[at : at + size]))
                at += size
    return found
