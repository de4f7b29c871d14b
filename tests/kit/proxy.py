"""A TCP proxy that makes a network slow, narrow or broken; runs in a thread of the test."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Final, Self, TypeVar

from heliograph_tools.localkafka.ports import LOOPBACK, PortHold

_CHUNK_BYTES: Final = 64 * 1024
_CHUNKS_IN_FLIGHT_MAX: Final = 256
_CALL_TIMEOUT_S: Final = 10
T = TypeVar("T")


class TcpProxy:
    """Forwards its `port` to `target_port`; `delay_ms` and `bytes_per_s` may change at any time.

    A broker's clients follow what it advertises, so the broker must advertise the proxy:

        with TcpProxy() as proxy:
            made = clusters(ClusterSpec(alias="A", advertised_ports=(proxy.port,)))
            proxy.target_port = made["A"].broker(0).ports.proxied
            bootstrap = made["A"].proxied_bootstrap
    """

    def __init__(self, target_port: int = 0) -> None:
        self.target_port = target_port
        self.delay_ms = 0
        """One way: a round trip takes twice as long."""
        self.bytes_per_s: int | None = None
        """Each way, shared by all connections."""
        self.bytes_forwarded = 0
        self.drops_every: int | None = None
        """Each connection of this number is reset as soon as it was accepted."""
        self._accepted = 0
        self._hold = PortHold()
        self.port = self._hold.port
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._free_at_s = {"out": 0.0, "back": 0.0}
        self._forwarding = asyncio.Event()
        self._forwarding.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._hold.close()

    @property
    def connections(self) -> int:
        return len(self._serving)

    def cut(self) -> None:
        """Reset every connection; new ones are still accepted."""
        self._call(self._cut())

    def refuse(self) -> None:
        """Refuse new connections; existing ones go on."""
        self._call(self._refuse())

    def accept(self) -> None:
        """Accept connections again, on the same port."""
        self._call(self._accept())

    def hold(self) -> None:
        """Forward nothing more, and close nothing: as when packets are dropped on the way."""
        self._call(self._set_forwarding(on=False))

    def release(self) -> None:
        """Forward what was held; of a connection that was reset meanwhile, nothing."""
        self._call(self._set_forwarding(on=True))

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_CALL_TIMEOUT_S)

    async def _set_forwarding(self, *, on: bool) -> None:
        (self._forwarding.set if on else self._forwarding.clear)()

    async def _accept(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(
                self._serve, LOOPBACK, self.port, reuse_address=True
            )

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _cut(self) -> None:
        cut = list(self._serving)
        for task in cut:
            task.cancel()
        await asyncio.gather(*cut)

    async def _serve(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        writers = [client_writer]
        self._accepted += 1
        try:
            if self.drops_every is not None and self._accepted % self.drops_every == 0:
                raise ConnectionResetError
            broker_reader, broker_writer = await asyncio.open_connection(LOOPBACK, self.target_port)
            writers.append(broker_writer)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._forward(client_reader, broker_writer, "out"))
                ways.create_task(self._forward(broker_reader, client_writer, "back"))
        except (OSError, asyncio.CancelledError):
            # The broker is away, or `cut` was called.
            for writer in writers:
                _reset(writer)
        finally:
            self._serving.discard(task)
            for writer in writers:
                writer.close()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_IN_FLIGHT_MAX)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receive(reader, chunks, way))
            tasks.create_task(self._deliver(writer, chunks))

    async def _receive(
        self, reader: asyncio.StreamReader, chunks: asyncio.Queue[tuple[float, bytes]], way: str
    ) -> None:
        while True:
            try:
                chunk = await reader.read(_CHUNK_BYTES)
                if not self._forwarding.is_set():
                    await self._forwarding.wait()
                    if reader.exception() is not None:
                        chunk = b""
            except ConnectionError:
                chunk = b""
            due_s = self._loop.time()
            if self.bytes_per_s is not None:
                start_s = max(due_s, self._free_at_s[way])
                due_s = self._free_at_s[way] = start_s + len(chunk) / self.bytes_per_s
            await chunks.put((due_s + self.delay_ms / 1000, chunk))
            if not chunk:
                return

    async def _deliver(
        self, writer: asyncio.StreamWriter, chunks: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        while True:
            due_s, chunk = await chunks.get()
            wait_s = due_s - self._loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if not chunk:
                writer.close()
                return
            self.bytes_forwarded += len(chunk)
            try:
                writer.write(chunk)
                await writer.drain()
            except ConnectionError:
                writer.transport.abort()
                # Goes on reading, so that the other task does not wait for room in the queue.
                continue


def _reset(writer: asyncio.StreamWriter) -> None:
    if writer.transport.is_closing():
        return
    # Without lingering the peer gets RST, as when a machine on the way forgets the connection.
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
