"""A TCP proxy that makes a network long, narrow or broken. Runs in a thread of its own.

It is a link between two places: one bandwidth each way for all connections, a short queue in
front of it, and a delay behind it. Nothing is lost: who sends faster is held back, as by TCP.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Coroutine
from typing import Final, Self, TypeVar

from heliograph_tools.localkafka.ports import LOOPBACK, PortHold

_PIECE_S: Final = 0.005
"""How long a piece read at once may occupy the link; connections take turns piece by piece."""
_PIECE_BYTES_MIN: Final = 1_500
_PIECE_BYTES_MAX: Final = 256 * 1024
_QUEUE_S: Final = 0.05
"""How much may wait for the link; a router's queue."""
_UNBOUNDED_BYTES: Final = 4 * 1024 * 1024
"""How much a connection may keep here without a bandwidth, and while its receiver takes nothing."""
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
        self.drops_every: int | None = None
        """Each connection of this number is reset as soon as it was accepted."""
        self._accepted = 0
        self.forwarding = True
        self.out = _Link()
        self.back = _Link()
        self._hold = PortHold()
        self.port = self._hold.port
        self._serving: set[_Served] = set()
        self._server: asyncio.Server | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept()
        return self

    def __exit__(self, *_: object) -> None:
        self.refuse()
        self.cut()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        self._hold.close()

    @property
    def connections(self) -> int:
        return len(self._serving)

    @property
    def bytes_forwarded(self) -> int:
        """Both ways."""
        return self.out.bytes_forwarded + self.back.bytes_forwarded

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

    def opened(self, served: _Served) -> bool:
        """Whether the connection may stay."""
        self._serving.add(served)
        self._accepted += 1
        return self.drops_every is None or self._accepted % self.drops_every != 0

    def closed(self, served: _Served) -> None:
        self._serving.discard(served)

    def _call(self, work: Coroutine[None, None, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_CALL_TIMEOUT_S)

    async def _set_forwarding(self, *, on: bool) -> None:
        self.forwarding = on
        for served in tuple(self._serving) if on else ():
            served.client.deliver()
            served.broker.deliver()

    async def _accept(self) -> None:
        if self._server is None:
            self._server = await self.loop.create_server(
                lambda: _Served(self).client, LOOPBACK, self.port, reuse_address=True
            )

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _cut(self) -> None:
        for served in tuple(self._serving):
            served.end(reset=True)
        # What was aborted is closed by the loop's next turn.
        await asyncio.sleep(0)


class _Link:
    """One way of the link: until when it is taken, and what has passed."""

    def __init__(self) -> None:
        self.free_at_s = 0.0
        self.bytes_forwarded = 0


class _Served:
    """One client's connection and the one to the broker made for it."""

    def __init__(self, proxy: TcpProxy) -> None:
        self.proxy = proxy
        self.client = _End(self, proxy.out)
        self.broker = _End(self, proxy.back)
        self.client.other, self.broker.other = self.broker, self.client
        self._dialling: asyncio.Task[None] | None = None

    def dial(self) -> None:
        if not self.proxy.opened(self):
            self.end(reset=True)
            return
        self._dialling = self.proxy.loop.create_task(self._dial())

    async def _dial(self) -> None:
        try:
            await self.proxy.loop.create_connection(
                lambda: self.broker, LOOPBACK, self.proxy.target_port
            )
        except OSError:
            self.end(reset=True)

    def end(self, *, reset: bool) -> None:
        """Both ends; a reset is what a machine on the way says that forgot the connection."""
        self.proxy.closed(self)
        if self._dialling is not None:
            self._dialling.cancel()
        for each in (self.client, self.broker):
            each.end(reset=reset)


class _End(asyncio.BufferedProtocol):
    """One socket: what is read here leaves at the other end when the link has carried it."""

    other: _End

    def __init__(self, served: _Served, link: _Link) -> None:
        self._served = served
        self._link = link
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(b"")
        self._carried: deque[tuple[float, memoryview]] = deque()
        """When each piece arrives at the other end; an empty one is the end of the stream."""
        self._carried_bytes = 0
        self.delivery: asyncio.TimerHandle | None = None
        self._held = False
        """Whether the receiver at the other end takes nothing for now."""

    # -- this end's socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self is self._served.client:
            transport.pause_reading()
            self._served.dial()
        else:
            self.other.read_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        bytes_per_s = self._served.proxy.bytes_per_s
        size = _PIECE_BYTES_MAX
        if bytes_per_s is not None:
            size = min(size, max(_PIECE_BYTES_MIN, int(bytes_per_s * _PIECE_S)))
        self._buffer = memoryview(bytearray(size))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._carry(self._buffer[:nbytes])

    def eof_received(self) -> bool:
        self._carry(memoryview(b""))
        return True

    def connection_lost(self, exc: BaseException | None) -> None:
        self._served.end(reset=exc is not None)

    def pause_writing(self) -> None:
        self.other.hold(True)

    def resume_writing(self) -> None:
        self.other.hold(False)

    # -- the way to the other end

    def hold(self, held: bool) -> None:
        self._held = held
        if not held:
            self.deliver()

    def read_on(self) -> None:
        """Take more from this socket as soon as the link has room."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wait_s = self._link.free_at_s - self._served.proxy.loop.time() - _QUEUE_S
        if wait_s > 0:
            transport.pause_reading()
            self._served.proxy.loop.call_later(wait_s, self.read_on)
        elif self._carried_bytes > _UNBOUNDED_BYTES and self._backed_up():
            transport.pause_reading()
        elif not transport.is_reading():
            transport.resume_reading()

    def end(self, *, reset: bool) -> None:
        transport, self._transport = self._transport, None
        if self.delivery is not None:
            self.delivery.cancel()
        if transport is None or transport.is_closing():
            return
        if reset:
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            transport.abort()
        else:
            transport.close()

    @property
    def _is_held(self) -> bool:
        return self._held or not self._served.proxy.forwarding

    def _backed_up(self) -> bool:
        return self._is_held or self._served.proxy.bytes_per_s is None

    def _carry(self, piece: memoryview) -> None:
        proxy, link = self._served.proxy, self._link
        due_s = proxy.loop.time()
        if proxy.bytes_per_s is not None:
            due_s = link.free_at_s = max(due_s, link.free_at_s) + len(piece) / proxy.bytes_per_s
        self._carried.append((due_s + proxy.delay_ms / 1000, piece))
        self._carried_bytes += len(piece)
        self.read_on()
        if self.delivery is None:
            self.deliver()

    def deliver(self) -> None:
        """Hand over what has arrived, and come back for the next piece."""
        if self.delivery is not None:
            self.delivery.cancel()
            self.delivery = None
        receiver, loop = self.other._transport, self._served.proxy.loop
        while self._carried and not self._is_held and receiver is not None:
            due_s, piece = self._carried[0]
            if due_s > loop.time():
                self.delivery = loop.call_at(due_s, self.deliver)
                break
            self._carried.popleft()
            if not piece:
                self._served.end(reset=False)
                return
            self._carried_bytes -= len(piece)
            self._link.bytes_forwarded += len(piece)
            receiver.write(piece)
        if self._transport is not None and not self._transport.is_reading():
            self.read_on()
