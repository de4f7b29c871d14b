"""A server of our own in place of a broker: it accepts, and says what a test tells it to say."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from heliograph.broker.connection import Connection

API_VERSIONS: Final = 18
_LENGTH: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhi")

Reply = Callable[[int, int], bytes | None]
"""The answer to a request of this API key with this correlation id; None for silence."""


@asynccontextmanager
async def small_server(reply: Reply) -> AsyncIterator[int]:
    """Its port."""
    ends: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = asyncio.Event()
        ends.append(ended)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                request = await reader.readexactly(size)
                key, _, correlation = _HEADER.unpack_from(request)
                answer = reply(key, correlation)
                if answer is not None:
                    writer.write(_LENGTH.pack(len(answer)) + answer)
                    await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for ended in ends:
            await ended.wait()
        # An aborted transport closes its socket one turn of the loop later.
        await asyncio.sleep(0)


@asynccontextmanager
async def small_connection(reply: Reply) -> AsyncIterator[Connection]:
    """A connection to it, taken over as one that aiokafka has opened."""
    async with small_server(reply) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        connection = Connection("broker small", {})
        connection.attach(writer)
        try:
            yield connection
        finally:
            connection.close()


def silence(key: int, correlation: int) -> None:
    """Accepts everything and never answers."""


def handshake_only(versions: Mapping[int, tuple[int, int]]) -> Reply:
    """Answers what it is asked before anything else, and nothing after that."""

    def reply(key: int, correlation: int) -> bytes | None:
        return api_versions_answer(correlation, versions) if key == API_VERSIONS else None

    return reply


def api_versions_answer(correlation: int, versions: Mapping[int, tuple[int, int]]) -> bytes:
    """ApiVersions, version 0: error code, then each key with its lowest and highest version."""
    known = {API_VERSIONS: (0, 0), **versions}
    rows = b"".join(struct.pack(">hhh", key, *span) for key, span in known.items())
    return struct.pack(">ihi", correlation, 0, len(known)) + rows
