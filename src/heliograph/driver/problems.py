"""What went wrong for a flow, as its operator is shown it. Runs on the driver."""

from __future__ import annotations

import logging

from heliograph.errors import BrokerError, BrokerUnreachable, InvariantError, MirrorError

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
