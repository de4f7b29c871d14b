"""The link over real sockets: who is let in, what is let through, and the lease."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pytest

from heliograph.clock import monotonic_s
from heliograph.engine.frames import FRAME_BYTES_MAX, FrameStream, greet
from heliograph.engine.link import LinkClient, LinkServer, Session
from heliograph.engine.messages import (
    AddLanes,
    Beat,
    Down,
    Drain,
    Figures,
    Hello,
    LimitLanes,
    PauseLanes,
    Progress,
    RemoveLanes,
    ResumeLanes,
    Settled,
    Stop,
    Throttle,
    Up,
    decode_down,
    decode_up,
    encode_down,
    encode_up,
    hello_messages,
)
from heliograph.errors import InvariantError, LinkError
from heliograph.model import SlotId
from tests.kit.loop_thread import LoopThread, loop_thread
from tests.unit.engine.lanes import lane, progress

TOKEN = b"t" * 32
HELLO = Hello(slot=SlotId(0), generation=1, attempt="0", machine="here", pid=1, lanes=(lane(0),))


class Ear:
    """Remembers what the server heard."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.messages: list[Progress | Figures | Settled] = []
        self.lost_count = 0

    def hello(self, session: Session) -> None:
        self.sessions.append(session)
        session.send(AddLanes(lanes=(lane(1),)))

    def heard(self, session: Session, message: Progress | Figures | Settled) -> None:
        self.messages.append(message)

    def lost(self, session: Session) -> None:
        self.lost_count += 1


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    """The driver's; the slot's is the test's own."""
    with loop_thread() as loop:
        yield loop


@pytest.fixture
def server(ear: Ear, loop: LoopThread) -> Iterator[LinkServer]:
    server = LinkServer(host="127.0.0.1", token=TOKEN, listener=ear)
    yield server
    loop.wait(server.stop())


@pytest.fixture
def port(server: LinkServer, loop: LoopThread) -> int:
    return loop.wait(server.start())


async def join(port: int, token: bytes = TOKEN) -> FrameStream:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await greet(reader, writer, token)
    except BaseException:
        writer.close()
        raise


def client(port: int, heard: list[Down], *, lease_s: float, token: bytes = TOKEN) -> LinkClient:
    return LinkClient(
        host="127.0.0.1",
        port=port,
        token=token,
        lease_s=lease_s,
        hello=lambda: HELLO,
        heard=heard.append,
    )


@pytest.mark.parametrize(
    "message",
    [
        AddLanes(lanes=(lane(0), lane(1))),
        RemoveLanes(ids=(lane(0).id,)),
        PauseLanes(ids=(lane(0).id,)),
        ResumeLanes(ids=()),
        LimitLanes(ids=(lane(0).id,), limits=("a", "b")),
        Throttle(limit="a", bytes_per_s=None),
        Throttle(limit="a", bytes_per_s=5),
        Drain(),
        Stop(),
        Beat(number=3),
    ],
)
def test_every_message_down_arrives_as_it_was_sent(message: Down) -> None:
    assert decode_down(encode_down(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        HELLO,
        Progress(slot=SlotId(1), at_ms=5, lanes=(progress(0, records=3),)),
        Settled(ids=(lane(0).id,)),
        Beat(number=3),
    ],
)
def test_every_message_up_arrives_as_it_was_sent(message: Up) -> None:
    assert decode_up(encode_up(message)) == message


def test_a_message_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(LinkError, match="no message"):
        decode_up(b'{"kind": "bye"}')


def test_driver_and_slot_hear_each_other(port: int, ear: Ear) -> None:
    async def play() -> Down:
        stream = await join(port)
        stream.send(encode_up(HELLO))
        stream.send(encode_up(Settled(ids=(lane(0).id,))))
        answer = decode_down(await stream.receive())
        stream.send(encode_up(Beat(number=9)))
        assert decode_down(await stream.receive()) == Beat(number=9)
        stream.close()
        return answer

    answer = asyncio.run(play())

    assert answer == AddLanes(lanes=(lane(1),))
    assert ear.sessions[0].hello == HELLO
    assert ear.messages == [Settled(ids=(lane(0).id,))]


def test_a_slot_with_the_wrong_token_is_refused_and_sees_that_the_driver_is_not_its_own(
    port: int, ear: Ear
) -> None:
    with pytest.raises(LinkError, match="driver does not know the token"):
        asyncio.run(join(port, b"x" * 32))

    assert ear.sessions == []


def test_a_peer_that_cannot_prove_the_token_is_cut_off(port: int, ear: Ear) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as peer:
        peer.sendall(b"HELIO-1\n" + b"n" * 32)
        received = 0
        while received < 64:
            received += len(peer.recv(64))
        peer.sendall(b"p" * 32)

        assert peer.recv(1) == b""
    assert ear.sessions == []


def test_a_stranger_that_speaks_something_else_is_cut_off(port: int, ear: Ear) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n      ")

        assert stranger.recv(1) == b""
    assert ear.sessions == []


def test_an_oversize_frame_is_refused_before_it_is_read(port: int, ear: Ear) -> None:
    async def play() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stream = await greet(reader, writer, TOKEN)
        stream.send(encode_up(HELLO))
        await stream.receive()
        writer.write(struct.pack(">I", FRAME_BYTES_MAX + 1) + b"m" * 32)
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.IncompleteReadError):
                await stream.receive()
        stream.close()

    asyncio.run(play())

    assert ear.lost_count == 1


def test_a_frame_repeated_by_somebody_on_the_way_is_refused(port: int, ear: Ear) -> None:
    async def play() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stream = await greet(reader, writer, TOKEN)
        stream.send(encode_up(HELLO))
        await stream.receive()
        caught: list[bytes] = []
        send = writer.write
        writer.write = caught.append  # type: ignore[method-assign, assignment]
        stream.send(encode_up(Settled(ids=())))
        send(caught[0])
        send(caught[0])
        async with asyncio.timeout(5):
            with pytest.raises(asyncio.IncompleteReadError):
                await stream.receive()
        stream.close()

    asyncio.run(play())

    assert ear.messages == [Settled(ids=())]
    assert ear.lost_count == 1


def test_a_lease_is_renewed_as_long_as_the_driver_answers(port: int, ear: Ear) -> None:
    heard: list[Down] = []

    async def play() -> bool:
        task = asyncio.create_task(client(port, heard, lease_s=0.4).run())
        await asyncio.sleep(1.2)
        alive = not task.done()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return alive

    assert asyncio.run(play())
    assert heard == [AddLanes(lanes=(lane(1),))]


def test_a_slot_connects_again_after_a_cut_and_says_hello_again(
    loop: LoopThread, port: int, ear: Ear
) -> None:
    async def play() -> None:
        task = asyncio.create_task(client(port, [], lease_s=5).run())
        while len(ear.sessions) < 1:
            await asyncio.sleep(0.02)
        loop.call(ear.sessions[0].close)
        async with asyncio.timeout(5):
            while len(ear.sessions) < 2:
                await asyncio.sleep(0.02)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(play())

    assert [session.hello for session in ear.sessions] == [HELLO, HELLO]


def test_the_lease_ends_when_the_driver_is_gone(
    server: LinkServer, port: int, loop: LoopThread
) -> None:
    threading.Timer(0.3, lambda: loop.wait(server.stop())).start()
    started_s = monotonic_s()

    asyncio.run(client(port, [], lease_s=1.0).run())

    assert 0.9 < monotonic_s() - started_s < 3.0


def test_beats_that_wait_in_a_buffer_do_not_renew_the_lease(port: int, ear: Ear) -> None:
    async def play() -> bool:
        task = asyncio.create_task(client(port, [], lease_s=0.5).run())
        while not ear.sessions:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        # The slot freezes past its lease while echoes of its beats arrive and wait.
        time.sleep(0.8)
        await asyncio.sleep(0.05)
        return task.done()

    assert asyncio.run(play())


def test_a_client_refused_by_its_own_driver_says_so(port: int) -> None:
    with pytest.raises(LinkError, match="token"):
        asyncio.run(client(port, [], lease_s=5, token=b"y" * 32).run())


def test_a_bug_of_the_link_is_raised_where_it_is_used_next(ear: Ear) -> None:
    def fail() -> None:
        raise ValueError("pretend bug")

    async def play() -> None:
        failed = asyncio.Event()
        server = LinkServer(host="127.0.0.1", token=TOKEN, listener=ear, on_failure=failed.set)
        await server.start()
        server.every(1.0, fail)
        async with asyncio.timeout(5):
            await failed.wait()
        try:
            server.check()
        finally:
            await server.stop()

    with pytest.raises(InvariantError, match="pretend bug"):
        asyncio.run(play())


def test_a_link_that_is_closed_says_so(server: LinkServer, loop: LoopThread, port: int) -> None:
    server.check()

    loop.wait(server.stop())

    with pytest.raises(LinkError, match="closed"):
        server.check()


class Closing:
    """As much of a writer as one has who is not even listened to."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_one_who_connects_at_the_very_end_is_cut_off(ear: Ear) -> None:
    """Before its task has had a turn, and after the link was closed."""
    first, late = Closing(), Closing()

    async def play() -> None:
        server = LinkServer(host="127.0.0.1", token=TOKEN, listener=ear)
        await server.start()
        server._accept(asyncio.StreamReader(), cast(asyncio.StreamWriter, first))
        await server.stop()
        server._accept(asyncio.StreamReader(), cast(asyncio.StreamWriter, late))

    asyncio.run(play())

    assert (first.is_closed, late.is_closed) == (True, True)


def test_a_slot_with_more_lanes_than_a_frame_holds_says_hello_in_parts(ear: Ear, port: int) -> None:
    many = replace(HELLO, lanes=tuple(lane(number) for number in range(5_000)))

    async def say() -> None:
        stream = await join(port)
        for part in hello_messages(many):
            stream.send(encode_up(part))
        await stream.receive()
        stream.close()

    asyncio.run(say())

    assert [session.hello for session in ear.sessions] == [many]


def test_the_hello_of_fifty_thousand_lanes_fits_its_frames() -> None:
    many = replace(HELLO, lanes=(lane(0, topic="t" * 249),) * 50_000)

    sizes = {len(encode_up(part)) for part in hello_messages(many)[:2]}

    assert max(sizes) < FRAME_BYTES_MAX // 8


def test_what_is_not_the_rest_of_a_hello_ends_the_connection(ear: Ear, port: int) -> None:
    async def say() -> None:
        stream = await join(port)
        stream.send(encode_up(replace(HELLO, lanes_to_come=1)))
        stream.send(encode_up(Beat(number=1)))
        with pytest.raises(asyncio.IncompleteReadError):
            await stream.receive()
        stream.close()

    asyncio.run(say())

    assert ear.sessions == []
