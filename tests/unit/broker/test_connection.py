"""A connection to a broker that is silent, slow, too old, or newer than what reads its answers."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import struct
import threading
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kio.schema.list_offsets.v7 import request as offsets_request
from kio.schema.list_offsets.v7 import response as offsets_response

from heliograph.broker.cluster import LATEST, Cluster, Leader, Topic
from heliograph.broker.connection import Connection, open_connection
from heliograph.broker.log import fetch_once
from heliograph.errors import BrokerError, BrokerUnreachable, WireError
from heliograph.model import ClusterAlias, TopicId, TopicName, TopicPartition
from heliograph_tools.localkafka.certificates import write_certificates
from tests.kit.small_server import (
    API_VERSIONS,
    Reply,
    api_versions_answer,
    handshake_only,
    silence,
    small_connection,
    small_server,
)

ORDERS = TopicPartition(topic=TopicName("orders"), partition=0)
TOPIC_ID = TopicId("0c12b63f-6f93-41ba-bebd-37dfba57c4d4")
FETCH, LIST_OFFSETS, METADATA = 1, 2, 3
KNOWN = {FETCH: (0, 13), LIST_OFFSETS: (0, 7), METADATA: (0, 12)}


def test_a_request_that_is_never_answered_fails_in_time_and_closes_the_connection() -> None:
    async def ask() -> bool:
        async with small_connection(silence) as connection:
            with pytest.raises(BrokerUnreachable, match=r"broker small: no answer in 0 s"):
                await connection.request(API_VERSIONS, 3, [b""], timeout_s=0.05)
            return connection.closed

    assert asyncio.run(ask())


def test_whoever_waits_behind_an_unanswered_request_is_told_too() -> None:
    async def ask() -> tuple[object, object]:
        async with small_connection(silence) as connection:
            return await asyncio.gather(
                connection.request(API_VERSIONS, 3, [b""], timeout_s=0.05),
                connection.request(API_VERSIONS, 3, [b""], timeout_s=60.0),
                return_exceptions=True,
            )

    assert [type(answer) for answer in asyncio.run(ask())] == [BrokerUnreachable] * 2


def test_a_large_answer_on_a_slow_link_may_take_longer_than_a_silence() -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = struct.pack(">ii", 4 + 1 + 8, 1) + b"\0" + b"12345678"
        for at in range(len(answer)):
            writer.write(answer[at : at + 1])
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.close()

    async def ask() -> bytes:
        server = await asyncio.start_server(drip, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        connection = Connection("broker slow", {})
        connection.attach(writer)
        async with server:
            answer = bytes(await connection.request(API_VERSIONS, 3, [b""], timeout_s=0.1))
            connection.close()
            await asyncio.sleep(0.05)
            return answer

    assert asyncio.run(ask()) == b"12345678"


def test_a_server_that_accepts_and_is_silent_is_given_up_in_time() -> None:
    async def connect() -> None:
        async with small_server(silence) as port:
            await open_connection("127.0.0.1", port, {}, cluster="A", timeout_s=0.1)

    with pytest.raises(BrokerUnreachable, match="cluster A, broker 127"):
        asyncio.run(connect())


def test_a_tls_connection_that_fails_as_it_opens_leaves_no_socket_behind(tmp_path: Path) -> None:
    """Without an answer to its farewell TLS keeps the socket for half a minute, or for good where
    the loop ends before that."""
    files, accepted = write_certificates(tmp_path), list[socket.socket]()

    def shake_hands(listener: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.broker)
        accepted.append(context.wrap_socket(listener.accept()[0], server_side=True))

    with (
        warnings.catch_warnings(record=True) as warned,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        warnings.simplefilter("always")
        server = threading.Thread(target=shake_hands, args=(listener,))
        server.start()
        trusting = ssl.create_default_context(cafile=str(files.authority))
        settings = {"security_protocol": "SSL", "ssl_context": trusting}
        port = listener.getsockname()[1]
        with pytest.raises(BrokerUnreachable):
            asyncio.run(open_connection("127.0.0.1", port, settings, cluster="A", timeout_s=1))
        server.join()
        gc.collect()
    for each in accepted:
        each.close()

    assert [each for each in warned if issubclass(each.category, ResourceWarning)] == []


def test_a_cluster_does_not_ask_again_on_a_connection_that_fell_silent() -> None:
    async def ask_twice() -> list[bool]:
        async with silent_cluster() as cluster:
            first = await cluster.connection(1, "control")
            with pytest.raises(BrokerUnreachable):
                await first.request(METADATA, 12, [b""], timeout_s=0.05)
            second = await cluster.connection(1, "control")
            return [first.closed, second.closed, second is first]

    assert asyncio.run(ask_twice()) == [True, False, False]


def test_a_log_whose_broker_falls_silent_is_not_read_for_ever() -> None:
    async def read() -> None:
        async with silent_cluster() as cluster:
            (await cluster.connection(1, "read")).answer_s_max = 0.05
            await fetch_once(cluster, ORDERS, 0)

    with pytest.raises(BrokerUnreachable, match="no answer"):
        asyncio.run(read())


def test_the_kernel_is_told_to_notice_a_peer_that_vanished() -> None:
    async def options() -> list[int]:
        async with small_server(handshake_only(KNOWN)) as port:
            connection = await open_connection("127.0.0.1", port, {}, cluster="A")
            assert connection._writer is not None
            opened = connection._writer.get_extra_info("socket")
            found = [
                opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
                opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
            ]
            connection.close()
            return found

    assert asyncio.run(options()) == [1, 10, 30_000]


def test_a_broker_that_is_too_old_gets_one_sentence() -> None:
    async def ask() -> None:
        async with silent_cluster({METADATA: (0, 8)}) as cluster:
            await cluster.refresh([ORDERS.topic])

    with pytest.raises(BrokerError) as caught:
        asyncio.run(ask())

    assert str(caught.value).endswith(
        "the broker is too old, Kafka 3.1 or newer is needed "
        "(of request 3 it knows 0 to 8, not version 12)"
    )
    assert not caught.value.retriable


@pytest.mark.parametrize("cut_at", [None, 12])
def test_an_answer_that_cannot_be_decoded_is_one_kind_of_error(cut_at: int | None) -> None:
    """An error code newer than the decoder, and an answer that ends too early."""

    async def ask() -> None:
        async with small_connection(offsets_answer(200, cut_at)) as connection:
            connection._versions = {LIST_OFFSETS: (0, 7)}
            message = offsets_request.ListOffsetsRequest(
                replica_id=-1,  # type: ignore[arg-type]
                isolation_level=0,  # type: ignore[arg-type]
                topics=(),
            )
            await connection.call(message, offsets_response.ListOffsetsResponse)

    with pytest.raises(WireError, match="its answer to request 2 cannot be read"):
        asyncio.run(ask())


def test_an_error_code_that_nobody_knows_is_an_answer_of_those_partitions() -> None:
    async def ask() -> object:
        async with silent_cluster() as cluster, small_connection(offsets_answer(200)) as odd:
            odd._versions = KNOWN
            cluster._connections[1, "control"] = odd
            return (await cluster.list_offsets([ORDERS], LATEST))[ORDERS]

    found = asyncio.run(ask())

    assert isinstance(found, BrokerError)
    assert "cannot be read" in str(found)


def test_a_broker_that_is_silent_costs_its_time_out_once() -> None:
    asked: list[int] = []

    class Two(Cluster):
        async def connection(self, broker: int, purpose: str) -> Connection:
            asked.append(broker)
            if broker == 1:
                raise BrokerUnreachable("broker 1: no answer in 30 s")
            return _Answering()

    async def ask_twice() -> None:
        cluster = Two(ClusterAlias("A"), ["127.0.0.1:1"], {})
        cluster._brokers = {1: ("one", 1), 2: ("two", 2)}
        for _ in range(2):
            await cluster.ask_any(object(), object)

    asyncio.run(ask_twice())

    assert asked == [1, 2, 2]


def test_a_bootstrap_server_may_name_its_listener() -> None:
    async def ask() -> None:
        async with small_server(handshake_only({METADATA: (0, 8)})) as port:
            cluster = Cluster(ClusterAlias("A"), [f"PLAINTEXT://127.0.0.1:{port}"], {})
            await cluster.refresh([ORDERS.topic])

    with pytest.raises(BrokerError, match="too old"):
        asyncio.run(ask())


def test_a_connection_whose_session_ends_soon_is_replaced_and_closed_once_answered() -> None:
    async def ask() -> list[bool]:
        async with silent_cluster() as cluster:
            first = await cluster.connection(1, "control")
            waiting = asyncio.create_task(first.request(METADATA, 12, [b""], timeout_s=0.1))
            await asyncio.sleep(0)
            first._due_s = 0.0
            second = await cluster.connection(1, "control")
            seen = [second is first, first.closed]
            with pytest.raises(BrokerUnreachable):
                await waiting
            return [*seen, first.closed, second.closed]

    assert asyncio.run(ask()) == [False, False, True, False]


def test_a_retired_connection_is_closed_with_its_last_answer() -> None:
    async def ask() -> list[bool]:
        async with small_connection(offsets_answer(0)) as connection:
            waiting = asyncio.create_task(connection.request(LIST_OFFSETS, 7, [b""]))
            await asyncio.sleep(0)
            connection.retire()
            before = connection.closed
            await waiting
            return [before, connection.closed]

    assert asyncio.run(ask()) == [False, True]


@pytest.mark.parametrize(("session_s", "is_due"), [(None, False), (3600.0, False), (0.0, True)])
def test_a_session_is_renewed_before_it_ends(session_s: float | None, is_due: bool) -> None:
    assert Connection("broker", {}, session_s).is_due is is_due


class _Answering(Connection):
    def __init__(self) -> None:
        super().__init__("two", {})

    async def call(
        self, message: object, answer_type: object, timeout_s: float | None = None
    ) -> object:
        return message


@asynccontextmanager
async def silent_cluster(
    versions: dict[int, tuple[int, int]] | None = None,
) -> AsyncIterator[Cluster]:
    """One broker that shakes hands, and then says nothing."""
    async with small_server(handshake_only(versions or KNOWN)) as port:
        cluster = Cluster(ClusterAlias("A"), [f"127.0.0.1:{port}"], {})
        cluster._brokers = {1: ("127.0.0.1", port)}
        leaders = {0: Leader(broker=1, epoch=3)}
        cluster._topics = {ORDERS.topic: Topic(id=TOPIC_ID, leaders=leaders, partition_count=1)}
        try:
            yield cluster
        finally:
            cluster.close()


def offsets_answer(code: int, cut_at: int | None = None) -> Reply:
    def reply(key: int, correlation: int) -> bytes:
        row = struct.pack(">ihqqi", 0, code, -1, 5, 1) + b"\0"
        body = struct.pack(">i", 0) + b"\x02\x07orders\x02" + row + b"\0\0"
        return struct.pack(">i", correlation) + b"\0" + body[:cut_at]

    return reply


def test_every_request_names_the_client_and_buffers_are_as_set() -> None:
    """What an operator set reaches the connections that carry records: quotas go by it."""
    frames: list[bytes] = []

    async def ask() -> list[int]:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                try:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    frame = await reader.readexactly(size)
                except asyncio.IncompleteReadError:
                    writer.close()
                    return
                key, _, correlation = struct.unpack_from(">hhi", frame)
                if key == API_VERSIONS:
                    answer = api_versions_answer(correlation, KNOWN)
                    writer.write(struct.pack(">i", len(answer)) + answer)
                else:
                    frames.append(frame)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        settings = {
            "client_id": "reader-7",
            "request_timeout_ms": 50,
            "receive_buffer_bytes": 20_000,
            "send_buffer_bytes": 30_000,
        }
        port = server.sockets[0].getsockname()[1]
        connection = await open_connection("127.0.0.1", port, settings, cluster="A")
        assert connection._writer is not None
        opened = connection._writer.get_extra_info("socket")
        sizes = [
            opened.getsockopt(socket.SOL_SOCKET, option)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF)
        ]
        with pytest.raises(BrokerUnreachable, match="no answer"):
            await connection.request(METADATA, 12, [b"body"])
        server.close()
        await asyncio.sleep(0.01)
        return sizes

    # Linux keeps twice of what it is told.
    assert asyncio.run(ask()) == [40_000, 60_000]
    named = struct.pack(">h", 8) + b"reader-7\0"
    assert [frame[8:].startswith(named) for frame in frames] == [True]
