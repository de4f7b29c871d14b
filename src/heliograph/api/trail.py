"""Every change that was asked for over the API, in one place. Driver only.

A line of the driver's log for each. Decisions, failovers and failbacks write who asked for them
into the flow's ledger themselves (`ledger.trail`); for what has no place there, such as a
connector, `keep` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from heliograph.api.access import Caller
from heliograph.config.schema import MirrorConfig
from heliograph.connect.problems import ConnectProblem
from heliograph.errors import MirrorError
from heliograph.ledger.trail import DONE, Change, noted
from heliograph.model import FlowId

_log: Final = logging.getLogger("heliograph.trail")
_TRIES_S: Final = (0.0, 5.0, 20.0, 60.0)


class Trail:
    """Belongs to the driver's loop."""

    def __init__(self) -> None:
        self._keeping: set[asyncio.Task[None]] = set()

    def changed(self, caller: Caller, verb: str, flow: FlowId, what: str) -> None:
        """Called once the change has begun; what it then does is in the ledger of its flow."""
        _log.info("api: change by=%s verb=%s flow=%s %s", caller.name, verb, flow, what)

    def keep(
        self, caller: Caller, verb: str, flow: FlowId, what: str, config: Callable[[], MirrorConfig]
    ) -> None:
        """As `changed`, and in the ledger of the flow; the caller does not wait for that.

        A flow that has only just been asked for has no ledger yet, so it is tried for a while.
        """
        self.changed(caller, verb, flow, what)
        change = Change(who=caller.name, verb=verb, what=what).ended(DONE)
        task = asyncio.create_task(_keep(flow, change, config), name=f"history of {flow}")
        self._keeping.add(task)
        task.add_done_callback(self._keeping.discard)

    def refused(self, address: str, method: str, path: str) -> None:
        _log.warning("api: wrong token from=%s request=%s %r", address, method, path)


async def _keep(flow: FlowId, change: Change, config: Callable[[], MirrorConfig]) -> None:
    for wait_s in _TRIES_S:
        await asyncio.sleep(wait_s)
        try:
            if await noted(config(), flow, change):
                return
        except (MirrorError, ConnectProblem) as exc:
            _log.warning("%s: %s is not in the ledger's history: %s", flow, change.what, exc)
