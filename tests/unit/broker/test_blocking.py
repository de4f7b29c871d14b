"""Calls that block leave the loop free, and changes wake every task that waits for them."""

from __future__ import annotations

import asyncio
import threading

import pytest

from heliograph.broker.blocking import Changed, blocking, end_other_tasks, first_of
from heliograph.errors import BrokerUnreachable


def test_the_loop_goes_on_while_a_call_blocks() -> None:
    free = threading.Event()

    async def scenario() -> bool:
        waiting = asyncio.create_task(blocking(free.wait, 30))
        await asyncio.sleep(0)
        free.set()
        return await waiting

    assert asyncio.run(scenario())


def test_what_a_call_raises_is_raised_where_it_is_awaited() -> None:
    def fail() -> None:
        raise BrokerUnreachable("cluster B: no answer")

    with pytest.raises(BrokerUnreachable, match="cluster B"):
        asyncio.run(blocking(fail))


def test_a_call_that_never_returns_keeps_neither_a_task_nor_the_loop() -> None:
    never = threading.Event()

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await blocking(never.wait)

    asyncio.run(scenario())

    (left,) = [t for t in threading.enumerate() if t.name == "Event.wait"]
    assert left.daemon
    never.set()
    left.join()


def test_a_change_wakes_all_that_wait_and_none_that_comes_later() -> None:
    async def scenario() -> tuple[bool, bool]:
        changed = Changed()
        early = [changed.wait() for _ in range(2)]
        changed.notify()
        late = changed.wait()
        return all(future.done() for future in early), late.done()

    assert asyncio.run(scenario()) == (True, False)


def test_the_first_of_several_changes_is_enough() -> None:
    async def scenario() -> None:
        one, other = Changed(), Changed()
        asyncio.get_running_loop().call_soon(
            lambda: asyncio.get_running_loop().call_soon(other.notify)
        )
        async with asyncio.timeout(10):
            await first_of(one, other)
            await first_of(one, other, timeout_s=0.01)

    asyncio.run(scenario())


def test_a_loop_that_ends_first_ends_its_tasks_and_closes_what_they_hold() -> None:
    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            writer.transport.abort()

    async def scenario() -> asyncio.Task[None]:
        server = await asyncio.start_server(hold, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()

        async def connecting() -> None:
            await hold(*await asyncio.open_connection(*address))

        task = asyncio.create_task(connecting())
        await asyncio.wait({task}, timeout=0.05)
        server.close()
        await end_other_tasks()
        return task

    # Not asyncio.run, which would end them; a socket left open is a warning, and so an error.
    loop = asyncio.new_event_loop()
    task = loop.run_until_complete(scenario())
    loop.close()

    assert task.cancelled()
