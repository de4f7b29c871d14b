"""What went wrong for a flow, as its operator is shown it. Runs on the driver."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from heliograph.errors import BrokerError, BrokerUnreachable, InvariantError, MirrorError
from heliograph.model import FlowId

log = logging.getLogger(__name__)


def problem_of(exc: Exception, about: str = "") -> MirrorError:
    """What an operator is shown; of a bug, that it is one."""
    prefix = f"{about}: " if about else ""
    if isinstance(exc, BrokerError):
        return BrokerUnreachable(f"{prefix}{exc}") if about and exc.retriable else exc
    if isinstance(exc, TimeoutError):
        return BrokerUnreachable(f"{prefix}no answer in time")
    if isinstance(exc, MirrorError):
        return exc
    log.error("%sa bug", prefix, exc_info=exc)
    return InvariantError(f"{prefix}a bug: {type(exc).__name__}: {exc}")


def joined(first: Mapping[FlowId, str], second: Mapping[FlowId, str]) -> dict[FlowId, str]:
    """Sentences of both; of a flow that has two, one behind the other."""
    return {
        flow: "; ".join(each[flow] for each in (first, second) if flow in each)
        for flow in (*first, *(flow for flow in second if flow not in first))
    }
