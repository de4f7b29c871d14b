"""The heap of a driver that has its process for itself. Runs on the driver's loop.

Python's collector looks at all that lives now and then, and most of that was imported and stays for
good; meanwhile no slot's beat is answered. What is frozen is not looked at again. Who calls
`heliograph.run` has a heap of their own, which is left alone.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from heliograph.driver.live import LiveMirror

_LOOK_S: Final = 1.0


@asynccontextmanager
async def settled_heap(live: LiveMirror) -> AsyncIterator[None]:
    """Frozen once the mirror reports, when all that it needs was imported."""
    freezing = asyncio.create_task(_freeze_once_begun(live), name="settled heap")
    try:
        yield
    finally:
        freezing.cancel()
        gc.unfreeze()


async def _freeze_once_begun(live: LiveMirror) -> None:
    while live.status() is None:
        await asyncio.sleep(_LOOK_S)
    set_aside()


def set_aside() -> None:
    """What lives now stays; a full collection over it holds a driver's loop up for 60 ms."""
    gc.collect()
    gc.freeze()
