"""The link and its lease: who hears whom, and for how long. Server on the driver, client in slots.

The lease, as a sequence of events: a slot sends beat *n* at its time t; the driver hears it at
t' >= t and echoes it; the echo lets the slot work until t + lease. A driver that has heard nothing
since t' therefore knows that the slot has stopped once t' + lease is over, whatever the network
held back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from heliograph.clock import monotonic_s
from heliograph.engine.frames import FrameStream, greet, welcome
from heliograph.engine.messages import (
    Beat,
    Down,
    Figures,
    Hello,
    MoreLanes,
    Progress,
    Settled,
    Up,
    decode_down,
    decode_up,
    encode_down,
    encode_up,
    hello_messages,
)
from heliograph.errors import InvariantError, LinkError

_log: Final = logging.getLogger(__name__)
_HANDSHAKE_S_MAX: Final = 5.0
_RECONNECT_S: Final = 0.2
_BEATS_PER_LEASE: Final = 8
_BEAT_S_MAX: Final = 1.0


class Session:
    """The driver's end of one slot's connection. Used on the link's loop only."""

    def __init__(self, stream: FrameStream, hello: Hello) -> None:
        self._stream = stream
        self.hello = hello
        self.heard_s = monotonic_s()
        self.is_open = True

    def send(self, message: Down) -> None:
        if self.is_open:
            self._stream.send(encode_down(message))

    def close(self) -> None:
        """From here on nothing is heard or echoed; what was sent before still arrives."""
        self.is_open = False
        self._stream.close()


class Listener(Protocol):
    """Hears the slots. Every method is called on the link's loop and must not block."""

    def hello(self, session: Session) -> None:
        """A slot connected, perhaps again; `session.close()` refuses it."""
        ...

    def heard(self, session: Session, message: Progress | Figures | Settled) -> None: ...

    def lost(self, session: Session) -> None:
        """The connection is gone, which says nothing about the slot."""
        ...


class LinkServer:
    """Listens for slots. Used on one loop only, the one that runs `start`."""

    def __init__(
        self,
        *,
        host: str,
        token: bytes,
        listener: Listener,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_failure` hears that `check` raises from here on."""
        self._host, self._token, self._listener = host, token, listener
        self._on_failure = on_failure
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._bug: BaseException | None = None
        self._is_closed = False

    async def start(self) -> int:
        """Listen, and return the port."""
        try:
            self._server = await asyncio.start_server(self._accept, self._host, 0)
        except OSError as exc:
            raise LinkError(f"cannot listen on {self._host}: {exc.strerror}") from exc
        return int(self._server.sockets[0].getsockname()[1])

    def check(self) -> None:
        """Raises `LinkError` once the link is closed, and `InvariantError` once a task of it has
        failed in a way nobody foresaw."""
        if self._bug is not None:
            raise InvariantError(f"the link failed: {self._bug!r}") from self._bug
        if self._is_closed:
            raise LinkError("the link is closed")

    def every(self, interval_s: float, function: Callable[[], None]) -> None:
        """Call `function` until the link is closed."""
        self._spawn(self._repeat(interval_s, function))

    async def stop(self) -> None:
        self._is_closed = True
        if self._server is not None:
            self._server.close()
        pending = tuple(self._tasks)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        await asyncio.sleep(0)  # sockets are closed at the loop's next turn

    def _spawn(self, coroutine: asyncio._CoroutineLike[None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            self._bug = exc
            self._on_failure()

    async def _repeat(self, interval_s: float, function: Callable[[], None]) -> None:
        while True:
            function()
            await asyncio.sleep(interval_s)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closed:
            writer.close()
            return
        # Not by the task itself: one that is cancelled before its first step never runs.
        self._spawn(self._serve(reader, writer)).add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        session: Session | None = None
        try:
            async with asyncio.timeout(_HANDSHAKE_S_MAX):
                stream = await welcome(reader, writer, self._token)
                hello = await _receive_hello(stream)
            session = Session(stream, hello)
            self._listener.hello(session)
            while session.is_open:
                self._hear(session, decode_up(await stream.receive()))
        except LinkError as exc:
            peer = writer.get_extra_info("peername")
            _log.warning("connection from %s refused: %s", peer, exc)
        except (OSError, asyncio.IncompleteReadError) as exc:
            _log.debug("connection ended: %s", exc)
        finally:
            if session is not None:
                session.is_open = False
                self._listener.lost(session)

    def _hear(self, session: Session, message: Up) -> None:
        session.heard_s = monotonic_s()
        match message:
            case Beat():
                session.send(message)
            case Progress() | Figures() | Settled():
                self._listener.heard(session, message)
            case Hello() | MoreLanes():
                raise LinkError("hello was said before")


async def _receive_hello(stream: FrameStream) -> Hello:
    hello = decode_up(await stream.receive())
    if not isinstance(hello, Hello):
        raise LinkError(f"expected hello, got {hello.kind}")
    lanes, count = list(hello.lanes), len(hello.lanes) + hello.lanes_to_come
    while len(lanes) < count:
        more = decode_up(await stream.receive())
        if not isinstance(more, MoreLanes) or not more.lanes:
            raise LinkError(f"expected the rest of hello, got {more.kind}")
        lanes += more.lanes
    return replace(hello, lanes=tuple(lanes), lanes_to_come=0)


class LinkClient:
    """The slot's end: stays connected as long as the lease lasts."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        token: bytes,
        lease_s: float,
        hello: Callable[[], Hello],
        heard: Callable[[Down], None],
    ) -> None:
        self._host, self._port, self._token, self._lease_s = host, port, token, lease_s
        self._hello, self._heard = hello, heard
        self._stream: FrameStream | None = None
        self._lease: asyncio.Timeout | None = None
        self._sent_s: dict[int, float] = {}
        self._beat_number = 0
        self._echoed_s: float | None = None
        self.connections = 0

    async def run(self) -> None:
        """Return when the lease is over. Raises `LinkError` when the peer is not our driver."""
        try:
            async with asyncio.timeout(self._lease_s) as self._lease:
                while True:
                    try:
                        await self._converse()
                    except (OSError, asyncio.IncompleteReadError) as exc:
                        _log.info("link lost, connecting again while the lease lasts: %s", exc)
                    await asyncio.sleep(_RECONNECT_S)
        except TimeoutError:
            return

    @property
    def unheard_s(self) -> float:
        """How long ago the last beat was sent that the driver has echoed; 0 before the first."""
        if self._echoed_s is None:
            return 0.0
        return asyncio.get_running_loop().time() - self._echoed_s

    def send(self, message: Up) -> bool:
        """False when not connected; the next hello will then say all that matters."""
        if self._stream is None:
            return False
        self._stream.send(encode_up(message))
        return True

    async def flush(self) -> None:
        """Wait until what was sent has left this process, as far as a lost link lets it."""
        if self._stream is not None:
            with contextlib.suppress(OSError):
                await self._stream.flush()

    async def _converse(self) -> None:
        async with asyncio.timeout(_HANDSHAKE_S_MAX):
            reader, writer = await asyncio.open_connection(self._host, self._port)
            try:
                stream = await greet(reader, writer, self._token)
            except BaseException:
                writer.close()
                raise
        beating = asyncio.create_task(self._beat(stream))
        try:
            for part in hello_messages(self._hello()):
                stream.send(encode_up(part))
            self._stream = stream
            self.connections += 1
            while True:
                message = decode_down(await stream.receive())
                if isinstance(message, Beat):
                    self._renew(message)
                else:
                    self._heard(message)
        finally:
            self._stream = None
            beating.cancel()
            stream.close()

    async def _beat(self, stream: FrameStream) -> None:
        while True:
            # Hello goes first: this task starts only after `_converse` has sent it and waits.
            self._beat_number += 1
            self._sent_s[self._beat_number] = asyncio.get_running_loop().time()
            stream.send(encode_up(Beat(number=self._beat_number)))
            await asyncio.sleep(min(_BEAT_S_MAX, self._lease_s / _BEATS_PER_LEASE))

    def _renew(self, echo: Beat) -> None:
        sent_s = self._sent_s.get(echo.number)
        if sent_s is None or self._lease is None:
            raise LinkError(f"echo of beat {echo.number}, which was not sent")
        self._sent_s = {n: at_s for n, at_s in self._sent_s.items() if n > echo.number}
        self._echoed_s = sent_s
        self._lease.reschedule(sent_s + self._lease_s)
