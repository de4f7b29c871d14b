"""Every change that was asked for over the API, in one place. Driver only.

A line of the driver's log for each. What a failover or failback then does is in the flow's ledger;
decisions carry who made them in theirs.
"""

from __future__ import annotations

import logging
from typing import Final

from heliograph.api.access import Caller
from heliograph.model import FlowId

_log: Final = logging.getLogger("heliograph.trail")


class Trail:
    def changed(self, caller: Caller, verb: str, flow: FlowId, what: str) -> None:
        """Called once the change has begun; what it then does is in the ledger of its flow."""
        _log.info("api: change by=%s verb=%s flow=%s %s", caller.name, verb, flow, what)

    def refused(self, address: str, method: str, path: str) -> None:
        _log.warning("api: wrong token from=%s request=%s %r", address, method, path)
