"""The proxy of the kit slows, narrows, cuts and refuses."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from heliograph_tools.localkafka.ports import LOOPBACK
from heliograph_tools.proxy import TcpProxy


@pytest.fixture
def echo_port() -> Iterator[int]:
    """A server that sends back what it gets, one connection after the other."""
    server = socket.create_server((LOOPBACK, 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                while chunk := receive(connection):
                    connection.sendall(chunk)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield server.getsockname()[1]
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join()


def receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionError:
        return b""


def round_trip_s(connection: socket.socket, content: bytes) -> float:
    started_s = time.monotonic()
    connection.sendall(content)
    missing = len(content)
    while missing:
        missing -= len(connection.recv(65536))
    return time.monotonic() - started_s


def test_a_delay_is_added_each_way(echo_port: int) -> None:
    with (
        TcpProxy(echo_port) as proxy,
        socket.create_connection((LOOPBACK, proxy.port)) as connection,
    ):
        round_trip_s(connection, b"warm")
        proxy.delay_ms = 100

        assert round_trip_s(connection, b"ping") >= 0.2


def test_bytes_per_second_are_kept_to(echo_port: int) -> None:
    with (
        TcpProxy(echo_port) as proxy,
        socket.create_connection((LOOPBACK, proxy.port)) as connection,
    ):
        proxy.bytes_per_s = 1_000_000

        assert round_trip_s(connection, b"x" * 300_000) >= 0.3
        assert proxy.bytes_forwarded == 600_000


def test_a_cut_ends_connections_and_a_refusal_new_ones(echo_port: int) -> None:
    with (
        TcpProxy(echo_port) as proxy,
        socket.create_connection((LOOPBACK, proxy.port)) as connection,
    ):
        round_trip_s(connection, b"warm")
        proxy.refuse()
        still_open_s = round_trip_s(connection, b"old connection")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, proxy.port))
        proxy.cut()
        after_cut = receive(connection)
        proxy.accept()
        with socket.create_connection((LOOPBACK, proxy.port)) as again:
            round_trip_s(again, b"new connection")

    assert still_open_s < 5
    assert after_cut == b""
