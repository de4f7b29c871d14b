"""A connection to a broker that accepts and never answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from heliograph.broker.connection import Connection
from heliograph.errors import BrokerUnreachable

API_VERSIONS = 18


def test_a_request_that_is_never_answered_fails_in_time_and_closes_the_connection() -> None:
    async def ask() -> bool:
        async with silent_connection() as connection:
            with pytest.raises(BrokerUnreachable, match=r"broker silent: no answer in 0 s"):
                await connection.request(API_VERSIONS, 3, [b""], timeout_s=0.05)
            return connection.closed

    assert asyncio.run(ask())


def test_whoever_waits_behind_an_unanswered_request_is_told_too() -> None:
    async def ask() -> tuple[object, object]:
        async with silent_connection() as connection:
            return await asyncio.gather(
                connection.request(API_VERSIONS, 3, [b""], timeout_s=0.05),
                connection.request(API_VERSIONS, 3, [b""], timeout_s=60.0),
                return_exceptions=True,
            )

    assert [type(answer) for answer in asyncio.run(ask())] == [BrokerUnreachable] * 2


@asynccontextmanager
async def silent_connection() -> AsyncIterator[Connection]:
    ended = asyncio.Event()

    async def read_for_ever(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while await reader.read(1024):
                pass
        writer.close()
        ended.set()

    server = await asyncio.start_server(read_for_ever, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    connection = Connection("broker silent", {})
    connection.attach(writer)
    try:
        yield connection
    finally:
        connection.close()
        server.close()
        await ended.wait()
