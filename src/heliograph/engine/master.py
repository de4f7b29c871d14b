"""Spark masters that are wrong, absent or without workers: said in seconds. Runs on the driver.

Spark tries a master for a minute, and waits for executors without an end and without a word.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

from heliograph.clock import monotonic_s
from heliograph.errors import EngineError

_log: Final = logging.getLogger(__name__)
_STANDALONE: Final = "spark://"
_CONNECT_S_MAX: Final = 3.0
REGISTER_S_MAX: Final = 12.0
"""A standalone master that works answers within one."""
_QUIET_S: Final = 8.0
_QUIET_SHARE: Final = 0.04
"""Of a core: a JVM that works less than this for so long waits for somebody; on a busy machine it
may only need longer to start."""
_EXECUTOR_S: Final = 5.0
_EXECUTOR_S_MAX: Final = 300.0
_LOOK_S: Final = 0.5


def require_answer(master: str) -> None:
    """Raises `EngineError` where nothing listens at any address of a standalone master."""
    if not master.startswith(_STANDALONE):
        return
    addresses = master.removeprefix(_STANDALONE).split(",")
    refusals = [_refusal(address) for address in addresses]
    if all(refusals):
        raise EngineError(
            f"Spark did not start on {master}: the master does not answer: {refusals[0]}"
        )


def _refusal(address: str) -> str:
    """Why there is no connection to `HOST:PORT`; nothing where there is one."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return f"{address!r} is not HOST:PORT"
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S_MAX).close()
    except (OSError, OverflowError) as exc:
        return f"{address}: {getattr(exc, 'strerror', None) or exc}"
    return ""


@contextmanager
def register_in_time(master: str, jvm: Any, seconds: float = REGISTER_S_MAX) -> Iterator[None]:
    """Ends the process `jvm` where it waits longer for a standalone master to accept it.

    Raises `EngineError` then. None is a JVM of somebody else, which is not ended.
    """
    over, is_late = threading.Event(), threading.Event()

    def watch() -> None:
        began_s = monotonic_s()
        seen: deque[tuple[float, float]] = deque()
        while not over.wait(min(_LOOK_S, seconds)):
            at_s, cpu_s = monotonic_s(), _cpu_s(getattr(jvm, "pid", 0))
            seen.append((at_s, cpu_s))
            while seen[0][0] < at_s - _QUIET_S:
                seen.popleft()
            is_quiet = cpu_s - seen[0][1] <= _QUIET_SHARE * (at_s - seen[0][0])
            if at_s - began_s >= seconds and is_quiet:
                is_late.set()
                jvm.kill()
                return

    if jvm is None or not master.startswith(_STANDALONE):
        yield
        return
    threading.Thread(target=watch, name="register", daemon=True).start()
    try:
        yield
    except Exception as exc:
        if is_late.is_set():
            silent = f"the master does not answer within {seconds:g} s"
            raise EngineError(f"Spark did not start on {master}: {silent}") from exc
        raise
    finally:
        over.set()


def _cpu_s(pid: int) -> float:
    """What the process has used; 0 where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def executors_watched(context: SparkContext, silent_s: float = _EXECUTOR_S) -> Iterator[None]:
    """Says, while the block waits for executors, that there are none; cancels its jobs in the end.

    Executors may take minutes where they are started on demand, so that is no error at once.
    """
    ended, given_up = threading.Event(), threading.Event()

    def watch() -> None:
        if _has_executor(context, ended, silent_s):
            return
        _log.warning("%s; waiting for one", _no_executor(context))
        if _has_executor(context, ended, _EXECUTOR_S_MAX - silent_s):
            if not ended.is_set():
                _log.info("%s: an executor is there", context.master)
            return
        given_up.set()
        context.cancelAllJobs()

    threading.Thread(target=watch, name="executors", daemon=True).start()
    try:
        yield
    except EngineError as exc:
        if given_up.is_set():
            text = f"{_no_executor(context)} within {_EXECUTOR_S_MAX:g} s"
            raise EngineError(text) from exc
        raise
    finally:
        ended.set()


def _no_executor(context: SparkContext) -> str:
    return (
        f"Spark has no executor: {context.master} has no worker with enough free cores and memory "
        "(spark.executor.cores, spark.executor.memory)"
    )


def _has_executor(context: SparkContext, ended: threading.Event, wait_s: float) -> bool:
    """Whether there is one, or the wait for it is over; asked until then."""
    for _ in range(max(1, int(wait_s / _LOOK_S))):
        try:
            # The driver itself is the first.
            if context._jsc.sc().getExecutorMemoryStatus().size() > 1:
                return True
        except (Py4JError, OSError, AttributeError):
            return True  # Spark is gone, which the block hears by itself
        if ended.wait(_LOOK_S):
            return True
    return False
