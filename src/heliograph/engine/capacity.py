"""How many slots Spark has room for, and could have. Runs on the driver; blocks."""

from __future__ import annotations

from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import SparkContext

from heliograph.config.schema import EngineConfig
from heliograph.engine.session import is_local
from heliograph.engine.whole_cores import booked
from heliograph.errors import EngineError


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Of a Spark application, at one moment."""

    cores: int
    executors: int
    room: int
    """Slots that fit on these cores together."""
    most: int | None
    """Slots that would fit if Spark got all it may ask for; None where nothing bounds it."""
    on_demand: bool = False
    """Whether Spark asks for another executor when a slot finds no room (dynamic allocation)."""


def capacity_of(context: SparkContext, engine: EngineConfig) -> Capacity:
    """Raises `EngineError` where Spark does not answer any more."""
    try:
        if is_local(context.master) and not context.master.startswith("local-cluster"):
            cpus = booked(engine.slot_cpus)
            threads = int(context.defaultParallelism)
            room = max(1, int(threads / cpus))
            cores = threads if cpus == engine.slot_cpus else max(1, round(room * engine.slot_cpus))
            return Capacity(cores=cores, executors=1, room=room, most=room)
        return _of_cluster(context, engine)
    except (Py4JError, OSError, AttributeError) as exc:
        # AttributeError: a context that was stopped has no JVM behind its attributes.
        raise EngineError(f"Spark does not say what it has: {type(exc).__name__}") from exc


def _of_cluster(context: SparkContext, engine: EngineConfig) -> Capacity:
    spark = context._jsc.sc()
    # Not `defaultParallelism`: it is 2 at least, and whatever spark.default.parallelism says.
    room = int(spark.maxNumConcurrentTasks(spark.resourceProfileManager().defaultResourceProfile()))
    executors = int(spark.getExecutorMemoryStatus().size()) - 1  # the driver itself is the first
    conf = context.getConf()
    cpus = booked(engine.slot_cpus)
    on_demand = str(conf.get("spark.dynamicAllocation.enabled", "false")).lower() == "true"
    most: int | None = room
    if on_demand:
        each = str(conf.get("spark.executor.cores", "1"))
        bound = str(conf.get("spark.dynamicAllocation.maxExecutors", ""))
        most = int(int(bound) * int(each) / cpus) if bound.isdecimal() else None
    return Capacity(
        cores=round(room * cpus),
        executors=executors,
        room=room,
        most=most,
        on_demand=on_demand,
    )
