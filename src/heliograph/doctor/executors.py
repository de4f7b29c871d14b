"""The same look from the executors, as a Spark job. Driver and executors."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from heliograph.doctor.place import PlaceOrder, PlaceSeen, look_around
from heliograph.engine.unit_job import run_units

_TASKS_MAX: Final = 64
"""More would ask brokers more often, and tell nothing new of machines that have been heard."""


def look_from_executors(context: Any, order: PlaceOrder) -> tuple[PlaceSeen, ...]:
    """One for each machine that Spark ran a task on; raises `EngineError`.

    `context` is a SparkContext. There is a task for each core, since Spark does not say on which
    machine one will run.
    """
    tasks = max(1, min(_TASKS_MAX, context.defaultParallelism))
    seen: list[PlaceSeen] = []
    run_units(context, "heliograph-doctor", list(range(tasks)), partial(_task, order), seen.append)
    return by_machine(seen)


def _task(order: PlaceOrder, _: int) -> PlaceSeen:
    return look_around(order)


def by_machine(seen: list[PlaceSeen]) -> tuple[PlaceSeen, ...]:
    """Of each machine the look that found most wrong: what one task misses, another has met."""
    worst: dict[str, PlaceSeen] = {}
    for each in seen:
        known = worst.get(each.host)
        if known is None or _failures(each) > _failures(known):
            worst[each.host] = each
    return tuple(worst[host] for host in sorted(worst))


def _failures(seen: PlaceSeen) -> int:
    return sum(bool(each.error) for each in seen.listeners)
