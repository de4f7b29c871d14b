"""One authenticated connection to one broker, carrying bare frames. Runs on driver and executors.

aiokafka opens the connection and does TLS and SASL; then its transport is taken over by a protocol
that reads each answer into one buffer of its own. Its stream reader and message classes cost four
times the CPU of bare frames.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import random
import socket
import struct
import sys
import termios
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from importlib.util import find_spec
from typing import Any, Final

from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError, SaslAuthenticationFailed, UnsupportedSaslMechanismError
from aiokafka.protocol.admin import SaslAuthenticateRequest
from kio.serial import entity_reader, entity_writer

from heliograph.clock import monotonic_s
from heliograph.errors import BrokerError, BrokerUnreachable, NotAuthorised, WireError

FRAME_BYTES_MAX: Final = 512 * 1024 * 1024
CLIENT_ID: Final = "heliograph"
ANSWER_S_MAX: Final = 30.0
"""How long a broker may be silent before it has answered a request."""
_DEAD_PEER_S: Final = 30
"""How long a peer may acknowledge nothing, sent or probed for, before the kernel gives it up."""
_PROBE_EVERY_S: Final = 10
# What leaves a handful of large requests in the kernel's hands without asyncio copying a long tail
# again for every partial send.
WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024

_LENGTH: Final = struct.Struct(">i")
_REQUEST_HEADER: Final = struct.Struct(">hhi")
_MIN_RTT_AT: Final = 148  # tcpi_min_rtt of Linux's tcp_info, in microseconds
_TCP_INFO_BYTES: Final = _MIN_RTT_AT + 4
_NO_RTT: Final = 2**32 - 1
_NO_LINGER: Final = struct.pack("ii", 1, 0)

Answer = memoryview | BaseException
OnAnswer = Callable[[Answer], None]
OnRoundTrip = Callable[[float], None]


class Connection:
    """Requests out, answers in the same order. Used by one event loop.

    `send` never waits: who must bound what is in flight counts it. After a failure every waiting
    request is answered with `BrokerUnreachable`, and the connection is `closed` for good.
    """

    def __init__(
        self,
        name: str,
        versions: dict[int, tuple[int, int]],
        session_s: float | None = None,
        *,
        client_id: str = CLIENT_ID,
        answer_s_max: float = ANSWER_S_MAX,
        on_round_trip: OnRoundTrip = lambda _: None,
    ) -> None:
        """`session_s`: for how long the broker takes the credentials that were shown."""
        self.name = name
        self._due_s: float | None = None
        if session_s is not None:
            # Not all at the same moment, and well before the end.
            self._due_s = monotonic_s() + session_s * random.uniform(0.7, 0.85)
        self._is_retired = False
        self.answer_s_max = answer_s_max
        """How long the broker may be silent before it has answered a request."""
        self._versions = versions
        self._client_id_field = _client_id_field(client_id)
        self._on_round_trip = on_round_trip
        """Hears of exchanges that a broker answers at once."""
        self._correlation = 0
        self._waiting: deque[tuple[int, float, OnAnswer]] = deque()
        self._transport: asyncio.WriteTransport | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._error: BaseException | None = None
        self.writable = asyncio.Event()
        """Set while the transport takes more without letting its buffer grow."""
        self.writable.set()
        self._drained = asyncio.Event()
        self._heard_bytes = 0
        self._written_bytes = 0
        self.answer_wait_s = 0.0
        """From sending the request to the first byte of its answer, of the last one."""
        self.answer_bytes = 0
        """Of the same."""

    @property
    def closed(self) -> bool:
        return self._transport is None

    @property
    def is_due(self) -> bool:
        """Whether another connection should take over: a broker closes one whose session has ended
        (KIP-368), with all that is on its way."""
        return self._due_s is not None and monotonic_s() >= self._due_s

    def expire(self) -> None:
        """Another connection should take over from now on, as where the session is about to end."""
        self._due_s = monotonic_s()

    def retire(self) -> None:
        """Close as soon as all requests are answered; from here on there are no new ones."""
        self._is_retired = True
        self._close_if_retired()

    def _close_if_retired(self) -> None:
        if self._is_retired and not self._waiting:
            self.close()

    def knows(self, api_key: int, version: int) -> bool:
        """Whether the broker answers requests of this kind and version."""
        low, high = self._versions.get(api_key, (0, -1))
        return low <= version <= high

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """Of each request the broker knows, the lowest and the highest version."""
        return dict(self._versions)

    def version_of(self, api_key: int, lowest: int, highest: int) -> int:
        """The newest version both sides know; a broker that is too old gets one clear sentence."""
        low, high = self._versions.get(api_key, (0, -1))
        version = min(high, highest)
        if version < max(low, lowest):
            spoken = f"{low} to {high}" if high >= low else "none"
            raise BrokerError(
                f"{self.name}: the broker is too old, Kafka 3.1 or newer is needed "
                f"(of request {api_key} it knows {spoken}, not version {lowest})"
            )
        return version

    def send(
        self,
        api_key: int,
        version: int,
        parts: Sequence[bytes | bytearray | memoryview],
        on_answer: OnAnswer,
    ) -> None:
        """Queue a flexible-version request made of `parts`; `on_answer` gets the body after the
        header."""
        if self._transport is None:
            on_answer(self._closed_error())
            return
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        body_bytes = sum(map(len, parts))
        header = (
            _LENGTH.pack(_REQUEST_HEADER.size + len(self._client_id_field) + 1 + body_bytes)
            + _REQUEST_HEADER.pack(api_key, version, self._correlation)
            + self._client_id_field
            + b"\0"
        )
        self._waiting.append((self._correlation, monotonic_s(), on_answer))
        self._written_bytes += len(header) + body_bytes
        self._transport.writelines([header, *parts])

    async def request(
        self,
        api_key: int,
        version: int,
        parts: Sequence[bytes],
        *,
        timeout_s: float | None = None,
    ) -> memoryview:
        """One exchange, bounded in time. Raises `BrokerUnreachable`.

        A broker that says nothing for `timeout_s`, `answer_s_max` unless told, gets its connection
        closed: it answers in order, so whoever waits behind this request would wait as long. A
        large answer on a slow link may take longer than that, as long as it comes.
        """
        done: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()

        def settle(answer: Answer) -> None:
            if done.done():
                return
            if isinstance(answer, BaseException):
                done.set_exception(answer)
            else:
                done.set_result(answer)

        self.send(api_key, version, parts, settle)
        if timeout_s is None:
            timeout_s = self.answer_s_max
        try:
            while not done.done():
                heard_bytes = self._heard_bytes
                await asyncio.wait({done}, timeout=timeout_s)
                if not done.done() and self._heard_bytes == heard_bytes:
                    done.cancel()
                    silent = BrokerUnreachable(f"{self.name}: no answer in {timeout_s:.0f} s")
                    self.close(silent)
                    raise silent
            return done.result()
        finally:
            # Whoever was cancelled while it waited must not leave an answer that nobody takes.
            done.cancel()

    async def call(
        self, message: Any, answer_type: type[Any], timeout_s: float | None = None
    ) -> Any:
        """One cold-path exchange of kio's typed messages; flexible versions only."""
        out = io.BytesIO()
        entity_writer(type(message))(out, message)
        key, version = int(message.__api_key__), int(message.__version__)
        self.version_of(key, version, version)
        body = await self.request(key, version, [out.getvalue()], timeout_s=timeout_s)
        self._on_round_trip(self.answer_wait_s)
        try:
            return entity_reader(answer_type)(bytes(body), 0)[0]
        except Exception as exc:
            # Whatever a decoder raises for bytes it does not know, an error code newer than itself
            # among them, is one thing to all who ask: an answer that cannot be read.
            raise WireError(
                f"{self.name}: its answer to request {key} cannot be read "
                f"({type(exc).__name__}: {exc})"
            ) from exc

    async def until_drained(self) -> None:
        """Wait for the next moment at which the transport takes more again, or is closed."""
        self._drained.clear()
        await self._drained.wait()

    def took(self, more: bool) -> None:
        """The transport says whether it takes more."""
        if more:
            self.writable.set()
            self._drained.set()
        else:
            self.writable.clear()

    def close(self, error: BaseException | None = None) -> None:
        if self._transport is None:
            return
        transport, self._transport = self._transport, None
        self._error = error
        _reset(transport)
        waiting, self._waiting = self._waiting, deque()
        self.took(more=True)
        for _, _, on_answer in waiting:
            on_answer(self._closed_error())

    def moved_bytes(self) -> int:
        """Grows as long as the broker takes or says anything, however slowly.

        What waits in the transport and in the kernel has not reached the broker.
        """
        transport = self._transport
        if transport is None:
            return self._heard_bytes
        waiting = transport.get_write_buffer_size()
        held = transport.get_extra_info("socket")
        if held is not None:
            waiting += _unacknowledged_bytes(held.fileno())
        return self._heard_bytes + self._written_bytes - waiting

    def kernel_round_trip_s(self) -> float | None:
        """The shortest that the kernel has seen on this connection, which a busy broker does not
        make longer; None where the system does not tell."""
        held = None if self._transport is None else self._transport.get_extra_info("socket")
        option = getattr(socket, "TCP_INFO", None)
        if held is None or option is None:
            return None
        told = held.getsockopt(socket.IPPROTO_TCP, option, _TCP_INFO_BYTES)
        if len(told) < _TCP_INFO_BYTES:
            return None
        (micros,) = struct.unpack_from("=I", told, _MIN_RTT_AT)
        return micros / 1_000_000 if 0 < micros < _NO_RTT else None

    def attach(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        transport = writer.transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        transport.set_protocol(_Frames(self))
        _notice_dead_peer(writer.get_extra_info("socket"))
        self._transport = transport

    def heard(self, count: int) -> None:
        """So many bytes have come."""
        self._heard_bytes += count

    def frame(self, frame: memoryview, began_s: float) -> None:
        """A whole answer has arrived, its first byte at `began_s`; the buffer behind it belongs to
        the receiver from here on."""
        if len(frame) < 5 or not self._waiting:
            self.close(WireError(f"{self.name}: an answer without a request"))
            return
        correlation, sent_s, on_answer = self._waiting.popleft()
        (got,) = _LENGTH.unpack_from(frame)
        if got != correlation or frame[4] != 0:
            self.close(WireError(f"{self.name}: answer {got} to request {correlation}"))
            on_answer(self._closed_error())
            return
        self.answer_wait_s, self.answer_bytes = began_s - sent_s, len(frame)
        on_answer(frame[5:])
        self._close_if_retired()

    def _closed_error(self) -> BrokerUnreachable:
        why = f": {self._error}" if self._error else ""
        return BrokerUnreachable(f"{self.name}: connection closed{why}")


def _reset(transport: asyncio.WriteTransport) -> None:
    """Close at once. What the kernel has not delivered yet is dropped: a request that nobody waits
    for any more must not arrive when a broken network heals."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.fileno() >= 0:
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()


class _Frames(asyncio.BufferedProtocol):
    """Cuts the byte stream into frames without copying: one buffer for each answer."""

    def __init__(self, owner: Connection) -> None:
        self._owner = owner
        self._length = memoryview(bytearray(4))
        self._buffer = self._length
        self._filled = 0
        self._began_s = 0.0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        self._owner.heard(nbytes)
        if self._filled < len(self._buffer):
            return
        self._filled = 0
        if self._buffer is self._length:
            (size,) = _LENGTH.unpack(self._length)
            if not 0 < size <= FRAME_BYTES_MAX:
                self._owner.close(WireError(f"{self._owner.name}: a frame of {size} bytes"))
                return
            self._buffer = memoryview(bytearray(size))
            self._began_s = monotonic_s()
            return
        frame, self._buffer = self._buffer, self._length
        self._owner.frame(frame, self._began_s)

    def pause_writing(self) -> None:
        self._owner.took(more=False)

    def resume_writing(self) -> None:
        self._owner.took(more=True)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: BaseException | None) -> None:
        self._owner.close(exc)


class _Opening(AIOKafkaConnection):  # type: ignore[misc]
    """Remembers what the broker says of the session, and goes at once where it fails."""

    session_s: float | None = None

    def close(self, reason: Any = None, exc: Any = None) -> None:
        writer = self._writer
        super().close(reason, exc)
        if writer is not None:
            # TLS would wait for the peer's farewell, up to half a minute with the socket open.
            writer.transport.abort()

    def send(self, request: Any, expect_response: bool = True) -> Any:
        answer = super().send(request, expect_response)
        return self._noted(answer) if isinstance(request, SaslAuthenticateRequest) else answer

    async def _noted(self, answering: Awaitable[Any]) -> Any:
        answer = await answering
        lifetime_ms = getattr(answer, "session_lifetime_ms", 0)
        self.session_s = lifetime_ms / 1000 if lifetime_ms > 0 else None
        return answer


def _notice_dead_peer(connection: socket.socket) -> None:
    """A machine that lost its power, or a firewall that forgot an idle connection, says nothing:
    without probes a connection that only waits would wait for ever."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _TCP_OPTIONS.items():
        number = getattr(socket, option, None)
        if number is not None:
            connection.setsockopt(socket.IPPROTO_TCP, number, value)


_TCP_OPTIONS: Final = {
    "TCP_KEEPIDLE": _PROBE_EVERY_S,
    "TCP_KEEPINTVL": _PROBE_EVERY_S,
    "TCP_KEEPCNT": _DEAD_PEER_S // _PROBE_EVERY_S,
    "TCP_USER_TIMEOUT": _DEAD_PEER_S * 1000,
}
"""By name: not every system has them all."""

_SOCKET_BUFFERS: Final = {
    "receive_buffer_bytes": socket.SO_RCVBUF,
    "send_buffer_bytes": socket.SO_SNDBUF,
}


def _client_id_field(client_id: str) -> bytes:
    text = client_id.encode()
    return struct.pack(">h", len(text)) + text


def _unacknowledged_bytes(descriptor: int) -> int:
    """What the kernel has of us and the peer has not; 0 where the system does not tell."""
    answer = bytearray(4)
    try:
        fcntl.ioctl(descriptor, termios.TIOCOUTQ, answer)
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder)


async def open_connection(
    host: str,
    port: int,
    settings: dict[str, Any],
    *,
    cluster: str,
    timeout_s: float = 15.0,
    on_round_trip: OnRoundTrip = lambda _: None,
) -> Connection:
    """Connect, authenticate and take the transport over.

    `settings` are those of `heliograph.config.clients.aiokafka_settings`.
    Raises `BrokerUnreachable` where waiting can help and `NotAuthorised` where credentials were
    refused.
    """
    name = f"cluster {cluster}, broker {host}:{port}"
    answer_ms_max = settings.get("request_timeout_ms", int(ANSWER_S_MAX * 1000))
    buffers = {name: settings.get(name) for name in _SOCKET_BUFFERS}
    settings = {
        "client_id": CLIENT_ID,
        "request_timeout_ms": int(timeout_s * 1000),
        **{name: value for name, value in settings.items() if name not in _SOCKET_BUFFERS},
    }
    if settings.get("sasl_mechanism") == "GSSAPI" and find_spec("gssapi") is None:
        raise BrokerError(
            f"{name}: GSSAPI needs the Python package `gssapi`, which is not installed here"
        )
    opened = _Opening(host, port, **settings)
    try:
        async with asyncio.timeout(timeout_s):
            await opened.connect()
    except (SaslAuthenticationFailed, UnsupportedSaslMechanismError) as exc:
        raise NotAuthorised(f"{name}: credentials refused") from exc
    except BrokerError as exc:
        # Of whoever makes tokens, and does not know for which cluster; aiokafka closes the
        # connection for its own errors only.
        opened.close()
        raise type(exc)(f"{name}: {exc}") from exc
    except (KafkaError, OSError, TimeoutError, EOFError) as exc:
        why = str(exc) or type(exc).__name__
        raise BrokerUnreachable(f"{name}: {why}") from exc
    except (AssertionError, ValueError, LookupError) as exc:
        raise WireError(f"{name}: no Kafka broker answers there ({exc!r})") from exc
    connection = Connection(
        name,
        opened._versions,
        opened.session_s,
        client_id=settings["client_id"],
        answer_s_max=answer_ms_max / 1000,
        on_round_trip=on_round_trip,
    )
    # What opened the connection must neither read nor close what is ours now. A stream writer
    # closes its transport when it is collected, so it lives as long as the connection.
    opened._read_task.cancel()
    writer, opened._writer, opened._reader = opened._writer, None, None
    connection.attach(writer)
    for name, size in buffers.items():
        if size is not None:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, _SOCKET_BUFFERS[name], size
            )
    return connection
