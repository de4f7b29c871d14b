"""Message handlers as MirrorMaker 1 had them: a record in, a list out. Runs on executors.

MirrorMaker 1 made its handler from a class and one string, and asked it for the records to send. A
lane carries none or one for each, in its own partition: a handler may drop and change records; what
makes more of one, or sends it elsewhere, is a pipeline.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from heliograph.config.transforms import TransformConfig
from heliograph.errors import TransformUnusable
from heliograph.transform.record import BadResult, Record

_PIPELINE: Final = "write a pipeline for that (docs/guides/pipelines.md)"


def handler_of(made_by: Callable[..., Any], config: TransformConfig) -> Callable[[Record], Any]:
    """A function on one record, of a class with `handle` or a function.

    A class is made with `args`, if there are any; a function gets them behind the record. Raises
    `TransformUnusable`.
    """
    given = () if config.args is None else (config.args,)
    if not isinstance(made_by, type):
        return partial(_one_of, lambda record: made_by(record, *given))
    try:
        handle = made_by(*given).handle
    except Exception as exc:  # the operator's class may raise anything
        why = f"`{config.function}` cannot be made: {type(exc).__name__}: {exc}"
        raise TransformUnusable(config.name, why) from exc
    return partial(_one_of, handle)


def _one_of(handle: Callable[[Record], Any], record: Record) -> Record | None:
    made = handle(record)
    if made is None or isinstance(made, Record):
        found = made
    elif isinstance(made, list | tuple):
        if len(made) > 1:
            raise BadResult(
                f"returned {len(made)} records for one, where a lane carries none or one; "
                f"{_PIPELINE}"
            )
        found = made[0] if made else None
    else:
        raise BadResult(f"returned {type(made).__name__}, not a Record, a list of them or None")
    if isinstance(found, Record) and found[:2] != record[:2]:
        raise BadResult(
            f"sent the record to {found.topic}-{found.partition}, where a lane keeps topic and "
            f"partition; whole topics are renamed by replication.policy.class, for single records "
            f"{_PIPELINE}"
        )
    return found
