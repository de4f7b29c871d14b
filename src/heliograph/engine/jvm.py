"""How Spark's JVM on the driver is, as its own management beans tell. Runs on the driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError


@dataclass(frozen=True, slots=True, kw_only=True)
class JvmFigures:
    heap_used_bytes: int
    other_used_bytes: int
    gc_seconds: dict[str, float]
    """By collector, since the JVM began."""
    gc_counts: dict[str, int]
    threads: int


def jvm_figures(context: Any) -> JvmFigures | None:
    """Asks the JVM, which may take as long as a collection; None where it does not answer."""
    try:
        factory = context._jvm.java.lang.management.ManagementFactory
        memory = factory.getMemoryMXBean()
        collectors = list(factory.getGarbageCollectorMXBeans())
        return JvmFigures(
            heap_used_bytes=int(memory.getHeapMemoryUsage().getUsed()),
            other_used_bytes=int(memory.getNonHeapMemoryUsage().getUsed()),
            gc_seconds={str(gc.getName()): gc.getCollectionTime() / 1000 for gc in collectors},
            gc_counts={str(gc.getName()): int(gc.getCollectionCount()) for gc in collectors},
            threads=int(factory.getThreadMXBean().getThreadCount()),
        )
    except (Py4JError, OSError, AttributeError):
        # Spark is ending, or was started by somebody who keeps its JVM elsewhere.
        return None
