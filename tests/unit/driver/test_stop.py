"""A run can be asked to stop before it begins, from any thread, and more than once."""

from __future__ import annotations

import asyncio
import threading

from heliograph.driver.stop import StopRequest


def test_a_request_made_before_the_run_counts() -> None:
    stop = StopRequest()
    stop.make()

    asyncio.run(asyncio.wait_for(stop.wait(), 5))

    assert stop.is_made


def test_a_request_from_another_thread_wakes_the_run() -> None:
    stop = StopRequest()

    async def scenario() -> None:
        waiting = asyncio.create_task(stop.wait())
        await asyncio.sleep(0)
        threading.Thread(target=stop.make).start()
        await asyncio.wait_for(waiting, 5)

    asyncio.run(scenario())


def test_a_request_after_the_run_has_ended_does_no_harm() -> None:
    stop = StopRequest()

    async def scenario() -> None:
        waiting = asyncio.create_task(stop.wait())
        await asyncio.sleep(0)
        waiting.cancel()

    asyncio.run(scenario())
    stop.make()

    assert stop.is_made
