"""Spark as one mirror uses it: started, started again when it is gone, stopped. Runs on the driver.

Every method blocks: call them behind `broker.blocking`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from heliograph.clock import monotonic_s
from heliograph.config.schema import MirrorConfig
from heliograph.engine.capacity import Capacity, capacity_of
from heliograph.engine.jvm import JvmFigures, jvm_figures
from heliograph.engine.session import (
    forget_session,
    is_startable,
    start_session,
    stop_session,
)
from heliograph.errors import EngineError

log: Final = logging.getLogger(__name__)
_GONE: Final = "Spark is gone: its JVM ended or the application was stopped"
_QUICK_LOSSES_MAX: Final = 3
_QUICK_S: Final = 60.0


class SparkApplication:
    """The session of one mirror, which may be another one tomorrow."""

    def __init__(self, config: MirrorConfig, say: Callable[[str], None]) -> None:
        self._config, self._say = config, say
        self._session: Any = None
        self._lock = threading.Lock()
        self._is_over = False
        self._started_s = 0.0
        self._quick_losses = 0

    @property
    def session(self) -> Any:
        """A SparkContext. Raises `EngineError` while there is none."""
        if self._session is None:
            raise EngineError(_GONE)
        return self._session

    def start(self) -> None:
        """Raises `EngineError`."""
        session = start_session(
            self._config.engine,
            clusters=self._config.clusters,
            secret_variables=self._config.secret_variables,
            say=self._say,
            has_queries=any(flow.pipelines for flow in self._config.flows),
        )
        self._started_s = monotonic_s()
        with self._lock:
            is_over = self._is_over
            if not is_over:
                self._session = session
        if is_over:
            stop_session(session)  # the mirror was stopped while Spark started

    def start_again(self) -> None:
        """After the JVM ended, or the application was stopped. Raises `EngineError`."""
        self._session = None
        if not is_startable():
            raise EngineError(f"{_GONE}; start the mirror again with spark-submit")
        is_quick = monotonic_s() - self._started_s < _QUICK_S
        self._quick_losses = self._quick_losses + 1 if is_quick else 1
        if self._quick_losses >= _QUICK_LOSSES_MAX:
            raise EngineError(f"{_GONE}, {self._quick_losses} times in a row")
        log.error("%s; starting Spark again", _GONE)
        forget_session()
        try:
            self.start()
        except EngineError as exc:
            raise EngineError(f"{_GONE}, and cannot be started again: {exc}") from exc

    def stop(self) -> None:
        with self._lock:
            self._is_over = True
            session, self._session = self._session, None
        if session is not None:
            stop_session(session)

    def capacity(self) -> Capacity:
        """What Spark has at the moment. Raises `EngineError` where it does not answer."""
        return capacity_of(self.session, self._config.engine)

    def jvm(self) -> JvmFigures | None:
        """None while there is no Spark."""
        session = self._session
        return None if session is None else jvm_figures(session)
