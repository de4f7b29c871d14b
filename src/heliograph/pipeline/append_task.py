"""The task that appends staged parts, side by side. Runs on executors, and on the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from heliograph.broker.cluster import open_cluster
from heliograph.errors import MirrorError
from heliograph.pipeline.append import PartToAppend, append_part, retried
from heliograph.pipeline.notes import PartEnd
from heliograph.pipeline.staging import Folder
from heliograph.wire.batch import Stamp

if TYPE_CHECKING:
    from heliograph.config.schema import ClusterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendOrder:
    """All that whoever appends needs besides its parts; holds credentials."""

    id: str
    cluster: ClusterConfig = field(repr=False)
    stamp: Stamp
    folder: str


async def append_here(order: AppendOrder, parts: Sequence[PartToAppend]) -> list[PartEnd]:
    """Append all parts side by side from this process."""
    target = open_cluster(order.cluster, "producer")
    folder = Folder(order.folder)
    try:
        topics = {part.start.target.topic for part in parts}
        await retried(target, topics, partial(target.refresh, topics))
        return list(
            await asyncio.gather(
                *(append_part(target, order.stamp, folder, part) for part in parts)
            )
        )
    finally:
        target.close()


def append_unit(order: AppendOrder, parts: list[PartToAppend]) -> list[PartEnd] | MirrorError:
    """The Spark task; what goes wrong is an answer, raised, it would be tried
    again."""
    try:
        return asyncio.run(append_here(order, parts))
    except MirrorError as exc:
        return exc
