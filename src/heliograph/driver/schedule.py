"""A run that is repeated: catch up, end, wait for the next start. Runs on the driver.

Starts are `every_s` apart, counted from the first one, without jitter. Runs never overlap: a start
that comes while a run is under way is left out. A run that fails is said and does not end the
schedule, since what stood in its way may be gone the next time.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from heliograph.clock import monotonic_s, now_ms
from heliograph.driver.stop import StopRequest
from heliograph.errors import MirrorError
from heliograph.words import counted, in_words

log = logging.getLogger("heliograph")

_TELL_S: Final = 1.0


def run_every(
    every_s: float,
    run: Callable[[], int],
    stop: StopRequest,
    *,
    failed: int,
    on_wait: Callable[[str], None] = lambda _: None,
) -> int:
    """Run at once and then at every start until stopped; the exit code of the last run.

    `failed` is the code of a run that raised `MirrorError`. `on_wait` hears every second what is
    waited for.
    """
    first_s = monotonic_s()
    number = 0
    while True:
        code = _code(run, failed)
        if stop.is_made:
            return code
        following = next_start(monotonic_s() - first_s, every_s)
        if (missed := following - number - 1) > 0:
            every = in_words(every_s)
            log.warning("the run took longer than %s: %s left out", every, counted(missed, "start"))
        number = following
        wait_s = first_s + number * every_s - monotonic_s()
        at = datetime.fromtimestamp(now_ms() / 1000).astimezone() + timedelta(seconds=wait_s)
        waits = f"next start at {at.isoformat(timespec='seconds')}"
        log.info("%s; exit code of the last run: %d", waits, code)
        if asyncio.run(_is_stopped(stop, first_s + number * every_s, partial(on_wait, waits))):
            return code


def next_start(elapsed_s: float, every_s: float) -> int:
    """The number of the first start that is still to come; the first run's is 0."""
    return math.floor(elapsed_s / every_s) + 1


def _code(run: Callable[[], int], failed: int) -> int:
    try:
        return run()
    except MirrorError as exc:
        log.error("%s", exc)
        return failed


async def _is_stopped(stop: StopRequest, until_s: float, tell: Callable[[], None]) -> bool:
    """Wait until the time has come; whether the run was asked to stop before."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_made and (left_s := until_s - monotonic_s()) > 0:
            tell()
            await asyncio.wait({stopping}, timeout=min(left_s, _TELL_S))
        return stop.is_made
    finally:
        stopping.cancel()
