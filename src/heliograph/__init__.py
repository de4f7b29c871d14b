"""Heliograph: cross-cluster mirroring for Apache Kafka on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from heliograph.driver.live import RunStatus
    from heliograph.driver.result import RunResult
    from heliograph.driver.run import run
    from heliograph.driver.stop import StopRequest
    from heliograph.pipeline.sink import exactly_once
    from heliograph.pipeline.tables import tables

__version__: Final = "0.1.0"
__all__ = ["RunResult", "RunStatus", "StopRequest", "__version__", "exactly_once", "run", "tables"]


def __getattr__(name: str) -> Any:
    # Executors import this package as well, and must not load the driver with it.
    if name in ("RunResult", "RunStatus", "run"):
        import heliograph.driver.run as home
    elif name == "StopRequest":
        import heliograph.driver.stop as home  # type: ignore[no-redef]
    elif name == "exactly_once":
        import heliograph.pipeline.sink as home  # type: ignore[no-redef]
    elif name == "tables":
        import heliograph.pipeline.tables as home  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(home, name)
